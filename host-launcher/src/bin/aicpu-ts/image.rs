//! `aicpu-ts image`: what a kernel file is.

use core::fmt::Write as _;

use host_launcher::Result;
use host_launcher::image::inspect::Inspection;
use serde_json::json;

use crate::args::ImageCommand;
use crate::output::Output;

pub(crate) fn image(command: &ImageCommand, output: &mut Output) -> Result<()> {
    let ImageCommand::Inspect { file } = command;
    let found = Inspection::read(file)?;
    if output.is_json() {
        output.line(&json!(found));
    } else {
        output.text(&text(&found));
    }
    // Everything is printed; the first refusal is the failure.
    found.refusals.into_iter().next().map_or(Ok(()), Err)
}

fn text(found: &Inspection) -> String {
    let mut text = String::new();
    let none = || "none".to_owned();
    let mut row = |name: &str, value: &str| {
        let _ = writeln!(text, " {name:<14} {value}");
    };
    row("kind", &format!("{} for {}, {} bytes", found.kind, found.machine, found.bytes));
    row("build id", found.build_id.as_deref().unwrap_or("none"));
    row("ABI", found.abi.as_deref().unwrap_or("none"));
    row("stack bound", &found.max_stack.map_or_else(none, |bytes| format!("{bytes} bytes")));
    for section in &found.sections {
        row("section", &format!("{:<18} {:>9} bytes at {:#x}", section.name, section.bytes, section.address));
    }
    for name in &found.exports {
        row("exports", name);
    }
    for symbol in &found.undefined {
        row("asks for", &format!("{}{}", symbol.name, if symbol.weak { " (may be missing)" } else { "" }));
    }
    for name in &found.needed {
        row("needs library", name);
    }
    match found.refusals.len() {
        0 => row("a loader", "has nothing to refuse"),
        _ => found
            .refusals
            .iter()
            .for_each(|error| row("would refuse", &format!("{}: {}", error.code(), error.message()))),
    }
    text
}
