//! Dumps of ranks: refused, or explained; what is read writes the same bytes again.
//!
//! The input is a dump whose tables, which are long and mostly zero, are given by the words that are not: their number,
//! offset and value of each; then length and text of the host's view; then everything behind the tables. Checksum and
//! lengths are made right, so that what they protect is reached. Each input is also tried as it is.
#![no_main]

use aicpu_fuzz::Bytes;
use host_launcher::diagnosis::dump::{MAGIC, VERSION};
use host_launcher::diagnosis::offline;
use host_launcher::diagnosis::snapshot::Snapshot;
use libfuzzer_sys::fuzz_target;
use wire::npu::HEAP;

static CRC32C: crc::Crc<u32, crc::Table<16>> = crc::Crc::<u32, crc::Table<16>>::new(&crc::CRC_32_ISCSI);

fn check(bytes: &[u8]) {
    let Ok(snapshot) = Snapshot::from_bytes(bytes) else { return };
    let again = snapshot.to_bytes();
    assert_eq!(Snapshot::from_bytes(&again).expect("its own bytes").to_bytes(), again);
    drop(offline::explain(vec![snapshot]));
}

fuzz_target!(|data: &[u8]| {
    check(data);
    let mut bytes = Bytes(data);
    let mut tables = vec![0; HEAP as usize];
    for _ in 0..bytes.half() {
        let at = (u64::from(bytes.half()) * 8 % HEAP) as usize;
        tables[at..at + 8].copy_from_slice(&bytes.word().to_le_bytes());
    }
    let len = usize::from(bytes.half());
    let host = bytes.take(len);
    let mut dump = MAGIC.to_vec();
    dump.extend(VERSION.to_le_bytes());
    dump.extend((host.len() as u32).to_le_bytes());
    dump.extend(host);
    dump.extend(tables);
    dump.extend(bytes.0);
    dump.extend(CRC32C.checksum(&dump).to_le_bytes());
    check(&dump);
});
