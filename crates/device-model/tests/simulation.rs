//! A simulated fabric: time, signals and stores under way, transfers in pieces, and the same again from the same seed.

mod rig;

use core::sync::atomic::Ordering;
use core::time::Duration;

use aicpu_device_model::driver::Npu;
use aicpu_device_model::fabric::{Fabric, FabricConfig};
use aicpu_device_model::machine::{Machine, MachineConfig, Outcome};
use aicpu_device_model::platform::SimulatedPlatform;
use hal::{Clock, DmaFence, Doorbell, SharedMemory};
use rig::{ALL, sqe, transfer};
use wire::npu::{self, Access, Protocol, QueueKind};
use wire::{Command, Descriptor, DeviceAddr, ErrorCode, TransferKind};
use zerocopy::IntoBytes;

fn simulated(npus: u32, seed: u64) -> (Fabric, Vec<Npu>, Machine) {
    let config = FabricConfig { seed: Some(seed), ..FabricConfig::new(npus, rig::WINDOW) };
    let fabric = Fabric::create(&config).unwrap();
    let npus = (0..npus).map(|npu| Npu::new(&fabric, npu)).collect();
    let machine = Machine::new(&fabric, MachineConfig::default());
    (fabric, npus, machine)
}

/// Lets a core submit 40 signals to the host one by one, and returns how the device fared: the code it stopped with,
/// or success. `fenced` says whether the core puts its fence between entry and doorbell.
fn submits(seed: u64, fenced: bool) -> ErrorCode {
    const COUNT: u32 = 40;
    let (fabric, npus, machine) = simulated(1, seed);
    let mut core = SimulatedPlatform::new(&fabric, 0).unwrap();
    let queue = npus[0].create_queue(QueueKind::Thread, 64, 0).unwrap();
    let ring = npus[0].ring(queue).unwrap().0;
    let clock = fabric.clock().clone();
    for index in 0..COUNT {
        let entry = Descriptor::from(sqe(Command::RecordHost { notify: 1 }));
        core.write(DeviceAddr(ring + 64 * u64::from(index)), entry.as_bytes()).unwrap();
        if fenced {
            core.publish();
        }
        core.ring(queue.0, index + 1);
        // The device goes on while the core does.
        machine.run_past_errors(|| false, clock.now().checked_add(Duration::from_nanos(300)));
    }
    let deadline = clock.now().checked_add(Duration::from_millis(1));
    match machine.run_until(|| npus[0].host_notify_count(1) == u64::from(COUNT), deadline) {
        Outcome::Done => ErrorCode::OK,
        Outcome::DeviceError(npu) => machine.error(npu).unwrap().code,
        Outcome::Deadline => panic!("entries got lost"),
    }
}

#[test]
fn a_missing_fence_shows_and_a_fence_holds() {
    let stopped = |fenced| (0..60).filter(|seed| submits(*seed, fenced) != ErrorCode::OK).count();
    assert_eq!(stopped(true), 0);
    assert!(stopped(false) > 30, "a device that sees a doorbell before its entry executes what lay there");
}

#[test]
fn a_core_sees_its_own_stores_and_others_see_them_later() {
    let (fabric, npus, machine) = simulated(1, 3);
    let mut core = SimulatedPlatform::new(&fabric, 0).unwrap();
    let at = npus[0].alloc(64, 64).unwrap();
    npus[0].write(at, &[0; 64]).unwrap();
    core.store(at, 7).unwrap();
    core.write(DeviceAddr(at.0 + 4), &[9]).unwrap();
    let seen = |npu: &Npu| {
        let mut bytes = [0; 8];
        npu.read(at, &mut bytes).unwrap();
        u64::from_le_bytes(bytes)
    };
    assert_eq!((core.load(at), seen(&npus[0])), (Ok(9 << 32 | 7), 0));
    assert!(!machine.is_quiet());
    let deadline = fabric.clock().now().checked_add(Duration::from_millis(1));
    assert_eq!(machine.run_until(|| machine.is_quiet(), deadline), Outcome::Done);
    assert_eq!((core.load(at), seen(&npus[0])), (Ok(9 << 32 | 7), 9 << 32 | 7));
    assert!(core.now_ns() > 0, "the core lives by the same clock");
    assert_eq!(core.load(DeviceAddr(at.0 + 4)), Err(ErrorCode::CONTEXT_ADDRESS));
}

/// A write of 64 KiB to a peer, with a signal behind it; returns the moments at which part of it had arrived.
fn partial_arrivals(seed: u64) -> (u32, u64) {
    const LEN: usize = 64 << 10;
    let (fabric, npus, machine) = simulated(2, seed);
    let source = rig::buffer(&npus[0], &vec![0x5a; LEN], ALL);
    let target = rig::buffer(&npus[1], &vec![0; LEN], Access::all());
    let channel = rig::connect(&npus[0], 1, Protocol::Hccs, 0).0;
    let mut ring = rig::thread(&npus[0], 4);
    let write = transfer(TransferKind::Write { channel }, source, target, LEN as u64);
    ring.write(&npus[0], sqe(Command::Transfer(write)));
    ring.write(&npus[0], sqe(Command::RecordPeer { channel, notify: 4 }));
    ring.ring(&npus[0]);
    let mut partial = 0;
    let arrived = || {
        let mut ends = [[0; 1]; 2];
        npus[1].read(target.addr, &mut ends[0]).unwrap();
        npus[1].read(DeviceAddr(target.addr.0 + LEN as u64 - 1), &mut ends[1]).unwrap();
        let notify = npus[1].window().half(npu::NOTIFIES + 16).load(Ordering::Acquire);
        let complete = ends == [[0x5a]; 2];
        partial += u32::from(ends[0] != ends[1]);
        assert!(complete || notify == 0, "the signal has overtaken the data");
        notify == 1
    };
    let deadline = fabric.clock().now().checked_add(Duration::from_millis(50));
    assert_eq!(machine.run_until(arrived, deadline), Outcome::Done);
    (partial, fabric.event_digest())
}

#[test]
fn transfers_arrive_in_pieces_and_signals_never_before_them() {
    let partial = (0..20).map(|seed| partial_arrivals(seed).0).collect::<Vec<_>>();
    assert!(partial.iter().filter(|count| **count > 0).count() >= 5, "{partial:?}");
}

#[test]
fn the_same_seed_is_the_same_run() {
    let digests: Vec<u64> = (0..20).map(|seed| partial_arrivals(seed).1).collect();
    assert_eq!(digests, (0..20).map(|seed| partial_arrivals(seed).1).collect::<Vec<_>>());
    let mut different = digests;
    different.sort_unstable();
    different.dedup();
    assert_eq!(different.len(), 20);
}

#[test]
fn time_jumps_where_nothing_can_happen() {
    let (fabric, _npus, machine) = simulated(3, 5);
    let start = fabric.clock().now();
    let real = std::time::Instant::now();
    let hour = Duration::from_secs(3600);
    assert_eq!(machine.run_until(|| false, start.checked_add(hour)), Outcome::Deadline);
    assert!(fabric.clock().since(start) >= hour && real.elapsed() < Duration::from_secs(60));
    assert_eq!(machine.run_until(|| false, None), Outcome::Deadline, "for ever is over at once");
}
