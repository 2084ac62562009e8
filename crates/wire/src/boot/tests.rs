use zerocopy::IntoBytes;

use super::{BootFlags, BootInfo, CoreState, MAX_CORES, WindowPlace};
use crate::{DeviceAddr, ErrorCode};

const MIB: u64 = 1 << 20;

fn window(index: u64) -> WindowPlace {
    WindowPlace { device_addr: DeviceAddr(0x1_0000_0000 * (index + 1)), offset: index * MIB, len: MIB }
}

fn good() -> BootInfo {
    BootInfo::new(64 * MIB, 8 * MIB, &[window(0), window(1)])
}

#[test]
fn a_block_has_the_documented_bytes() {
    let block = good();
    let bytes = block.as_bytes();
    assert_eq!(&bytes[..8], b"AICPBOOT");
    assert_eq!(&bytes[8..16], [1, 0, 0, 0, 2, 0, 0, 0], "version 1.0, two cores");
    assert_eq!(
        &bytes[16..40],
        [0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0x44, 0, 0, 0, 0, 0, 0, 0x80, 0, 0, 0, 0, 0]
    );
    assert_eq!(
        &bytes[40 + 24..40 + 48],
        [0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0, 0, 0, 0]
    );
}

#[test]
fn a_good_block_names_its_windows() {
    assert_eq!(good().check(), Ok(&[window(0), window(1)][..]));
    let flagged = BootInfo { flags: 3, ..good() };
    assert!(flagged.check().is_ok());
    assert_eq!(flagged.flags(), BootFlags::COUNT | BootFlags::SLEEP);
    let full: [WindowPlace; MAX_CORES] =
        core::array::from_fn(|i| WindowPlace { len: 4096, ..window(i as u64 % 8) });
    assert_eq!(BootInfo::new(4 * MIB, 8 * MIB, &full).check().map(<[_]>::len), Ok(16));
}

#[test]
fn another_version_is_refused() {
    assert!(!BootInfo { magic: 0, ..good() }.is_present());
    for block in [
        BootInfo { magic: 0, ..good() },
        BootInfo { abi_major: 2, ..good() },
        BootInfo { abi_minor: 1, ..good() },
    ] {
        assert_eq!(block.check(), Err(ErrorCode::BOOT_ABI));
    }
}

#[test]
fn every_field_out_of_range_is_refused() {
    let with = |change: WindowPlace| BootInfo::new(64 * MIB, 8 * MIB, &[window(0), change]);
    let cases = [
        ("no core", BootInfo::new(64 * MIB, 8 * MIB, &[])),
        ("too many cores", BootInfo::new(64 * MIB, 8 * MIB, &[window(0); MAX_CORES + 1])),
        ("no room for the image", BootInfo::new(2 * MIB, 8 * MIB, &[window(0)])),
        ("an unknown flag", BootInfo { flags: 4, ..good() }),
        ("memory of an odd size", BootInfo { private_len: 64 * MIB + 4096, ..good() }),
        ("fabric of an odd size", BootInfo { fabric_len: 8 * MIB + 100, ..good() }),
        ("fabric elsewhere", BootInfo { fabric_addr: 0x4800_0000, ..good() }),
        ("fabric wraps", BootInfo { fabric_len: u64::MAX - 4095, ..good() }),
        ("window behind the fabric", with(WindowPlace { offset: 8 * MIB, ..window(1) })),
        ("window half outside", with(WindowPlace { len: 8 * MIB, ..window(1) })),
        ("window wraps", with(WindowPlace { offset: u64::MAX - 4095, ..window(1) })),
        ("window unaligned", with(WindowPlace { offset: 64, ..window(1) })),
        ("window of an odd size", with(WindowPlace { len: 100, ..window(1) })),
        ("window of no size", with(WindowPlace { len: 0, ..window(1) })),
        ("device address wraps", with(WindowPlace { device_addr: DeviceAddr(u64::MAX - 4095), ..window(1) })),
    ];
    for (what, block) in cases {
        assert_eq!(block.check(), Err(ErrorCode::BOOT_FIELD), "{what}");
    }
}

#[test]
fn state_numbers_do_not_move() {
    use CoreState::{Faulted, Off, Panicked, Refused, Running};
    for (number, state) in [(0, Off), (1, Running), (2, Refused), (3, Panicked), (4, Faulted)] {
        assert_eq!((state as u64, CoreState::from_number(number)), (number, Some(state)));
    }
    assert_eq!(CoreState::from_number(5), None);
}
