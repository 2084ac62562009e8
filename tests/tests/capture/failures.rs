//! Replays that are refused, and replays that fail.

use core::sync::atomic::Ordering;
use core::time::Duration;
use std::time::Instant;

use aicpu_tests::bench::POISON;
use aicpu_tests::world::{self, Place};
use host_launcher::buffer::SharedBuffer;
use host_launcher::cluster::Cluster;
use host_launcher::communicator::{Config, Slot};
use wire::launch::{Algorithm, OpKind, Staging};
use wire::npu::{LAUNCH_SLOTS, LAUNCH_TAIL, LAUNCHES};
use wire::{DeviceAddr, ErrorCode, LaunchArgs};
use zerocopy::{FromZeros, IntoBytes};

use crate::rig::{Rig, Step, chain, config, operation, step};

fn cluster() -> Cluster {
    world::threads(3, Place::OneServer, 24 << 20)
}

/// After a failure: the communicator refuses, is given back, and a new one replays.
fn recovers(mut rig: Rig<'_>, cluster: &Cluster) {
    assert!(rig.comm.is_poisoned());
    assert_eq!(rig.comm.capture().err().map(|error| error.code()), Some(ErrorCode::COMM_POISONED));
    rig.comm.destroy().unwrap();
    let mut rig = Rig::new(cluster, config());
    let program = rig.capture(&chain(100)).unwrap();
    let buffers: [SharedBuffer; 4] = rig.buffers(2 << 10);
    for seed in 0..3 {
        rig.replay(seed, &program, &chain(100), &buffers.iter().collect::<Vec<_>>());
    }
    rig.finish(buffers);
}

#[test]
fn what_is_refused_before_anything_is_launched() {
    let cluster = cluster();
    let mut rig = Rig::new(&cluster, config());
    let steps = chain(100);
    let program = rig.capture(&steps).unwrap();
    assert_eq!(program.needs(), [400, 400, 1200, 400]);
    let [a, b, c, d, short] = rig.buffers(2 << 10);
    let small = SharedBuffer::new(&cluster, 1199).unwrap();
    let mut refused = |bound: &[&SharedBuffer]| rig.comm.replay(&program, bound).unwrap_err();
    assert_eq!(refused(&[&a, &b, &c]).code(), ErrorCode::PROGRAM_BINDINGS);
    assert_eq!(refused(&[&a, &b, &c, &d, &short]).code(), ErrorCode::PROGRAM_BINDINGS);
    let error = refused(&[&a, &b, &small, &d]);
    assert_eq!(
        (error.code(), error.message()),
        (ErrorCode::LAUNCH_BUFFER, "slot 2: 1200 bytes wanted, the buffer has 1199")
    );
    // Registered no longer at one rank: the whole replay is refused, at all ranks.
    cluster.npu(1).deregister(c.token(1)).unwrap();
    let error = refused(&[&a, &b, &c, &d]);
    let stale = "slot 2: the buffer is not registered at rank 1";
    assert_eq!((error.code(), error.message()), (ErrorCode::BINDING_STALE, stale));
    // Nothing of it was launched.
    assert_eq!(rig.comm.synchronize().unwrap(), []);
    rig.replay(1, &program, &steps, &[&a, &b, &short, &d]);
    // Another communicator, and a program that is freed.
    let other = Rig::new(&cluster, config());
    let mut other = other;
    let foreign = other.capture(&steps).unwrap();
    let bound = [&a, &b, &short, &d];
    assert_eq!(rig.comm.replay(&foreign, &bound).unwrap_err().code(), ErrorCode::PROGRAM_STALE);
    rig.comm.replay(&program, &bound).unwrap();
    assert_eq!(rig.comm.free_program(&program).unwrap_err().code(), ErrorCode::PROGRAM_BUSY);
    rig.comm.synchronize().unwrap();
    rig.comm.free_program(&program).unwrap();
    for _ in 0..2 {
        assert_eq!(rig.comm.free_program(&program).unwrap_err().code(), ErrorCode::PROGRAM_STALE);
        assert_eq!(rig.comm.replay(&program, &bound).unwrap_err().code(), ErrorCode::PROGRAM_STALE);
    }
    other.finish([]);
    rig.finish([a, b, d, short, small]);
    drop(c.free(&cluster));
}

#[test]
fn what_is_refused_while_capturing() {
    let cluster = cluster();
    let mut rig = Rig::new(&cluster, config());
    let code = |result: host_launcher::Result<_>| result.map(drop).unwrap_err().code();
    assert_eq!(code(rig.capture(&[])), ErrorCode::PROGRAM_CAPACITY);
    let one = step(operation(OpKind::AllReduce, Algorithm::Ring, 8), 0, 1);
    assert_eq!(code(rig.capture(&vec![one.clone(); 129])), ErrorCode::PROGRAM_CAPACITY);
    assert!(rig.capture(&vec![one.clone(); 128]).is_ok());
    assert_eq!(code(rig.capture(&[step(one.operation.clone(), 0, 128)])), ErrorCode::PROGRAM_CAPACITY);
    let mut direct = one.clone();
    (direct.operation.algorithm, direct.operation.staging) = (Algorithm::MeshTwoShot, Staging::Direct);
    direct.output = Slot { index: 1, offset: 64, stride: 0 };
    assert_eq!(code(rig.capture(&[direct])), ErrorCode::LAUNCH_BUFFER);
    let far = Step { output: Slot { index: 1, offset: u64::MAX, stride: 0 }, ..one.clone() };
    assert_eq!(code(rig.capture(&[far])), ErrorCode::LAUNCH_BUFFER);
    let mut huge = one;
    huge.operation.count = u64::MAX;
    assert_eq!(code(rig.capture(&[huge])), ErrorCode::LAUNCH_COUNT);
    rig.finish([]);
}

/// The last of three operations is refused by the kernels: the first two have not been submitted either.
#[test]
fn a_kernel_refuses_the_whole_program() {
    let cluster = cluster();
    let mut rig = Rig::new(&cluster, config());
    let mut steps = chain(100);
    // Half of the output lies over the input, which only the buffers of a replay show.
    steps[2].output.offset = 8;
    let program = rig.capture(&steps).unwrap();
    let [a, b, c] = rig.buffers(2 << 10);
    rig.fill(1, &[&a, &b, &c]);
    rig.comm.replay(&program, &[&a, &b, &c, &c]).unwrap();
    let error = rig.comm.synchronize().unwrap_err();
    assert_eq!(error.code(), ErrorCode::LAUNCH_OVERLAP, "{error}");
    let text = error.to_string();
    assert!(
        text.contains(
            "replay of program 0 (3 operations, first: all-reduce int32 × 100 sum by halving-doubling"
        ),
        "{text}"
    );
    for buffer in [&b, &c] {
        assert!(rig.read(buffer).iter().flatten().all(|byte| *byte == POISON), "nothing was submitted");
    }
    recovers(rig, &cluster);
    [a, b, c].into_iter().for_each(|buffer| buffer.free(&cluster).unwrap());
}

/// The arguments that were posted last on a rank.
fn posted(cluster: &Cluster, rank: u32) -> LaunchArgs {
    let window = cluster.npu(rank).window();
    // ORDER: only this thread posts.
    let tail = window.word(LAUNCH_TAIL).load(Ordering::Relaxed);
    let mut args = LaunchArgs::new_zeroed();
    window.read(LAUNCHES + (tail - 1) % LAUNCH_SLOTS * size_of::<LaunchArgs>() as u64, args.as_mut_bytes());
    args
}

#[test]
fn a_program_whose_bytes_have_changed() {
    for (byte, code) in
        [(0, ErrorCode::PROGRAM_MAGIC), (40, ErrorCode::PROGRAM_CHECKSUM), (200, ErrorCode::PROGRAM_CHECKSUM)]
    {
        let cluster = cluster();
        let mut rig = Rig::new(&cluster, config());
        let program = rig.capture(&chain(100)).unwrap();
        let buffers: [SharedBuffer; 4] = rig.buffers(2 << 10);
        let slots: Vec<_> = buffers.iter().collect();
        rig.replay(1, &program, &chain(100), &slots);
        rig.comm.replay(&program, &slots).unwrap();
        let at = DeviceAddr(posted(&cluster, 1).context.0 + byte);
        let mut value = [0];
        cluster.npu(1).read(at, &mut value).unwrap();
        cluster.npu(1).write(at, &[value[0] ^ 1]).unwrap();
        let error = rig.comm.synchronize().unwrap_err();
        assert_eq!((error.code(), error.diagnosis().map(|report| report.rank)), (code, Some(1)), "{error}");
        recovers(rig, &cluster);
        buffers.into_iter().for_each(|buffer| buffer.free(&cluster).unwrap());
    }
}

/// The output of the second of three operations goes away after the launch.
#[test]
fn an_operation_in_the_middle_fails() {
    let cluster = cluster();
    let mut rig = Rig::new(&cluster, config());
    let program = rig.capture(&chain(100)).unwrap();
    let [a, b, c, d] = rig.buffers(2 << 10);
    rig.replay(1, &program, &chain(100), &[&a, &b, &c, &d]);
    rig.comm.replay(&program, &[&a, &b, &c, &d]).unwrap();
    cluster.npu(2).deregister(c.token(2)).unwrap();
    let error = rig.comm.synchronize().unwrap_err();
    assert_eq!(error.code(), ErrorCode::DMA_UNREGISTERED, "{error}");
    assert_eq!(error.diagnosis().and_then(|report| report.culprit_rank), Some(2), "{error}");
    recovers(rig, &cluster);
    [a, b, d].into_iter().for_each(|buffer| buffer.free(&cluster).unwrap());
}

#[test]
fn one_rank_replays_another_program() {
    let cluster = cluster();
    let timeout = Duration::from_secs(20);
    let mut rig = Rig::new(&cluster, Config { timeout, ..config() });
    let programs = [chain(100), chain(70)].map(|steps| rig.capture(&steps).unwrap());
    let [a, b, c, d] = rig.buffers(2 << 10);
    let slots = [&a, &b, &c, &d];
    // Two of one and one of the other: no count of signals adds up.
    let other = rig.capture(&chain(100)[..2]).unwrap();
    let started = Instant::now();
    rig.comm.replay_on(0, &programs[0], &slots).unwrap();
    rig.comm.replay_on(1, &other, &slots[..3]).unwrap();
    rig.comm.replay_on(2, &programs[0], &slots).unwrap();
    let error = rig.comm.synchronize().unwrap_err();
    assert_eq!(error.code(), ErrorCode::PEER_DIFFERS, "{error}");
    let report = error.diagnosis().unwrap();
    assert_eq!(report.culprit_rank, Some(1), "{error}");
    let cause =
        "number of operations is 2 (a captured program) at rank 1, but 3 (a captured program) at ranks 0, 2.";
    assert_eq!(report.cause, cause);
    assert!(started.elapsed() < timeout, "found by the signatures, before the deadline");
    recovers(rig, &cluster);
    [a, b, c, d].into_iter().for_each(|buffer| buffer.free(&cluster).unwrap());
}
