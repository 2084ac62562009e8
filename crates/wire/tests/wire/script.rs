//! Scripts: entries say what was meant, and every fault has its code.

use aicpu_wire::ErrorCode;
use aicpu_wire::script::{MAX_ENTRIES, Script, ScriptEntry, ScriptHeader};
use zerocopy::{FromBytes, IntoBytes};

use crate::samples::{instructions, script};

#[test]
fn entries_say_what_was_meant() {
    for instruction in instructions() {
        assert_eq!(instruction.entry().instruction(), Some(instruction));
    }
    let nothing = [0, 12, 255].map(|action| ScriptEntry { action, ..ScriptEntry::default() });
    assert!(nothing.iter().all(|entry| entry.instruction().is_none()));
}

#[test]
fn every_flipped_bit_is_refused() {
    let (header, entries) = script();
    assert!(Script::new(&header, &entries).is_ok());
    let bytes = [header.as_bytes(), entries.as_bytes()].concat();
    for bit in 0..bytes.len() * 8 {
        let mut bytes = bytes.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        let header = ScriptHeader::read_from_bytes(&bytes[..64]).unwrap();
        let entries = bytes[64..].chunks(16).map(|bytes| ScriptEntry::read_from_bytes(bytes).unwrap());
        assert!(Script::new(&header, &entries.collect::<Vec<_>>()).is_err(), "bit {bit}");
    }
}

#[test]
fn each_fault_has_its_code_also_under_a_right_digest() {
    let refused = |change: &dyn Fn(&mut ScriptHeader, &mut [ScriptEntry])| {
        let (mut header, mut entries) = script();
        change(&mut header, &mut entries);
        let header = header.sealed(&entries).unwrap();
        Script::new(&header, &entries).unwrap_err()
    };
    let format = (ErrorCode::SCRIPT_FORMAT, 0);
    assert_eq!(refused(&|header, _| header.rank = 4), format);
    assert_eq!(refused(&|header, _| header.op = 99), format);
    assert_eq!(refused(&|header, _| header.parts = 0), format);
    assert_eq!(refused(&|header, _| header.threads = 0), format);
    assert_eq!(refused(&|header, _| header.in_place = 2), format);
    assert_eq!(refused(&|header, _| header.reserved = [0, 1]), format);
    let entry = |index| (ErrorCode::SCRIPT_ENTRY, index);
    // An all-gather has one block of input and four of output.
    assert_eq!(refused(&|_, entries| entries[0].src = 1), entry(0), "block of the input");
    assert_eq!(refused(&|_, entries| entries[0].dst = 4), entry(0), "block of the output");
    assert_eq!(refused(&|_, entries| entries[1].dst = 0x0507), entry(1), "slot");
    assert_eq!(refused(&|_, entries| entries[1].part = 0x0305), entry(1), "part");
    assert_eq!(refused(&|_, entries| entries[2].other = 4), entry(2), "peer");
    assert_eq!(refused(&|_, entries| entries[3].other = 1), entry(3), "itself");
    assert_eq!(refused(&|_, entries| entries[4].thread = 5), entry(4), "thread");
    assert_eq!(refused(&|_, entries| entries[9].src = 0x0709), entry(9), "notify of a sub thread");
    assert_eq!(
        refused(&|_, entries| (entries[9].other, entries[9].src) = (0, 8)),
        entry(9),
        "of the main thread"
    );
    assert_eq!(refused(&|_, entries| entries[10].reserved1 = 1), entry(10), "reserved");
    assert_eq!(refused(&|_, entries| entries[0].memory = 0x30), entry(0), "no buffer");
    // Found by the fuzz target: a task has one entry, so what it does not use is zero.
    assert_eq!(refused(&|_, entries| entries[4].dst = 35), entry(4), "place of a signal to a peer");
    assert_eq!(refused(&|_, entries| entries[0].other = 1), entry(0), "peer of a copy");
    let (header, mut entries) = script();
    entries[0].part ^= 1;
    assert_eq!(Script::new(&header, &entries).unwrap_err(), (ErrorCode::SCRIPT_DIGEST, 0), "changed since");
    let many = vec![ScriptEntry::default(); MAX_ENTRIES + 1];
    assert_eq!(header.sealed(&many), Err(ErrorCode::SCRIPT_CAPACITY));
}
