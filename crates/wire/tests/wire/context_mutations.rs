//! Contexts damaged in every small way and in many random ones.
//!
//! Without new checksums all damage is refused. With new checksums the context is refused at an offset inside it, or
//! it is accepted and encodes to the very same bytes: nothing that was accepted has been overlooked.

use core::cell::Cell;

use aicpu_wire::ErrorCode;
use aicpu_wire::context::{Context, ContextError};
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::TestRunner;

use crate::samples::{self, Aligned, TOTAL_LEN, fix_checksums, put_u32};

/// Parses `bytes`; whatever comes out must be consistent.
fn parse(bytes: &[u8]) -> Result<(), ContextError> {
    let aligned = Aligned::new(bytes);
    match Context::parse(aligned.bytes()) {
        Ok(context) => {
            assert_eq!(samples::encode(&context), bytes, "canonical");
            Ok(())
        }
        Err(error) => {
            // CAST: lossless, offsets are u32 and usize has 64 bits here.
            assert!(error.offset as usize <= bytes.len(), "{error:?} in {} bytes", bytes.len());
            assert!((2001..=2011).contains(&error.code.0), "{error:?}");
            Err(error)
        }
    }
}

fn contexts() -> [Vec<u8>; 3] {
    samples::contexts().map(|(_, tables)| tables.encode())
}

#[test]
fn case_79_every_truncation() {
    for good in contexts() {
        for len in 0..good.len() {
            let mut bytes = good[..len].to_vec();
            assert_eq!(parse(&bytes).map_err(|error| error.code), Err(ErrorCode::CONTEXT_LENGTH), "{len}");
            if let Ok(total_len) = u32::try_from(len)
                && len > TOTAL_LEN + 4
            {
                put_u32(&mut bytes, TOTAL_LEN, total_len);
            }
            fix_checksums(&mut bytes);
            assert!(parse(&bytes).is_err(), "{len}");
        }
    }
}

#[test]
fn case_80_every_single_bit_flip() {
    for good in contexts() {
        for bit in 0..8 * good.len() {
            let mut bytes = good.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let (code, offset) = match bit / 8 {
                0..8 => (ErrorCode::CONTEXT_MAGIC, 0),
                8..10 => (ErrorCode::CONTEXT_VERSION, 8),
                10..12 => (ErrorCode::CONTEXT_VERSION, 10),
                12..16 => (ErrorCode::CONTEXT_LENGTH, 12),
                16..208 => (ErrorCode::CONTEXT_CHECKSUM, 16),
                _ => (ErrorCode::CONTEXT_CHECKSUM, 20),
            };
            assert_eq!(parse(&bytes), Err(ContextError { code, offset }), "bit {bit}");
        }
    }
}

/// Every bit may flip in the checksums (they are made right again), instance, epoch, device, topology digest, longest
/// transfer, and the first eight data types; in no other byte of the header.
#[test]
fn unconstrained_bytes_of_the_header() {
    for good in contexts() {
        let free = (0..208).filter(|&byte| {
            (0..8).all(|bit| {
                let mut bytes = good.clone();
                bytes[byte] ^= 1 << bit;
                fix_checksums(&mut bytes);
                parse(&bytes).is_ok()
            })
        });
        // Without channels, nothing says which of the first types the links reduce.
        let links = if good[48] == 1 { 192..193 } else { 0..0 };
        assert_eq!(free.collect::<Vec<_>>(), (16..44).chain(52..73).chain(links).collect::<Vec<_>>());
    }
}

#[test]
fn case_80_and_81_with_new_checksums() {
    for good in contexts() {
        let (mut accepted, mut refused) = (0, 0);
        for byte in 0..good.len() {
            let flips = (0..8).map(|bit| good[byte] ^ 1 << bit);
            for value in flips.chain([0x00, 0x01, 0x7f, 0x80, 0xff]) {
                let mut bytes = good.clone();
                bytes[byte] = value;
                assert!(bytes == good || parse(&bytes).is_err(), "byte {byte} = {value:#x}");
                fix_checksums(&mut bytes);
                *(if parse(&bytes).is_ok() { &mut accepted } else { &mut refused }) += 1;
            }
        }
        assert!(accepted > 500 && refused > 500, "{accepted} accepted, {refused} refused");
    }
}

/// One change to a context. Places are taken modulo its length.
#[derive(Clone, Debug)]
enum Mutation {
    Flip(usize, u8),
    Word(usize, u32),
    Double(usize, u64),
    Add(usize, u32),
    Copy { from: usize, to: usize, len: usize },
    Swap { left: usize, right: usize, len: usize },
    Remove { at: usize, len: usize },
    Repeat { at: usize, len: usize },
}

impl Mutation {
    fn apply(&self, bytes: &mut Vec<u8>) {
        let len = bytes.len();
        let place = |at: usize, unit: usize| (at % len) / unit * unit;
        match *self {
            _ if len < 64 => {}
            Self::Flip(at, bit) => bytes[at % len] ^= 1 << bit,
            Self::Word(at, value) => put_u32(bytes, place(at, 4).min(len - 4), value),
            Self::Add(at, value) => {
                let at = place(at, 4).min(len - 4);
                let old = u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
                put_u32(bytes, at, old.wrapping_add(value));
            }
            Self::Double(at, value) => {
                let at = place(at, 8).min(len - 8);
                bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
            }
            Self::Copy { from, to, len: size } => {
                let (from, to) = (place(from, 16).min(len - size), place(to, 16).min(len - size));
                bytes.copy_within(from..from + size, to);
            }
            Self::Swap { left, right, len: size } => {
                let (left, right) = (place(left, 16).min(len - size), place(right, 16).min(len - size));
                for index in 0..size {
                    bytes.swap(left + index, right + index);
                }
            }
            Self::Remove { at, len: size } => {
                let at = place(at, 16).min(len - size);
                bytes.drain(at..at + size);
            }
            Self::Repeat { at, len: size } => {
                let at = place(at, 16).min(len - size);
                let piece = bytes[at..at + size].to_vec();
                bytes.splice(at..at, piece);
            }
        }
    }
}

fn mutation() -> impl Strategy<Value = Mutation> {
    let edges = vec![
        0_u32,
        1,
        3,
        4,
        6,
        9,
        32,
        64,
        207,
        208,
        511,
        512,
        1023,
        1024,
        8191,
        8192,
        65_535,
        65_536,
        1 << 31,
        !0,
    ];
    let word = prop_oneof![4 => select(edges.clone()), 1 => any::<u32>()];
    let wide = prop_oneof![select(edges), any::<u32>()].prop_map(u64::from);
    let double =
        prop_oneof![wide.clone(), wide.clone().prop_map(|value| !value), wide.prop_map(|value| value << 32)];
    let size = select(vec![16_usize, 32, 64]);
    let delta = select(vec![1_u32, 4, 64, u32::MAX, u32::MAX - 3, u32::MAX - 63]);
    let at = 0..2048_usize;
    prop_oneof![
        2 => (at.clone(), 0..8_u8).prop_map(|(at, bit)| Mutation::Flip(at, bit)),
        4 => (at.clone(), word).prop_map(|(at, value)| Mutation::Word(at, value)),
        2 => (at.clone(), double).prop_map(|(at, value)| Mutation::Double(at, value)),
        2 => (at.clone(), delta).prop_map(|(at, value)| Mutation::Add(at, value)),
        1 => (at.clone(), at.clone(), size.clone()).prop_map(|(from, to, len)| Mutation::Copy { from, to, len }),
        1 => (at.clone(), at.clone(), size.clone()).prop_map(|(left, right, len)| Mutation::Swap { left, right, len }),
        1 => (at.clone(), size.clone()).prop_map(|(at, len)| Mutation::Remove { at, len }),
        1 => (at, size).prop_map(|(at, len)| Mutation::Repeat { at, len }),
    ]
}

#[test]
fn a_hundred_thousand_random_mutations() {
    let config = ProptestConfig { cases: 100_000, failure_persistence: None, ..ProptestConfig::default() };
    let contexts = contexts();
    let (accepted, refused) = (Cell::new(0), Cell::new(0));
    let strategy = (0..3_usize, proptest::collection::vec(mutation(), 1..4), any::<bool>());
    let result = TestRunner::new(config).run(&strategy, |(base, mutations, fix_length)| {
        let mut bytes = contexts[base].clone();
        mutations.iter().for_each(|mutation| mutation.apply(&mut bytes));
        let unchanged = bytes == contexts[base];
        prop_assert!(unchanged || parse(&bytes).is_err());
        if let (true, Ok(len)) = (fix_length, u32::try_from(bytes.len())) {
            put_u32(&mut bytes, TOTAL_LEN, len);
        }
        fix_checksums(&mut bytes);
        let counter = if parse(&bytes).is_ok() { &accepted } else { &refused };
        counter.set(counter.get() + 1);
        Ok(())
    });
    result.expect("no mutation breaks a rule");
    let (accepted, refused) = (accepted.get(), refused.get());
    assert!(accepted > 1_000 && refused > 50_000, "{accepted} accepted, {refused} refused");
}
