//! Rings that are smaller than an operation: the kernel returns, goes on later, and writes the same descriptors.

use std::collections::BTreeMap;

use wire::launch::Algorithm;
use wire::npu::Protocol;
use wire::{LaunchArgs, Sqe, Wqe};

use crate::rig::{PAIRS, Rig, Setup};

/// What reached each thread's ring and each queue pair, in order.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Seen {
    threads: Vec<Vec<Sqe>>,
    pairs: BTreeMap<u16, Vec<Wqe>>,
}

/// Plays a device that takes whatever is announced between turns; returns what it saw, and the turns.
pub(crate) fn drive(rig: &mut Rig, setup: &Setup, args: LaunchArgs) -> (Seen, u32) {
    let mut seen = Seen { threads: vec![Vec::new(); usize::from(setup.threads)], ..Seen::default() };
    rig.post(args);
    let mut turns = 0;
    while !rig.all_answered() {
        assert!(rig.kernel.poll(), "something can always be done");
        for thread in 0..setup.threads {
            for sqe in rig.consume(setup, thread) {
                seen.threads[usize::from(thread)].push(sqe);
                if sqe.opcode == Sqe::POST {
                    let wqes = rig.consume_pair(setup, sqe.channel, sqe.wqe_tail);
                    seen.pairs.entry(sqe.channel).or_default().extend(wqes);
                }
            }
        }
        turns += 1;
        assert!(turns < 10_000);
    }
    assert_eq!(rig.status().code, 0);
    (seen, turns)
}

#[test]
fn a_mesh_of_64_threads_goes_through_rings_of_four() {
    let deep = Setup { threads: 64, depth: 1024, ..Setup::new(3, 64) };
    let shallow = Setup { depth: 4, ..deep };
    for algorithm in [Algorithm::MeshOneShot, Algorithm::MeshTwoShot] {
        let mut args = [deep, shallow].map(|setup| setup.launch(640));
        for args in &mut args {
            args.algorithm = algorithm as u8;
        }
        let (expected, turns) = drive(&mut Rig::new(&[deep], 256), &deep, args[0]);
        assert_eq!(turns, 1);
        let mut rig = Rig::new(&[shallow], 256);
        let (seen, turns) = drive(&mut rig, &shallow, args[1]);
        assert!(turns > 10, "{turns}");
        assert_eq!(seen, expected);
        let written: usize = seen.threads.iter().map(Vec::len).sum();
        let status = rig.status();
        assert_eq!(status.sqes as usize, written);
        assert!(written > 64 * 5 && status.doorbells as usize == rig.fake().doorbells.len());
    }
}

#[test]
fn a_full_ring_waits_for_its_device() {
    let setup = Setup { depth: 8, ..Setup::new(0, 2) };
    let mut rig = Rig::new(&[setup], 8);
    rig.post(setup.launch(2));
    assert!(rig.kernel.poll());
    for _ in 0..5 {
        assert!(!rig.kernel.poll(), "nothing to do while the ring is full");
    }
    assert_eq!((rig.answered(), rig.fake().doorbells.len()), (0, 1));
    assert_eq!(rig.consume(&setup, 0).len(), 8);
    assert!(rig.kernel.poll());
    assert_eq!((rig.answered(), rig.status().sqes), (1, 12));
    assert_eq!(rig.fake().doorbells, [(0, 8), (0, 12)]);
}

#[test]
fn posts_wait_for_their_work_requests() {
    // Two queue pairs of four entries, chunk after chunk, from just below the wrap of the 32-bit words.
    let deep = Setup { protocol: Protocol::Roce, pair_depth: 1024, ..Setup::new(1, 3) };
    for (depth, pair_depth) in [(2048, 4), (4, 4), (4, 1024), (16, 8)] {
        let shallow = Setup { depth, pair_depth, ..deep };
        let run = |setup: &Setup| {
            let mut rig = Rig::new(&[*setup], 64);
            for queue in [0, PAIRS, PAIRS + 1] {
                rig.start_ring_at(queue, u32::MAX - 13);
            }
            let args = LaunchArgs { chunk: 7, ..setup.launch(70) };
            let (seen, _) = drive(&mut rig, setup, args);
            assert_eq!(rig.status().chunks, 10);
            seen
        };
        let (seen, expected) = (run(&shallow), run(&deep));
        assert_eq!(seen, expected, "depths {depth} and {pair_depth}");
        // A chunk is four steps; each acknowledges to the one side, and writes and records to the other.
        let lens: Vec<_> = seen.pairs.values().map(Vec::len).collect();
        assert_eq!(lens, [40, 80]);
        let posts: Vec<_> = seen.threads[0].iter().filter(|sqe| sqe.opcode == Sqe::POST).collect();
        assert_eq!(posts.len(), 120);
        let tails: Vec<_> = posts.iter().filter(|sqe| sqe.channel == 20).map(|sqe| sqe.wqe_tail).collect();
        let expected: Vec<_> = (1..=40).map(|step| (u32::MAX - 13).wrapping_add(step)).collect();
        assert_eq!(tails, expected);
    }
}
