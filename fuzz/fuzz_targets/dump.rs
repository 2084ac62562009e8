//! Dumps of ranks: refused, or explained; what is read writes the same bytes again.
//!
//! The input is what lies between head and checksum, which are made right, so that what the checksum protects is reached.
//! Each input is also tried as it is.
#![no_main]

use host_launcher::diagnosis::dump::{MAGIC, VERSION};
use host_launcher::diagnosis::offline;
use host_launcher::diagnosis::snapshot::Snapshot;
use libfuzzer_sys::fuzz_target;

static CRC32C: crc::Crc<u32, crc::Table<16>> = crc::Crc::<u32, crc::Table<16>>::new(&crc::CRC_32_ISCSI);

fn check(bytes: &[u8]) {
    let Ok(snapshot) = Snapshot::from_bytes(bytes) else { return };
    assert_eq!(Snapshot::from_bytes(&snapshot.to_bytes()).expect("its own bytes"), snapshot);
    drop(offline::explain(vec![snapshot]));
}

fuzz_target!(|data: &[u8]| {
    check(data);
    let mut dump = [&MAGIC[..], &VERSION.to_le_bytes(), data].concat();
    dump.extend(CRC32C.checksum(&dump).to_le_bytes());
    check(&dump);
});
