//! Fences: where the runtime says that queue pairs need them, one goes before whatever tells a peer of transfers, and a
//! thread's reads are drained.

// UNSAFETY: C functions that the loader finds by their names.
#![expect(unsafe_code, reason = "the public names of the data plane")]

use std::collections::HashSet;

use aicpu_tests::variants::Variant;
use wire::npu::Protocol;
use wire::param::KernelParam;

use crate::plane;
use crate::rig::{Case, Loaded, Rig, TIMEOUT_S};

macro_rules! ordering {
    ($($name:ident = $line:literal),+) => {
        $(
            // SAFETY: no other symbol of the process has this name.
            #[unsafe(no_mangle)]
            extern "C" fn $name(thread: u64, channel: u64) -> i32 {
                plane::with(|plane| {
                    let line = format!("{} {} {}", $line, plane.thread(thread), plane.peer(channel));
                    plane.note(line)
                })
            }
        )+
    };
}
ordering!(HcommChannelFenceOnThread = "channel-fence", HcommChannelDrainOnThread = "channel-drain");

/// Puts fences and drains between calls, from the rule alone.
fn fenced(lines: &[String]) -> Vec<String> {
    let (mut result, mut unfenced) = (Vec::new(), HashSet::new());
    for line in lines {
        let words: Vec<_> = line.split(' ').collect();
        let (name, on) = (words[0], words.get(1..3).map(|on| on.join(" ")).unwrap_or_default());
        let peer = words.get(2).copied().unwrap_or_default();
        let writes = name.starts_with("write");
        let tells = name == "channel-record" || writes && words.last() != Some(&"-");
        if tells && unfenced.remove(peer) {
            result.push(format!("channel-fence {on}"));
        }
        if writes && !tells {
            unfenced.insert(peer);
        }
        result.push(line.clone());
        if name.starts_with("read") {
            unfenced.remove(peer);
            result.push(format!("channel-drain {on}"));
        }
    }
    result
}

#[test]
fn a_fence_goes_before_each_notify_behind_transfers_and_reads_are_drained() {
    let Some(kernel) = Loaded::kernel() else { return };
    let (mut fences, mut drains) = (0, 0);
    for protocol in [Protocol::Hccs, Protocol::Roce, Protocol::Ub] {
        for Variant { op, algorithm, staging } in Variant::all() {
            let case = Case::new(op, algorithm, 4).with(|operation| operation.staging = staging);
            let case = Case { protocol, ..case };
            if case.plan().is_err() {
                continue;
            }
            let mut rig = Rig::new(case);
            rig.param.flags |= KernelParam::FENCES;
            let plain = rig.expected(TIMEOUT_S);
            let expected = if protocol == Protocol::Hccs { plain.clone() } else { fenced(&plain) };
            // On a miss and on a hit.
            for _ in 0..2 {
                let (status, lines) = rig.launch(&kernel);
                assert_eq!((status.code, &lines), (0, &expected), "{:?}", rig.case);
                assert_eq!(status.sqes as usize, plain.len() - 4, "fences are no tasks");
            }
            let count = |name: &str| expected.iter().filter(|line| line.starts_with(name)).count();
            (fences, drains) = (fences + count("channel-fence"), drains + count("channel-drain"));
        }
    }
    assert!(fences > 100 && drains > 10, "{fences} fences, {drains} drains");
}
