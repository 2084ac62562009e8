//! Reports what the image costs, and refuses panic paths.
//!
//! Three questions: how large is each section, how deep can each stack get, and can any code reach a panic. The
//! answers come from the linked file itself; see [`calls`] for how it is read and what that cannot see.

mod calls;
mod frame;

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use object::{File, Object, ObjectSection, ObjectSymbol};

use crate::image;
use calls::{Depth, Program};

/// Options of `cargo xtask size`.
#[derive(clap::Args, Default)]
pub(crate) struct Options {
    /// Report on this file instead of building the image
    #[arg(long, value_name = "ELF")]
    pub(crate) image: Option<PathBuf>,
}

/// Entry points of a stack: where it starts to be used, and the linker symbols that bound it.
const STACKS: &[(&str, &str, &str)] = &[
    ("core_entry", "__core_stack_bytes", "one core"),
    ("exception_entry", "__exception_stack_bytes", "exceptions"),
];

/// The same of a shared object, whose note says how much stack a launch may take: there is no symbol for it.
const ENTRY: (&str, u64) = ("AicpuTsLaunch", 16 << 10);

/// Prints the report.
///
/// # Errors
/// When a panic can be reached, or when a stack has no bound or one above half its size.
pub(crate) fn run(options: &Options) -> Result<()> {
    let path = options.image.clone().map_or_else(image::build, Ok)?;
    let bytes = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let file = File::parse(&*bytes).with_context(|| format!("{} is no ELF file", path.display()))?;
    let program = Program::read(&file)?;

    println!("{}", path.display());
    sections(&file);
    let mut faults = Vec::new();
    if program.find(ENTRY.0).is_some() {
        faults.extend(stack_bound(&program, ENTRY.0, ENTRY.1, "one launch"));
    } else {
        faults.extend(STACKS.iter().filter_map(|stack| image_stack(&file, &program, stack)));
    }
    faults.extend(panics(&program));
    if !faults.is_empty() {
        bail!("{}", faults.join("\n       "));
    }
    Ok(())
}

fn sections(file: &File<'_>) {
    for section in file.sections() {
        if calls::is_loaded(section.flags()) && section.size() > 0 {
            let name = section.name().unwrap_or("?");
            println!("  {name:<18} {:>9} bytes at {:#x}", section.size(), section.address());
        }
    }
}

fn image_stack(file: &File<'_>, program: &Program, stack: &(&str, &str, &str)) -> Option<String> {
    let &(entry, size_symbol, name) = stack;
    match file.symbols().find(|symbol| symbol.name() == Ok(size_symbol)) {
        Some(size) => stack_bound(program, entry, size.address(), name),
        None => Some(format!("the image has no symbol {size_symbol}")),
    }
}

fn stack_bound(program: &Program, entry: &str, size: u64, name: &str) -> Option<String> {
    let Some(root) = program.find(entry) else { return Some(format!("the image has no function {entry}")) };
    match program.depth(root) {
        Depth::Bytes { bytes, chain } => {
            let percent = bytes * 100 / size.max(1);
            println!("  stack of {name:<11} {bytes:>7} of {size} bytes ({percent} %) in the deepest chain:");
            for (frame, function) in chain.iter().filter(|(frame, _)| *frame > 0) {
                println!("  {frame:>27}  {function}");
            }
            // The other half is for what the bound cannot see, and for another compiler's frames.
            (bytes > size / 2)
                .then(|| format!("stack of {name}: {bytes} bytes are more than half of its {size}"))
        }
        Depth::Unbounded { why } => Some(format!("stack of {name} has no bound: {why}")),
    }
}

/// Names of functions that mean: a panic was compiled in.
const PANICKING: &[&str] = &[
    "core::panicking::",
    "core::option::unwrap_failed",
    "core::option::expect_failed",
    "core::result::unwrap_failed",
    "core::slice::index::slice_",
    "core::str::slice_error_fail",
    "core::cell::panic_",
    "rust_begin_unwind",
    "rust_panic",
];

fn panics(program: &Program) -> Vec<String> {
    let mut found = Vec::new();
    for (index, function) in program.functions().iter().enumerate() {
        if PANICKING.iter().any(|name| function.name.contains(name)) {
            let callers = program.callers(index);
            // The image's own handler may exist, as long as nothing calls it.
            if !callers.is_empty() || !function.name.contains("rust_begin_unwind") {
                found.push(format!("panic linked: {} <- {}", function.name, callers.join(", ")));
            }
        }
    }
    if found.is_empty() {
        println!("  panic paths        none");
    }
    found
}
