//! Variables of the field that do nothing here, and misspelt ones. Neither is passed over in silence.

use std::ffi::OsStr;

use core::fmt;
use core::time::Duration;

use super::NAMES;
use super::setting::{Origin, refusal, utf8};
use super::values::{Fault, integer};
use crate::error::Result;
use crate::quote::quote;

const NO_SOCKETS: &str = "ranks meet in shared memory: no socket is opened";
const NO_LOG: &str = "no such log or check exists here";
const NO_RETRY: &str = "an operation is not retried: its failure is reported";
const HCCS_ONLY: &str = "devices of one server are always joined by HCCS, and servers never are";
const ONE_QUEUE_PAIR: &str =
    "each channel has one queue pair, and the modelled network has no such parameter";
const RANK_TABLE: &str = "ranks come from a rank table";
const NO_PLUGIN: &str = "no plug-in or alternative selector is loaded";

/// Name, and why it has no effect.
const UNUSED: &[(&str, &str)] = &[
    ("ASCEND_GLOBAL_EVENT_ENABLE", NO_LOG),
    ("ASCEND_GLOBAL_LOG_LEVEL", NO_LOG),
    ("ASCEND_PROCESS_LOG_PATH", NO_LOG),
    ("ASCEND_SLOG_PRINT_TO_STDOUT", NO_LOG),
    ("CM_CHIEF_DEVICE", RANK_TABLE),
    ("CM_CHIEF_IP", RANK_TABLE),
    ("CM_CHIEF_PORT", RANK_TABLE),
    ("CM_WORKER_IP", RANK_TABLE),
    ("CM_WORKER_SIZE", RANK_TABLE),
    ("HCCL_ALG_MULTIPLE_DIMENSION_SPLIT_RATIO", "no algorithm splits data over dimensions"),
    ("HCCL_DEBUG_CONFIG", NO_LOG),
    ("HCCL_DETOUR", NO_PLUGIN),
    ("HCCL_DIAGNOSE_ENABLE", NO_LOG),
    ("HCCL_ENTRY_LOG_ENABLE", NO_LOG),
    ("HCCL_HOST_SOCKET_PORT_RANGE", NO_SOCKETS),
    ("HCCL_IF_BASE_PORT", NO_SOCKETS),
    ("HCCL_IF_IP", NO_SOCKETS),
    ("HCCL_INTER_HCCS_DISABLE", HCCS_ONLY),
    ("HCCL_INTRA_PCIE_ENABLE", HCCS_ONLY),
    ("HCCL_INTRA_ROCE_ENABLE", HCCS_ONLY),
    ("HCCL_LOGIC_SUPERPOD_ID", HCCS_ONLY),
    ("HCCL_MULTI_QP_THRESHOLD", ONE_QUEUE_PAIR),
    ("HCCL_NPU_SOCKET_PORT_RANGE", NO_SOCKETS),
    ("HCCL_OP_RETRY_ENABLE", NO_RETRY),
    ("HCCL_OP_RETRY_PARAMS", NO_RETRY),
    ("HCCL_RDMA_PCIE_DIRECT_POST_NOSTRICT", ONE_QUEUE_PAIR),
    ("HCCL_RDMA_QPS_PER_CONNECTION", ONE_QUEUE_PAIR),
    ("HCCL_RDMA_QP_PORT_CONFIG_PATH", ONE_QUEUE_PAIR),
    ("HCCL_RDMA_RETRY_CNT", ONE_QUEUE_PAIR),
    ("HCCL_RDMA_SL", ONE_QUEUE_PAIR),
    ("HCCL_RDMA_TC", ONE_QUEUE_PAIR),
    ("HCCL_RDMA_TIMEOUT", ONE_QUEUE_PAIR),
    ("HCCL_SOCKET_FAMILY", NO_SOCKETS),
    ("HCCL_SOCKET_IFNAME", NO_SOCKETS),
    ("HCCL_TUNER_CONFIG_FILE", NO_PLUGIN),
    ("HCCL_TUNER_PLUGIN", NO_PLUGIN),
    ("HCCL_USE_NEW_SELECTOR", NO_PLUGIN),
    ("HCCL_WHITELIST_DISABLE", NO_SOCKETS),
    ("HCCL_WHITELIST_FILE", NO_SOCKETS),
    ("HCOMM_DEBUG_CONFIG", NO_LOG),
    ("HCOMM_NIC_PLUGIN_SO", NO_PLUGIN),
];

/// Prefixes that claim to be a setting of this program.
const PREFIXES: [&str; 3] = ["AICPU_TS_", "HCCL_", "HCOMM_"];

/// How alike two names must be, of 1, for one to be proposed for the other.
const ALIKE: f64 = 0.6;

/// A variable of the field that was set and has no effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unused {
    /// Its name.
    pub name: String,
    /// What it was set to.
    pub requested: String,
    /// Why that does nothing.
    pub reason: &'static str,
}

impl Unused {
    pub(super) fn parse(name: &str, text: &OsStr) -> Result<Option<Self>> {
        let reason = match UNUSED.iter().find(|(known, _)| *known == name) {
            Some((_, reason)) => reason,
            None if name.starts_with("HCOMM_TA_") => ONE_QUEUE_PAIR,
            None => return Ok(None),
        };
        let text = utf8(name, text, Origin::Environment)?;
        check(name, text).map_err(|fault| refusal(name, text, Origin::Environment, fault))?;
        Ok(Some(Self { name: name.to_owned(), requested: text.to_owned(), reason }))
    }
}

/// Something about the settings that is allowed and rarely meant.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Warning {
    /// A variable whose prefix says that it is a setting, and that is none.
    Unknown {
        /// Its name.
        name: String,
        /// The setting most like it, if one is.
        nearest: Option<&'static str>,
    },
    /// An operation fails before a rank that is late has used up the time it has to come.
    ExecBelowConnect {
        /// `HCCL_EXEC_TIMEOUT`.
        exec: Duration,
        /// `HCCL_CONNECT_TIMEOUT`.
        connect: Duration,
    },
}

impl Warning {
    /// Returns a warning if `name`, which is no known variable, looks like a setting.
    pub(super) fn of(name: &str) -> Option<Self> {
        let stem = stem(name)?;
        Some(Self::Unknown { name: name.to_owned(), nearest: nearest(stem) })
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { name, nearest } => {
                write!(f, "W1001 ENV_UNKNOWN  no setting is called {}", quote(name))?;
                match nearest {
                    Some(nearest) => write!(f, "; did you mean {nearest}?"),
                    None => f.write_str("; it has no effect"),
                }
            }
            Self::ExecBelowConnect { exec, connect } => write!(
                f,
                "W1002 ENV_TIMEOUTS  HCCL_EXEC_TIMEOUT ({} s) is below HCCL_CONNECT_TIMEOUT ({} s): the first \
                 operation fails before a rank that is late has used up its time",
                exec.as_secs(),
                connect.as_secs()
            ),
        }
    }
}

/// Returns the known name most like `name`, both without prefix, if one is.
fn nearest(name: &str) -> Option<&'static str> {
    let known = NAMES.iter().copied().chain(UNUSED.iter().map(|&(known, _)| known));
    let mut letters = [0_u8; 128];
    for letter in name.bytes().filter(u8::is_ascii) {
        letters[usize::from(letter)] = letters[usize::from(letter)].saturating_add(1);
    }
    let len = name.chars().count();
    // Each letter that the longer of two names has and the other has not, wherever, is a difference.
    let likeness_at_most = |known: &str| {
        let mut rest = letters;
        let is_common = |letter: &u8| {
            let rest = &mut rest[usize::from(*letter)];
            let found = *rest > 0;
            *rest -= u8::from(found);
            found
        };
        let common = known.bytes().filter(is_common).count();
        let longer = len.max(known.len());
        1.0 - (longer - common) as f64 / longer as f64
    };
    // Letter by letter takes long, the more so for long names: few have to be compared in this way.
    let alike = known.map(|known| (known, stem(known).unwrap_or(known)));
    let alike = alike.filter(|(_, its)| likeness_at_most(its) >= ALIKE);
    let likeness = |its| strsim::normalized_damerau_levenshtein(name, its);
    let best = alike.map(|(known, its)| (known, likeness(its))).max_by(|(_, a), (_, b)| a.total_cmp(b));
    best.filter(|&(_, likeness)| likeness >= ALIKE).map(|(known, _)| known)
}

fn stem(name: &str) -> Option<&str> {
    PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix))
}

/// Checks texts that have a form, even though nothing uses them.
fn check(name: &str, text: &str) -> Result<(), Fault> {
    match name {
        "HCCL_IF_BASE_PORT" => integer(text, 1024..=65_520, "a port").map(drop),
        "HCCL_OP_RETRY_PARAMS" => retry_params(text),
        _ => Ok(()),
    }
}

fn retry_params(text: &str) -> Result<(), Fault> {
    let mut seen = Vec::new();
    for parameter in text.split(',') {
        let (name, value) = parameter
            .split_once(':')
            .ok_or_else(|| Fault::expected("MaxCnt:1,HoldTime:5000,IntervalTime:1000, or some of these"))?;
        match name {
            "MaxCnt" => integer(value, 1..=10, "MaxCnt")?,
            "HoldTime" | "IntervalTime" => integer(value, 0..=60_000, name)?,
            _ => {
                return Err(Fault::expected(format!(
                    "MaxCnt, HoldTime or IntervalTime, not {}",
                    quote(name)
                )));
            }
        };
        if seen.contains(&name) {
            return Err(Fault::expected(format!("{name} only once")));
        }
        seen.push(name);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names with a letter or three left out, changed or moved draw what comparing them with every known name would.
    #[test]
    fn nothing_alike_is_passed_over() {
        let known: Vec<_> = NAMES.iter().copied().chain(UNUSED.iter().map(|&(known, _)| known)).collect();
        let of_all = |name: &str| {
            let likeness =
                |known: &str| strsim::normalized_damerau_levenshtein(name, stem(known).unwrap_or(known));
            let best =
                known.iter().map(|known| (*known, likeness(known))).max_by(|(_, a), (_, b)| a.total_cmp(b));
            best.filter(|&(_, likeness)| likeness >= ALIKE).map(|(known, _)| known)
        };
        let mut found = 0;
        for known in &known {
            let letters: Vec<char> = stem(known).unwrap_or(known).chars().collect();
            for at in 0..letters.len() {
                let (before, behind) = letters.split_at(at);
                let rest = behind.get(3..).unwrap_or_default();
                let names = [
                    [before, &behind[1..]].concat(),
                    [before, rest].concat(),
                    [before, &['\u{e4}', '_'], rest].concat(),
                    [behind, before].concat(),
                ];
                for name in names.map(String::from_iter) {
                    assert_eq!(nearest(&name), of_all(&name), "{name}");
                    found += usize::from(nearest(&name).is_some());
                }
            }
        }
        assert!(found > 1_000, "{found}");
    }
}
