//! The command line, a word a line: parsed, or refused with a message; never a panic.
#![no_main]

#[expect(dead_code, reason = "the command's own module; what it does with its arguments is not fuzzed")]
#[path = "../../host-launcher/src/bin/aicpu-ts/args.rs"]
mod args;

use core::cell::RefCell;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use clap::{Command, CommandFactory, FromArgMatches};
use libfuzzer_sys::fuzz_target;

thread_local! {
    /// Described once: that takes longer than to parse most command lines.
    static COMMAND: RefCell<Command> = RefCell::new(args::Cli::command());
}

fuzz_target!(|data: &[u8]| {
    let words = data.split(|byte| *byte == b'\n').map(OsStr::from_bytes);
    let line = [OsStr::new("aicpu-ts")].into_iter().chain(words);
    COMMAND.with_borrow_mut(|command| {
        let matches = command.try_get_matches_from_mut(line);
        let parsed = matches.and_then(|mut matches| args::Cli::from_arg_matches_mut(&mut matches));
        if let Err(error) = parsed {
            assert!(!error.format(command).to_string().is_empty());
        }
    });
});
