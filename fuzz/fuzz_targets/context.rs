//! The context decoder: never panics, and what it accepts encodes to the same bytes.
//!
//! Each input is tried as it is, and once more with magic, version, length and checksums made right, so that the
//! checks behind them are reached.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::context::{Context, ContextHeader, HEADER_BYTES, MAGIC};
use wire::{ABI_MAJOR, ABI_MINOR};
use zerocopy::{FromBytes, IntoBytes};

const CRC32C: crc::Crc<u32> = crc::Crc::<u32>::new(&crc::CRC_32_ISCSI);

fn check(bytes: &[u8]) {
    match Context::parse(bytes) {
        Ok(context) => {
            let mut again = vec![0; bytes.len()];
            assert_eq!(context.encode(&mut again), Ok(bytes.len()));
            assert_eq!(again, bytes);
        }
        Err(error) => assert!(error.offset as usize <= bytes.len() && error.code.info().is_some()),
    }
}

fn seal(bytes: &mut [u8]) {
    let total_len = bytes.len() as u32;
    let Some((head, body)) = bytes.split_at_mut_checked(HEADER_BYTES) else { return };
    let Ok(header) = ContextHeader::mut_from_bytes(head) else { return };
    (header.magic, header.abi_major, header.abi_minor) = (MAGIC, ABI_MAJOR, ABI_MINOR);
    (header.total_len, header.header_crc, header.body_crc) = (total_len, 0, CRC32C.checksum(body));
    header.header_crc = CRC32C.checksum(header.as_bytes());
}

fuzz_target!(|data: &[u8]| {
    let mut words = vec![0_u64; data.len().div_ceil(8)];
    let bytes = &mut words.as_mut_bytes()[..data.len()];
    bytes.copy_from_slice(data);
    check(bytes);
    seal(bytes);
    check(bytes);
});
