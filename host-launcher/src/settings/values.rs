//! Values of the single settings: text in, checked value out.

use core::fmt;
use core::ops::RangeInclusive;
use core::time::Duration;

use wire::ErrorCode;

/// Why a text is refused: the code, and what was expected instead.
pub(super) struct Fault {
    pub(super) code: ErrorCode,
    pub(super) expected: String,
}

/// A value and the reason why it differs from its text.
pub(super) type Parsed<T> = Result<(T, Option<&'static str>), Fault>;

impl Fault {
    pub(super) fn expected(expected: impl Into<String>) -> Self {
        Self { code: ErrorCode::ENV_VALUE, expected: expected.into() }
    }
}

/// Largest scratch buffer in MiB: the memory of the largest device.
const BUFFER_MIB_MAX: u64 = 128 << 10;

/// Who expands an operation into descriptors. All other modes of the field are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpansionMode {
    /// The kernel on the AI CPU.
    AicpuTs,
    /// The same, and no expanded graph is kept for a later operation.
    AicpuCacheDisable,
}

impl fmt::Display for ExpansionMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AicpuTs => "AICPU_TS",
            Self::AicpuCacheDisable => "AICPU_CacheDisable",
        })
    }
}

/// How reproducible reductions are. There is no way to have less than a fixed order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Determinism {
    /// The order of the algorithm: equal inputs give equal bits, run for run.
    Fixed,
    /// The order of the ranks: equal inputs give equal bits wherever in the tensor they lie.
    Strict,
}

impl fmt::Display for Determinism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fixed => "true",
            Self::Strict => "strict",
        })
    }
}

/// Parses decimal digits and nothing else: no sign, blank, unit or exponent.
pub(super) fn integer(text: &str, range: RangeInclusive<u64>, what: &str) -> Result<u64, Fault> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let value = if digits { text.parse().ok() } else { None };
    value.filter(|value| range.contains(value)).ok_or_else(|| {
        Fault::expected(format!("{what} from {} to {} in decimal digits", range.start(), range.end()))
    })
}

pub(super) fn number(text: &str, range: RangeInclusive<u32>) -> Parsed<Option<u32>> {
    let value = integer(text, u64::from(*range.start())..=u64::from(*range.end()), "a number")?;
    Ok((u32::try_from(value).ok(), None))
}

pub(super) fn buffer_bytes(text: &str) -> Parsed<u64> {
    Ok((integer(text, 1..=BUFFER_MIB_MAX, "a number of MiB")? << 20, None))
}

pub(super) fn connect_timeout(text: &str) -> Parsed<Duration> {
    Ok((Duration::from_secs(integer(text, 120..=7200, "seconds")?), None))
}

/// The field's 0, to wait for ever, is refused: here every wait has a deadline.
pub(super) fn exec_timeout(text: &str) -> Parsed<Duration> {
    Ok((Duration::from_secs(integer(text, 1..=2_147_483_647, "seconds")?), None))
}

pub(super) fn determinism(text: &str) -> Parsed<Determinism> {
    match text {
        "strict" => Ok((Determinism::Strict, None)),
        "true" => Ok((Determinism::Fixed, None)),
        "false" => Ok((Determinism::Fixed, Some("reductions have a fixed order in every mode"))),
        _ => Err(Fault::expected("false, true or strict")),
    }
}

pub(super) fn expansion_mode(text: &str) -> Parsed<ExpansionMode> {
    match text {
        "AICPU_TS" => Ok((ExpansionMode::AicpuTs, None)),
        "AI_CPU" => Ok((ExpansionMode::AicpuTs, Some("AI_CPU is the deprecated name of AICPU_TS"))),
        "AICPU_CacheDisable" => Ok((ExpansionMode::AicpuCacheDisable, None)),
        "HOST" | "HOST_TS" | "AIV" | "CCU_MS" | "CCU_SCHED" => {
            let expected =
                "AICPU_TS or AICPU_CacheDisable: other products or engines offer the mode, this one does not";
            Err(Fault { code: ErrorCode::ENV_UNSUPPORTED, expected: expected.to_owned() })
        }
        _ => Err(Fault::expected("AICPU_TS, AICPU_CacheDisable or AI_CPU, in this spelling")),
    }
}
