//! `HCCL_DFS_CONFIG`: what is watched while operations run.
//!
//! ```text
//! value = name ":" value { "," name ":" value }
//! ```
//! Of the field's six names one chooses something here, when launches are compared over all ranks; what the others ask for
//! is checked, and is always there or does not exist.

use super::values::{Fault, Parsed, integer};
use crate::communicator::Compare;
use crate::quote::quote;

/// Why the other names choose nothing.
const OTHERS: &str =
    "only inconsistent_check can be chosen here: faults of tasks, ranks and links are always reported";

pub(super) fn parse(text: &str) -> Parsed<Compare> {
    let mut compare = Compare::default();
    let mut seen = Vec::new();
    for part in text.split(',') {
        let (name, value) = part
            .split_once(':')
            .ok_or_else(|| Fault::expected("name:value pairs, with commas between them"))?;
        match name {
            "inconsistent_check" => {
                compare = match value {
                    "off" => Compare::Off,
                    "first" => Compare::First,
                    "on" => Compare::Always,
                    _ => return Err(Fault::expected("inconsistent_check:off, first or on")),
                }
            }
            "cluster_heartbeat" | "stuck_detection" | "task_exception" => {
                if !["on", "off"].contains(&value) {
                    return Err(Fault::expected(format!("{name}:on or off")));
                }
            }
            "connection_fault_detection_time" if value == "0" => {}
            "connection_fault_detection_time" => {
                integer(value, 20..=7_200, &format!("{name}:0, or seconds"))?;
            }
            "task_monitor_interval" => {
                integer(value, 0..=7_200_000, &format!("{name}: milliseconds"))?;
            }
            _ => {
                return Err(Fault::expected(format!(
                    "inconsistent_check or another name of the field, not {}",
                    quote(name)
                )));
            }
        }
        if seen.contains(&name) {
            return Err(Fault::expected(format!("{name} only once")));
        }
        seen.push(name);
    }
    let others = seen.iter().any(|name| *name != "inconsistent_check");
    Ok((compare, others.then_some(OTHERS)))
}

/// Returns the value as the variable would have it.
pub(super) fn show(compare: Compare) -> String {
    let value = match compare {
        Compare::Off => "off",
        Compare::First => "first",
        Compare::Always => "on",
    };
    format!("inconsistent_check:{value}")
}
