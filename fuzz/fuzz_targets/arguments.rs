//! The command line, a word a line: parsed, or refused with a message; never a panic.
#![no_main]

#[expect(dead_code, reason = "the command's own module; what it does with its arguments is not fuzzed")]
#[path = "../../host-launcher/src/bin/aicpu-ts/args.rs"]
mod args;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use clap::Parser;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let words = data.split(|byte| *byte == b'\n').map(OsStr::from_bytes);
    if let Err(error) = args::Cli::try_parse_from([OsStr::new("aicpu-ts")].into_iter().chain(words)) {
        assert!(!error.to_string().is_empty());
    }
});
