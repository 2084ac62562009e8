//! Captured programs: parsing never panics; what an accepted one launches lies inside the buffers of its replay.
//!
//! Each input is tried as it is and sealed.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::DeviceAddr;
use wire::launch::{Buffer, CacheMode};
use wire::program::{Program, ProgramEntry, ProgramHeader, Replay};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

const REPLAY: Replay = Replay {
    sequence: 5,
    instance: [11, 12],
    epoch: 3,
    cache: CacheMode::On,
    program: (DeviceAddr(0x4000), 256),
    bindings: (DeviceAddr(0x8000), 64),
    start_notify: 103,
    done_notify: 9,
    timeout_ms: 1000,
};

fn check(header: &ProgramHeader, entries: &[ProgramEntry]) {
    let Ok(program) = Program::new(header, entries) else { return };
    assert_eq!(program.len(), entries.len());
    let buffer =
        |slot: u64| Buffer { addr: DeviceAddr(slot << 32), len: 1 << 20, token: 7, ..Buffer::default() };
    let bindings: Vec<Buffer> = (1..=u64::from(header.bindings.min(64))).map(buffer).collect();
    for index in 0..program.len() {
        let Ok(launch) = program.launch(index, &REPLAY, &bindings) else { continue };
        for used in [launch.input, launch.output] {
            let slot = used.addr.0 >> 32;
            assert!((1..=bindings.len() as u64).contains(&slot), "a buffer of the replay");
            assert!((used.addr.0 & 0xffff_ffff) + used.len <= 1 << 20, "inside it");
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let Ok((header, rest)) = ProgramHeader::read_from_prefix(data) else { return };
    let count = rest.len() / size_of::<ProgramEntry>();
    let mut entries = vec![ProgramEntry::new_zeroed(); count];
    entries.as_mut_bytes().copy_from_slice(&rest[..count * size_of::<ProgramEntry>()]);
    check(&header, &entries);
    check(&header.sealed(&entries).expect("short"), &entries);
});
