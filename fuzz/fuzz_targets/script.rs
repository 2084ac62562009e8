//! Scripts of algorithm files as the kernel gets them: refused, or every entry says something and names what exists.
//!
//! Each input is tried as it is and sealed.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::script::{Action, Script, ScriptEntry, ScriptHeader};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

fn check(header: &ScriptHeader, entries: &[ScriptEntry]) {
    let script = match Script::new(header, entries) {
        Ok(script) => script,
        Err((code, at)) => {
            assert!(code.info().is_some() && at <= entries.len() as u64);
            return;
        }
    };
    for entry in script.entries() {
        let said = entry.instruction().expect("every entry of an accepted script says something");
        assert_eq!(said.entry(), *entry);
        assert!(u16::from(said.thread) < header.threads);
        if let Action::Tell { peer, .. } | Action::Await { peer, .. } | Action::Write { peer, .. } =
            said.action
        {
            assert!(peer < header.ranks && peer != header.rank);
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let Ok((header, rest)) = ScriptHeader::read_from_prefix(data) else { return };
    let count = rest.len() / size_of::<ScriptEntry>();
    let mut entries = vec![ScriptEntry::new_zeroed(); count];
    entries.as_mut_bytes().copy_from_slice(&rest[..count * size_of::<ScriptEntry>()]);
    check(&header, &entries);
    if let Ok(sealed) = header.sealed(&entries) {
        check(&sealed, &entries);
    }
});
