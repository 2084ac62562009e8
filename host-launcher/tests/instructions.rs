//! The kernel's instructions per descriptor are those on record, to the instruction.
//!
//! Needs the image in `AICPU_IMAGE_ELF`, which `cargo xtask test` builds and names; without it nothing is tested. The
//! record (`tests/golden/instructions.txt`) holds for one compiler; with another one it is only tested that two runs
//! agree. To record anew, delete the file and run this test once with `AICPU_TS_WRITE_MISSING_GOLDEN_FILES` set.

use core::fmt::Write as _;
use std::path::Path;

use host_launcher::image::Image;
use host_launcher::qemu::Options;
use host_launcher::qemu::instructions::{Count, count};

/// Returns the compiler that made an image, as its debug information names it.
fn compiler(image: &[u8]) -> String {
    let start = image.windows(14).position(|bytes| bytes == b"rustc version ").expect("debug information");
    let name = image[start..].split_inclusive(|byte| *byte == b')').next().expect("version (commit date)");
    String::from_utf8_lossy(name).into_owned()
}

fn record(compiler: &str, counts: &[Count]) -> String {
    let mut text = format!("compiler {compiler}\n");
    for Count { name, descriptors, instructions } in counts {
        let _ = writeln!(text, "{name} {descriptors} {instructions}");
    }
    text
}

/// Says what differs, line by line: `expand/nhr-8: 46 descriptors, 17397 -> 17420 instructions (grew)`.
fn changes(recorded: &str, now: &[Count]) -> String {
    let mut text = String::new();
    for Count { name, descriptors, instructions } in now {
        let line = recorded.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        let old = line.and_then(|line| line.split_once(' '));
        let old = old.and_then(|(of, sum)| Some((of.parse::<u64>().ok()?, sum.parse::<u64>().ok()?)));
        let _ = match old {
            None => writeln!(
                text,
                "{name}: {descriptors} descriptors, {instructions} instructions (not on record)"
            ),
            Some(old) if old == (*descriptors, *instructions) => Ok(()),
            Some((of, sum)) => {
                let how = if sum < *instructions { "grew" } else { "shrank" };
                writeln!(
                    text,
                    "{name}: {of} -> {descriptors} descriptors, {sum} -> {instructions} instructions ({how})"
                )
            }
        };
    }
    text
}

#[test]
fn instructions_per_descriptor_are_those_on_record() {
    let Some(path) = std::env::var_os("AICPU_IMAGE_ELF") else {
        eprintln!("skipped: AICPU_IMAGE_ELF names no image; run `cargo xtask test`");
        return;
    };
    let image = || Image::read(Path::new(&path)).unwrap();
    let counts = count(image(), &Options::default()).unwrap();
    let again = count(image(), &Options::default()).unwrap();
    assert_eq!(counts, again, "two runs of one image differ");

    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/instructions.txt");
    let compiler = compiler(image().bytes());
    let now = record(&compiler, &counts);
    if std::env::var_os("AICPU_TS_WRITE_MISSING_GOLDEN_FILES").is_some() && !golden.exists() {
        std::fs::write(&golden, &now).unwrap();
    }
    let recorded = std::fs::read_to_string(&golden).unwrap().replace("\r\n", "\n");
    if recorded.lines().next() != now.lines().next() {
        println!(
            "not compared: the record is of another compiler than {compiler}; these are its counts:\n{now}"
        );
        return;
    }
    assert!(
        recorded == now,
        "{}If that is wanted, record anew (see the head of this file):\n{now}",
        changes(&recorded, &counts)
    );
}

#[test]
fn what_grew_is_named() {
    let count = |instructions| Count { name: "expand/ring-8".to_owned(), descriptors: 60, instructions };
    let recorded = record("some", &[count(100)]);
    assert_eq!(recorded, "compiler some\nexpand/ring-8 60 100\n");
    assert_eq!(changes(&recorded, &[count(100)]), "");
    assert_eq!(
        changes(&recorded, &[count(101)]),
        "expand/ring-8: 60 -> 60 descriptors, 100 -> 101 instructions (grew)\n"
    );
}
