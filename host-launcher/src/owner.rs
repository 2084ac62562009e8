//! Which process has the NPUs of a fabric, and what one that is gone has left in them.
//!
//! Memory of NPUs that lives in a file outlasts the process that made it. Whoever opens it next takes back what a dead
//! process had, and can say whose it was; from a process that is alive nothing is taken.

use device_model::driver::{Leftover, Process};
use device_model::fabric::Fabric;
use wire::ErrorCode;

use crate::error::{Error, Result};

/// Makes this process the owner of all NPUs of a fabric, and returns what it had to take back.
///
/// # Errors
/// `NPU_HELD` when another process that is alive has one of them; nothing is taken then.
pub(crate) fn claim(fabric: &Fabric) -> Result<Vec<Leftover>> {
    let own = process(std::process::id().into()).unwrap_or_default();
    let windows = || (0..fabric.npus()).map(|npu| (npu, fabric.window(npu)));
    let others = || windows().filter(|(_, window)| ![Process::default(), own].contains(&window.owner()));
    let is_alive = |owner: Process| process(owner.number) == Some(owner);
    if let Some((npu, window)) = others().find(|(_, window)| is_alive(window.owner())) {
        let message = format!("NPU {npu} belongs to process {}", window.owner().number);
        return Err(Error::new(ErrorCode::NPU_HELD, message));
    }
    let leftovers = others().map(|(npu, window)| window.reclaim(npu)).collect();
    windows().for_each(|(_, window)| window.set_owner(own));
    Ok(leftovers)
}

/// Gives the NPUs up, where this process has them.
pub(crate) fn release(fabric: &Fabric) {
    let own = u64::from(std::process::id());
    let windows = (0..fabric.npus()).map(|npu| fabric.window(npu));
    windows
        .filter(|window| window.owner().number == own)
        .for_each(|window| window.set_owner(Process::default()));
}

/// Returns a process that is alive: its start is the 22nd field of its `stat`, the 20th behind the name.
fn process(number: u64) -> Option<Process> {
    let stat = std::fs::read_to_string(format!("/proc/{number}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    let started = fields.split_whitespace().nth(19)?.parse().ok()?;
    // A zombie holds nothing any more.
    let state = fields.split_whitespace().next()?;
    (state != "Z").then_some(Process { number, started })
}

#[cfg(test)]
mod tests {
    use super::process;

    #[test]
    fn a_process_is_known_by_number_and_start() {
        let own = process(std::process::id().into()).unwrap();
        assert_eq!(process(own.number), Some(own));
        let first = process(1).unwrap();
        assert!(first.started <= own.started && first.number == 1);
        assert_eq!(process(u64::MAX), None);
    }
}
