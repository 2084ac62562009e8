//! Kernel params: every field that cannot be is refused with its code.

use aicpu_wire::param::KernelParam;
use aicpu_wire::{ABI_MAJOR, DeviceAddr, ErrorCode};

fn good() -> KernelParam {
    let mut comm = [0; 128];
    comm[..127].fill(b'c');
    KernelParam {
        magic: KernelParam::MAGIC,
        abi: ABI_MAJOR,
        size: 256,
        args: DeviceAddr(0x100),
        threads: DeviceAddr(0x200),
        channels: DeviceAddr(0x300),
        thread_count: 3,
        channel_count: 7,
        host_thread: 9,
        flags: KernelParam::REDUCES_ALL,
        acquire_ms: 5,
        comm,
        ..KernelParam::default()
    }
}

#[test]
fn a_good_param_means_what_it_says() {
    let param = good();
    let parsed = param.parse().expect("good");
    assert_eq!((parsed.args, parsed.host_thread, parsed.acquire_ms), (DeviceAddr(0x100), 9, 5));
    assert_eq!((parsed.threads, parsed.channels), ((DeviceAddr(0x200), 3), (DeviceAddr(0x300), 7)));
    assert!(parsed.reduces_all);
    assert_eq!(parsed.comm.to_bytes(), [b'c'; 127]);
    let alone = KernelParam { channel_count: 0, channels: DeviceAddr(0), flags: 0, ..good() };
    assert!(!alone.parse().expect("one rank has no channels").reduces_all);
    let fenced = KernelParam { flags: KernelParam::FENCES, ..good() };
    let fenced = fenced.parse().expect("a flag of its own");
    assert_eq!((fenced.fences, fenced.reduces_all), (true, false));
}

#[test]
fn each_bad_field_has_its_code() {
    let cases = [
        (KernelParam { magic: 0, ..good() }, ErrorCode::PARAM_MAGIC),
        (KernelParam { abi: ABI_MAJOR + 1, ..good() }, ErrorCode::PARAM_VERSION),
        (KernelParam { size: 255, ..good() }, ErrorCode::PARAM_FIELD),
        (KernelParam { flags: 4, ..good() }, ErrorCode::PARAM_FIELD),
        (KernelParam { reserved: [0, 0, 1, 0, 0], ..good() }, ErrorCode::PARAM_FIELD),
        (KernelParam { thread_count: 0, ..good() }, ErrorCode::PARAM_FIELD),
        (KernelParam { channels: DeviceAddr(0), ..good() }, ErrorCode::PARAM_FIELD),
        (KernelParam { comm: [0; 128], ..good() }, ErrorCode::PARAM_FIELD),
        (KernelParam { comm: [1; 128], ..good() }, ErrorCode::PARAM_FIELD),
    ];
    for (index, (param, code)) in cases.iter().enumerate() {
        assert_eq!(param.parse().expect_err("bad"), *code, "case {index}");
    }
}
