//! Result codes of the data plane, as codes of ours.

use vendor_abi::hcomm;
use wire::ErrorCode;

/// A call that failed, and where in the launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What it means.
    pub code: ErrorCode,
    /// Result code, number of the call, thread and task, from the low bits on (`docs/wire-format.md` section 11).
    pub detail: u64,
}

impl Failure {
    /// Names a call that returned `result`: its number, thread, and the task it was made for.
    #[must_use]
    pub fn new(result: i32, call: u8, thread: u16, task: u32) -> Self {
        let [low, ..] = result.to_le_bytes();
        let detail = u64::from(low) | u64::from(call) << 8 | u64::from(thread) << 16 | u64::from(task) << 32;
        Self { code: code_of(result), detail }
    }
}

/// Returns what a result code that is not 0 means.
#[must_use]
#[cold]
pub fn code_of(result: i32) -> ErrorCode {
    match u32::try_from(result).unwrap_or(u32::MAX) {
        hcomm::HCOMM_E_PARA | hcomm::HCOMM_E_PTR => ErrorCode::PLANE_PARAMETER,
        hcomm::HCOMM_E_MEMORY | hcomm::HCOMM_E_OOM => ErrorCode::PLANE_MEMORY,
        hcomm::HCOMM_E_NOT_SUPPORT => ErrorCode::PLANE_UNSUPPORTED,
        hcomm::HCOMM_E_NOT_FOUND => ErrorCode::PLANE_MISSING,
        hcomm::HCOMM_E_UNAVAIL | hcomm::HCOMM_E_AGAIN | hcomm::HCOMM_E_SUSPENDING => {
            ErrorCode::PLANE_UNAVAILABLE
        }
        hcomm::HCOMM_E_TIMEOUT => ErrorCode::PLANE_TIMEOUT,
        hcomm::HCOMM_E_TCP_CONNECT
        | hcomm::HCOMM_E_ROCE_CONNECT
        | hcomm::HCOMM_E_TCP_TRANSFER
        | hcomm::HCOMM_E_ROCE_TRANSFER
        | hcomm::HCOMM_E_NETWORK
        | hcomm::HCOMM_E_REMOTE => ErrorCode::PLANE_TRANSFER,
        _ => ErrorCode::PLANE_FAILED,
    }
}
