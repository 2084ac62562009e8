//! Algorithm files (MSCCL XML): refused with line and column, or lowered to scripts that their own check accepts.
#![no_main]

use algorithm_file::AlgorithmFile;
use libfuzzer_sys::fuzz_target;
use wire::script::{Script, ScriptEntry};

fuzz_target!(|text: &str| {
    let Ok(file) = AlgorithmFile::parse(text) else { return };
    assert!(file.works(false) || file.works(true), "it is carried out somewhere");
    for in_place in [false, true] {
        let Ok(scripts) = file.scripts(in_place) else { continue };
        for script in scripts {
            let entries: &[ScriptEntry] = &script.entries;
            assert_eq!(
                Script::new(&script.header, entries).map(|read| read.entries().len()),
                Ok(entries.len())
            );
        }
    }
});
