//! What the driver gives out, takes back and refuses.

use core::sync::atomic::Ordering;
use std::collections::HashSet;

use aicpu_device_model::driver::{DriverError, Link, Npu, POISON};
use aicpu_device_model::fabric::{Fabric, FabricConfig};
use wire::npu::{self, Access, Protocol, QueueKind, RegionSlot, Status};
use wire::{DeviceAddr, ErrorCode, LaunchArgs};
use zerocopy::{FromBytes, IntoBytes};

fn npu(window_bytes: u64) -> Npu {
    Npu::new(&Fabric::create(&FabricConfig::new(1, window_bytes)).unwrap(), 0)
}

fn code<T>(result: Result<T, DriverError>) -> ErrorCode {
    result.map(|_| ()).unwrap_err().code()
}

#[test]
fn memory_is_aligned_poisoned_and_bounded() {
    let npu = npu(1 << 20);
    let heap = (1 << 20) - npu::HEAP;
    let (small, aligned) = (npu.alloc(1, 1).unwrap(), npu.alloc(100, 4096).unwrap());
    assert_eq!(small.0, npu.window().base().0 + npu::HEAP);
    assert!(aligned.0.is_multiple_of(4096));
    let mut bytes = [0; 128];
    npu.read(aligned, &mut bytes).unwrap();
    assert_eq!(bytes, [POISON; 128]);
    npu.write(aligned, &[1; 128]).unwrap();
    npu.free(aligned).unwrap();
    assert_eq!(npu.alloc(100, 4096).unwrap(), aligned);
    npu.read(aligned, &mut bytes).unwrap();
    assert_eq!(bytes, [POISON; 128], "memory taken again is fresh again");
    assert_eq!(npu.free_bytes(), heap - 64 - 128);

    assert_eq!(code(npu.alloc(heap, 1)), ErrorCode::DEVICE_MEMORY_FULL);
    assert_eq!(code(npu.alloc(u64::MAX, 1)), ErrorCode::DEVICE_MEMORY_FULL);
    assert_eq!(code(npu.alloc(0, 1)), ErrorCode::DEVICE_ARGUMENT);
    assert_eq!(code(npu.alloc(8, 3)), ErrorCode::DEVICE_ARGUMENT);
    npu.free(small).unwrap();
    assert_eq!(code(npu.free(small)), ErrorCode::DEVICE_HANDLE);
    let outside = DeviceAddr(npu.window().base().0 + (1 << 20) - 8);
    assert_eq!(code(npu.read(outside, &mut bytes)), ErrorCode::DEVICE_RANGE);
    assert_eq!(code(npu.write(DeviceAddr(0), &[0])), ErrorCode::DEVICE_RANGE);
}

#[test]
fn tokens_name_their_slot_and_never_come_again() {
    let npu = npu(1 << 20);
    let addr = npu.alloc(4096, 64).unwrap();
    let mut tokens = HashSet::new();
    for round in 0..3000_u32 {
        let region = npu.register(addr, 4096, Access::all()).unwrap();
        assert_eq!((RegionSlot::index(region.token), region.generation), (0, 2 * round + 1));
        assert!(region.token != 0 && tokens.insert(region.token));
        npu.deregister(region.token).unwrap();
        assert_eq!(code(npu.deregister(region.token)), ErrorCode::DEVICE_HANDLE);
    }
    assert_eq!(code(npu.register(addr, 0, Access::READ)), ErrorCode::DEVICE_ARGUMENT);
    assert_eq!(code(npu.register(addr, 1 << 20, Access::READ)), ErrorCode::DEVICE_RANGE);
}

#[test]
fn every_table_has_an_end_and_says_so() {
    let npu = npu(4 << 20);
    let addr = npu.alloc(64, 64).unwrap();
    let regions: Vec<_> =
        (0..npu::MAX_REGIONS).map(|_| npu.register(addr, 64, Access::READ).unwrap()).collect();
    assert_eq!(code(npu.register(addr, 64, Access::READ)), ErrorCode::REGIONS_FULL);
    npu.deregister(regions[512].token).unwrap();
    assert_eq!(RegionSlot::index(npu.register(addr, 64, Access::READ).unwrap().token), 512);

    let thread = || npu.create_queue(QueueKind::Thread, 4, 0);
    for expected in 0..512 {
        assert_eq!(thread().unwrap().0, expected);
    }
    let free = npu.free_bytes();
    assert_eq!(code(thread()), ErrorCode::QUEUES_FULL);
    let link = |protocol| npu.connect(Link { peer_npu: 0, protocol, depth: 4 });
    assert_eq!(code(link(Protocol::Ub)), ErrorCode::QUEUES_FULL);
    assert_eq!(npu.free_bytes(), free, "a refusal keeps nothing");

    for expected in 0..1024 {
        assert_eq!(link(Protocol::Hccs).unwrap().index, expected);
    }
    assert_eq!(code(link(Protocol::Hccs)), ErrorCode::CHANNELS_FULL);

    for expected in 0..64 {
        assert_eq!(npu.alloc_host_notify().unwrap(), expected);
    }
    assert_eq!(code(npu.alloc_host_notify()), ErrorCode::HOST_NOTIFIES_FULL);
    npu.free_host_notify(9).unwrap();
    assert_eq!(code(npu.free_host_notify(9)), ErrorCode::DEVICE_HANDLE);
    assert_eq!(npu.alloc_host_notify().unwrap(), 9);

    assert_eq!(npu.alloc_notifies(8000).unwrap(), 0..8000);
    assert_eq!(code(npu.alloc_notifies(193)), ErrorCode::NOTIFIES_FULL);
    assert_eq!(npu.alloc_notifies(192).unwrap(), 8000..8192);
    assert_eq!(code(npu.alloc_notifies(0)), ErrorCode::DEVICE_ARGUMENT);
    assert_eq!(code(npu.free_notifies(1)), ErrorCode::DEVICE_HANDLE);
    npu.free_notifies(0).unwrap();
    assert_eq!(npu.alloc_notifies(1).unwrap(), 0..1);
}

#[test]
fn notifies_taken_again_are_clear() {
    let npu = npu(1 << 20);
    let taken = npu.alloc_notifies(4).unwrap();
    assert!(npu.set_notify(taken.start + 2));
    npu.free_notifies(taken.start).unwrap();
    assert_eq!(npu.alloc_notifies(4).unwrap(), taken);
    assert!(npu.set_notify(taken.start + 2), "it was clear");
}

#[test]
fn queues_and_channels_are_checked_and_released() {
    let npu = npu(1 << 20);
    let free = npu.free_bytes();
    for depth in [0, 3, 1 << 17] {
        assert_eq!(code(npu.create_queue(QueueKind::Thread, depth, 0)), ErrorCode::DEVICE_ARGUMENT);
    }
    assert_eq!(code(npu.create_queue(QueueKind::Thread, 1 << 16, 0)), ErrorCode::DEVICE_MEMORY_FULL);
    let link = |peer_npu, depth| npu.connect(Link { peer_npu, protocol: Protocol::Roce, depth });
    assert_eq!(code(link(1, 4)), ErrorCode::DEVICE_ARGUMENT);
    assert_eq!(code(link(0, 5)), ErrorCode::DEVICE_ARGUMENT);
    let channel = link(0, 4).unwrap();
    assert_eq!((channel.index, channel.slot.max_len), (0, npu::roce::MAX_LEN));
    assert_eq!(channel.ring, Some(npu.ring(channel.queue.unwrap()).unwrap()));
    npu.disconnect(0).unwrap();
    assert_eq!(code(npu.disconnect(0)), ErrorCode::DEVICE_HANDLE);
    assert_eq!(code(npu.ring(channel.queue.unwrap())), ErrorCode::DEVICE_HANDLE);
    assert_eq!(code(npu.destroy_queue(channel.queue.unwrap())), ErrorCode::DEVICE_HANDLE);
    assert_eq!(npu.free_bytes(), free);
}

#[test]
fn launches_fill_the_mailbox_and_are_answered_in_order() {
    let npu = npu(1 << 20);
    let args = |sequence| LaunchArgs { sequence, ..LaunchArgs::default() }.sealed();
    let tickets: Vec<_> = (0..16).map(|sequence| npu.post_launch(&args(sequence)).unwrap()).collect();
    assert_eq!(code(npu.post_launch(&args(16))), ErrorCode::LAUNCHES_FULL);
    assert_eq!(npu.window().word(npu::LAUNCH_TAIL).load(Ordering::Acquire), 16);
    let mut bytes = [0; size_of::<LaunchArgs>()];
    npu.window().read(npu::LAUNCHES + 3 * 256, &mut bytes);
    assert_eq!(LaunchArgs::read_from_bytes(&bytes).unwrap(), args(3));

    assert_eq!(npu.status(tickets[0]), None);
    let answer = Status { sequence: 0, code: 2010, sqes: 40, ..Status::default() };
    npu.window().write(npu::STATUSES, answer.as_bytes());
    npu.window().word(npu::LAUNCH_HEAD).store(1, Ordering::Release);
    assert_eq!((npu.status(tickets[0]), npu.status(tickets[1])), (Some(answer), None));
    assert!(npu.post_launch(&args(16)).is_ok());
}

#[test]
fn the_first_notify_that_is_set_is_found_within_its_range() {
    let npu = npu(1 << 20);
    for set in 3..9 {
        npu.set_notify(set);
        for start in 0..12 {
            for end in start..12 {
                let expected = (start..end).contains(&set).then_some(set);
                assert_eq!(npu.first_set(start..end), expected, "{set} in {start}..{end}");
            }
        }
        npu.window().half(npu::NOTIFIES + 4 * u64::from(set)).store(0, Ordering::Release);
    }
    npu.set_notify(8191);
    assert_eq!(npu.first_set(0..8192), Some(8191));
}
