//! The shared memory seen by two parties, and the configurations that are refused.

use std::env;
use std::fs::OpenOptions;
use std::path::Path;
use std::process::Command;

use aicpu_device_model::driver::Npu;
use aicpu_device_model::fabric::{BASE_STEP, Fabric, FabricConfig};
use aicpu_device_model::platform::ModelPlatform;
use hal::{Doorbell, Platform, SharedMemory, Trace};
use wire::npu::{self, QueueKind};
use wire::{DeviceAddr, ErrorCode, TraceEvent};

const CONFIG: FabricConfig = FabricConfig::new(2, 1 << 20);
/// Tells the test below that it is the other process, and which file to open.
const OTHER: &str = "AICPU_DEVICE_MODEL_TEST_FABRIC";

#[test]
fn another_process_sees_and_writes_the_same_bytes() {
    if let Some(path) = env::var_os(OTHER) {
        let npu = Npu::new(&Fabric::open(Path::new(&path), &CONFIG).unwrap(), 1);
        let mut bytes = [0; 4];
        let addr = DeviceAddr(npu.window().base().0 + npu::HEAP);
        npu.read(addr, &mut bytes).unwrap();
        assert_eq!(bytes, [1, 2, 3, 4]);
        npu.write(addr, &[5, 6, 7, 8]).unwrap();
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("npus");
    let fabric = Fabric::create_at(&path, &CONFIG).unwrap();
    let npu = Npu::new(&fabric, 1);
    let addr = npu.alloc(4, 64).unwrap();
    npu.write(addr, &[1, 2, 3, 4]).unwrap();
    let name = "another_process_sees_and_writes_the_same_bytes";
    let other =
        Command::new(env::current_exe().unwrap()).args([name, "--exact"]).env(OTHER, &path).output().unwrap();
    assert!(other.status.success(), "{}", String::from_utf8_lossy(&other.stdout));
    let mut bytes = [0; 4];
    npu.read(addr, &mut bytes).unwrap();
    assert_eq!(bytes, [5, 6, 7, 8]);
}

#[test]
fn default_addresses_are_no_offsets_and_no_two_npus_share_them() {
    let fabric = Fabric::create(&CONFIG).unwrap();
    assert_eq!(fabric.window(0).base(), DeviceAddr(BASE_STEP));
    assert_eq!(fabric.window(1).base(), DeviceAddr(2 * BASE_STEP));
    assert_eq!(fabric.window(0).offset(fabric.window(1).base(), 1), None);
    assert_eq!(fabric.window(1).offset(DeviceAddr(2 * BASE_STEP + 8), 8), Some(8));
    assert_eq!(fabric.window(1).offset(DeviceAddr(2 * BASE_STEP + (1 << 20) - 8), 9), None);
    assert_eq!(fabric.window(0).offset(DeviceAddr(BASE_STEP + 1), u64::MAX), None);
}

#[test]
fn bad_configurations_are_refused() {
    let refused = |config: FabricConfig| Fabric::create(&config).unwrap_err().code();
    let argument = ErrorCode::DEVICE_ARGUMENT;
    assert_eq!(refused(FabricConfig::new(0, 1 << 20)), argument);
    assert_eq!(refused(FabricConfig::new(4097, 1 << 20)), argument);
    assert_eq!(refused(FabricConfig::new(1, (1 << 20) + 64)), argument);
    assert_eq!(refused(FabricConfig::new(1, npu::HEAP)), argument);
    assert_eq!(refused(FabricConfig::new(4096, 1 << 60)), argument);
    assert_eq!(refused(FabricConfig { bases: vec![DeviceAddr(0)], ..CONFIG }), argument);
    assert_eq!(refused(FabricConfig { bases: vec![DeviceAddr(0), DeviceAddr(64)], ..CONFIG }), argument);
    let wraps = DeviceAddr(u64::MAX - 0xffff);
    assert_eq!(refused(FabricConfig { bases: vec![DeviceAddr(0), wraps], ..CONFIG }), argument);
}

#[test]
fn a_file_of_another_size_or_none_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("npus");
    assert_eq!(Fabric::open(&path, &CONFIG).unwrap_err().code(), ErrorCode::DEVICE_MEMORY);
    let fabric = Fabric::create_at(&path, &CONFIG).unwrap();
    assert_eq!(fabric.file().metadata().unwrap().len(), 2 << 20);
    assert_eq!(Fabric::create_at(&path, &CONFIG).unwrap_err().code(), ErrorCode::DEVICE_MEMORY);
    OpenOptions::new().write(true).open(&path).unwrap().set_len((2 << 20) - 1).unwrap();
    let message = Fabric::open(&path, &CONFIG).unwrap_err().to_string();
    assert_eq!(message, "the shared memory has 2097151 bytes, the configuration means 2097152");
}

#[test]
fn the_platform_reaches_its_window_and_nothing_else() {
    let fabric = Fabric::create(&CONFIG).unwrap();
    let npu = Npu::new(&fabric, 1);
    let mut platform = ModelPlatform::new(&fabric, 1);
    let base = platform.window();
    assert_eq!(base, DeviceAddr(2 * BASE_STEP));
    let at = |offset| DeviceAddr(base.0 + offset);
    platform.store(at(npu::HEARTBEAT), 77).unwrap();
    assert_eq!(platform.load(at(npu::HEARTBEAT)), Ok(77));
    let refused = Err(ErrorCode::CONTEXT_ADDRESS);
    assert_eq!(platform.load(at(4)), refused);
    assert_eq!(platform.load(at(1 << 20)), refused);
    assert_eq!(platform.load(fabric.window(0).base()), refused);
    assert_eq!(platform.write(at((1 << 20) - 1), &[0; 2]), Err(ErrorCode::CONTEXT_ADDRESS));
    assert_eq!(platform.read(DeviceAddr(0), &mut [0; 2]), Err(ErrorCode::CONTEXT_ADDRESS));

    let queue = npu.create_queue(QueueKind::Thread, 4, 0).unwrap();
    platform.ring(queue.0, 3);
    platform.ring(u16::MAX, 3);
    let doorbell = npu.window().word(npu::DOORBELLS + 8 * u64::from(queue.0));
    assert_eq!(doorbell.load(core::sync::atomic::Ordering::Acquire), 3);
}

#[test]
fn the_trace_keeps_the_newest_events() {
    let fabric = Fabric::create(&CONFIG).unwrap();
    let npu = Npu::new(&fabric, 0);
    let mut platform = ModelPlatform::new(&fabric, 0);
    assert!(npu.trace().is_empty());
    for first in 0..npu::TRACE_DEPTH + 2 {
        platform.event(TraceEvent { first, ..TraceEvent::default() });
    }
    let events = npu.trace();
    assert_eq!(events.len(), 1024);
    assert_eq!((events[0].first, events[1023].first), (2, 1025));
}
