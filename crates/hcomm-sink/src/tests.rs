//! Sessions pair what they open, result codes and numbers of calls are the documented ones.

use core::ffi::CStr;
use std::format;
use std::string::String;
use std::vec::Vec;

use wire::{DataType, DeviceAddr, ErrorCode, ReduceOp, Reduction};

use crate::{Call, ChannelHandle, DataPlane, Failure, Session, ThreadHandle, Transfer, code_of};

/// Answers with codes in turn, then 0; notes the numbers of the calls.
#[derive(Default)]
struct Script {
    answers: Vec<i32>,
    calls: Vec<u8>,
}

impl DataPlane for Script {
    fn call(&mut self, call: &Call<'_>) -> i32 {
        let answer = self.answers.get(self.calls.len()).copied().unwrap_or(0);
        self.calls.push(call.number());
        answer
    }

    fn has_cache(&self) -> bool {
        false
    }

    fn cache_lookup(&mut self, _tag: &CStr) -> Result<bool, i32> {
        Err(5)
    }
}

/// Opens and closes a session whose calls answer so; returns what failed and the calls.
fn session(answers: &[i32], waits: u32) -> (Option<Failure>, Vec<u8>) {
    let mut script = Script { answers: answers.to_vec(), calls: Vec::new() };
    let mut left = waits;
    let wait = || {
        left = left.saturating_sub(1);
        left > 0
    };
    let failure = Session::open(&mut script, c"group", wait).and_then(Session::close).err();
    (failure, script.calls)
}

#[test]
fn a_session_acquires_starts_ends_and_releases() {
    assert_eq!(session(&[], 1), (None, [15, 13, 14, 16].into()));
    assert_eq!(session(&[20, 20], 9), (None, [15, 15, 15, 13, 14, 16].into()));
}

#[test]
fn whatever_fails_is_reported_and_the_communicator_released() {
    let failed = |code, result, call| Some(Failure { code, ..Failure::new(result, call, 0, 0) });
    assert_eq!(session(&[20; 9], 3), (failed(ErrorCode::PLANE_BUSY, 20, 15), [15; 3].into()));
    assert_eq!(session(&[6], 9), (failed(ErrorCode::PLANE_MISSING, 6, 15), [15].into()));
    assert_eq!(session(&[0, 4], 9), (failed(ErrorCode::PLANE_FAILED, 4, 13), [15, 13, 16].into()));
    assert_eq!(session(&[0, 0, 9], 9), (failed(ErrorCode::PLANE_TIMEOUT, 9, 14), [15, 13, 14, 16].into()));
    assert_eq!(session(&[0, 0, 0, 3], 9), (failed(ErrorCode::PLANE_MEMORY, 3, 16), [15, 13, 14, 16].into()));
    // The first of two failures.
    assert_eq!(session(&[0, 0, 9, 3], 9).0, failed(ErrorCode::PLANE_TIMEOUT, 9, 14));
}

#[test]
fn a_session_that_is_dropped_ends_all_the_same() {
    let mut script = Script::default();
    drop(Session::open(&mut script, c"group", || false).expect("nothing fails"));
    assert_eq!(script.calls, [15, 13, 14, 16]);
}

#[test]
fn every_result_code_has_its_meaning() {
    let meanings = [
        ("PLANE_PARAMETER", &[1, 2][..]),
        ("PLANE_MEMORY", &[3, 24]),
        ("PLANE_UNSUPPORTED", &[5]),
        ("PLANE_MISSING", &[6]),
        ("PLANE_UNAVAILABLE", &[7, 20, 22]),
        ("PLANE_TIMEOUT", &[9]),
        ("PLANE_TRANSFER", &[11, 12, 13, 14, 19, 21]),
        ("PLANE_FAILED", &[4, 8, 10, 15, 16, 17, 18, 23, 25, 1000, -1, i32::MIN]),
    ];
    for (name, results) in meanings {
        for &result in results {
            assert_eq!(code_of(result).name(), name, "{result}");
        }
    }
    assert_eq!(
        meanings.iter().map(|(_, results)| results.len()).sum::<usize>(),
        24 + 4,
        "1 to 24, and strangers"
    );
}

#[test]
fn a_failure_names_result_call_thread_and_task() {
    assert_eq!(Failure::new(9, 12, 0x0304, 0x0506_0708).detail, 0x0506_0708_0304_0c09);
}

#[test]
fn calls_have_the_documented_numbers() {
    let document = include_str!("../../../docs/wire-format.md");
    let (_, table) = document.split_once("### Numbers of calls").expect("the table");
    let rows = table.lines().filter(|line| line.starts_with("| "));
    let cells =
        rows.flat_map(|row| row.split('|').map(|cell| cell.trim().replace('`', "")).collect::<Vec<_>>());
    let cells: Vec<String> = cells.filter(|cell| !cell.is_empty()).collect();
    let (thread, channel) = (ThreadHandle(1), ChannelHandle(2));
    let plain = Transfer { dst: DeviceAddr(0), src: DeviceAddr(0), len: 4, reduction: None };
    let how = Reduction { dtype: DataType::Int32, op: ReduceOp::Sum };
    let reduce = Transfer { reduction: Some(how), ..plain };
    let (index, timeout) = (0, 1);
    for (call, name) in [
        (Call::Local { thread, transfer: plain }, "LocalCopyOnThread"),
        (Call::Local { thread, transfer: reduce }, "LocalReduceOnThread"),
        (Call::ThreadRecord { thread, waiter: thread, index }, "ThreadNotifyRecordOnThread"),
        (Call::ThreadWait { thread, index, timeout }, "ThreadNotifyWaitOnThread"),
        (Call::Write { thread, channel, transfer: plain, notify: None }, "WriteOnThread"),
        (Call::Write { thread, channel, transfer: reduce, notify: None }, "WriteReduceOnThread"),
        (Call::Write { thread, channel, transfer: plain, notify: Some(0) }, "WriteWithNotifyOnThread"),
        (Call::Write { thread, channel, transfer: reduce, notify: Some(0) }, "WriteReduceWithNotifyOnThread"),
        (Call::Read { thread, channel, transfer: plain }, "ReadOnThread"),
        (Call::Read { thread, channel, transfer: reduce }, "ReadReduceOnThread"),
        (Call::ChannelRecord { thread, channel, index }, "ChannelNotifyRecordOnThread"),
        (Call::ChannelWait { thread, channel, index, timeout }, "ChannelNotifyWaitOnThread"),
        (Call::BatchStart(c""), "BatchModeStart"),
        (Call::BatchEnd(c""), "BatchModeEnd"),
        (Call::Acquire(c""), "AcquireComm"),
        (Call::Release(c""), "ReleaseComm"),
        (Call::CacheStart { tag: c"", addrs: &[DeviceAddr(0); 2], sizes: &[0; 2] }, "AicpuTsTaskCacheStart"),
        (Call::CacheEnd(c""), "AicpuTsTaskCacheEnd"),
        (Call::ChannelFence { thread, channel }, "ChannelFenceOnThread"),
        (Call::ChannelDrain { thread, channel }, "ChannelDrainOnThread"),
    ] {
        let at = cells.iter().position(|cell| cell == name).unwrap_or_else(|| panic!("no {name}: {cells:?}"));
        assert_eq!(cells[at - 1], format!("{}", call.number()), "{name}");
    }
}

#[test]
fn types_reductions_and_protocols_have_the_numbers_of_the_header() {
    use vendor_abi::hcomm as c;
    use wire::npu::Protocol;
    let types = [
        (DataType::Int8, c::HCOMM_INT8),
        (DataType::Int16, c::HCOMM_INT16),
        (DataType::Int32, c::HCOMM_INT32),
        (DataType::Fp16, c::HCOMM_FP16),
        (DataType::Fp32, c::HCOMM_FP32),
        (DataType::Int64, c::HCOMM_INT64),
        (DataType::Uint64, c::HCOMM_UINT64),
        (DataType::Uint8, c::HCOMM_UINT8),
        (DataType::Uint16, c::HCOMM_UINT16),
        (DataType::Uint32, c::HCOMM_UINT32),
        (DataType::Fp64, c::HCOMM_FP64),
        (DataType::Bf16, c::HCOMM_BFP16),
        (DataType::Int128, c::HCOMM_INT128),
        (DataType::Hif8, c::HCOMM_HIF8),
        (DataType::Fp8E4m3, c::HCOMM_FP8E4M3),
        (DataType::Fp8E5m2, c::HCOMM_FP8E5M2),
        (DataType::Fp8E8m0, c::HCOMM_FP8E8M0),
    ];
    assert_eq!(types.len(), DataType::ALL.len());
    assert!(types.iter().all(|&(ours, theirs)| ours as u32 == theirs));
    let ops = [
        (ReduceOp::Sum, c::HCOMM_SUM),
        (ReduceOp::Prod, c::HCOMM_PROD),
        (ReduceOp::Max, c::HCOMM_MAX),
        (ReduceOp::Min, c::HCOMM_MIN),
    ];
    assert!(ops.iter().all(|&(ours, theirs)| ours as u32 == theirs));
    assert_eq!(Protocol::Hccs as u32, c::HCOMM_PROTOCOL_HCCS);
    assert_eq!(Protocol::Roce as u32, c::HCOMM_PROTOCOL_ROCE);
    assert_eq!(Protocol::Ub as u32, c::HCOMM_PROTOCOL_UB_CTP);
}

#[test]
fn the_param_of_the_header_is_that_of_the_wire() {
    use core::mem::offset_of;
    use vendor_abi::param::{
        AICPU_TS_PARAM_FENCES, AICPU_TS_PARAM_MAGIC, AICPU_TS_PARAM_REDUCES_ALL, AicpuTsParam as Theirs,
    };
    use wire::param::KernelParam as Ours;
    macro_rules! same {
        ($($field:ident)+) => { $(assert_eq!(offset_of!(Ours, $field), offset_of!(Theirs, $field), stringify!($field));)+ };
    }
    same! {
        magic abi size args status threads channels thread_count channel_count host_thread memory mapped memory_len
        flags acquire_ms comm reserved
    }
    assert_eq!(size_of::<Ours>(), size_of::<Theirs>());
    assert_eq!(Ours::MAGIC, AICPU_TS_PARAM_MAGIC);
    let flags = [AICPU_TS_PARAM_REDUCES_ALL, AICPU_TS_PARAM_FENCES];
    assert_eq!([Ours::REDUCES_ALL, Ours::FENCES], flags);
}
