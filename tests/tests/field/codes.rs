//! Every code of the registry has a test that names it.

use std::fs;
use std::path::{Path, PathBuf};

use graph_verifier::Obligation;
use wire::ErrorCode;

/// Every Rust file of the repository that has tests, and of other files only their tests.
fn tests() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the repository");
    let mut folders: Vec<PathBuf> = vec![root.to_owned()];
    let mut text = String::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder of the repository") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if path.is_dir() {
                if !name.starts_with('.') && !name.starts_with("target") {
                    folders.push(path);
                }
            } else if name.ends_with(".rs") && !path.ends_with("field/codes.rs") {
                let file = fs::read_to_string(&path).expect("a file of the repository");
                let below = path.strip_prefix(root).expect("below the root");
                let is_test =
                    name == "tests.rs" || below.components().any(|part| part.as_os_str() == "tests");
                match file.find("#[cfg(test)]") {
                    _ if is_test => text.push_str(&file),
                    Some(start) => text.push_str(&file[start..]),
                    None => {}
                }
            }
        }
    }
    text
}

/// The name after two colons or an arrow, before anything that could go on with it, or the number after an E. What the verifier
/// refuses is named by its obligation.
fn names(text: &str, code: ErrorCode) -> bool {
    let goes_on = |rest: &str| rest.starts_with(|next: char| next.is_ascii_alphanumeric() || next == '_');
    let named = |name: String| text.match_indices(&name).any(|(at, _)| !goes_on(&text[at + name.len()..]));
    named(format!("::{}", code.name()))
        || named(format!("=> {}", code.name()))
        || Obligation::of(code).is_some_and(|obligation| named(format!("Obligation::{obligation:?}")))
        || text.contains(&format!("E{:04}", code.0))
}

#[test]
fn every_code_has_a_test() {
    let text = tests();
    assert!(text.len() > 100_000, "the tests are found");
    let without: Vec<String> =
        ErrorCode::all().filter(|info| !names(&text, info.code)).map(|info| info.code.to_string()).collect();
    assert!(without.is_empty(), "without a test: {without:?}");
    assert!(!names(&text, ErrorCode(9876)), "a code that does not exist has none");
}

/// The 56 faults of the specification: each has a row that says what answers it, and names a test that exists. So do the
/// rows of `docs/testing.md` about diagnosis and recovery, and every thread's test input T1 to T57 is in this folder.
#[test]
fn every_fault_has_an_answer_and_every_test_input_a_test() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the repository");
    let read = |path: &str| fs::read_to_string(root.join(path)).expect("a file of the repository");
    let (text, document) = (tests() + include_str!("codes.rs"), read("docs/reliability.md"));
    let mut answered = Vec::new();
    for row in document.lines().filter(|row| row.starts_with("| T")) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let [_, numbers, fault, answer, proof, _] = cells[..] else { panic!("four cells: {row}") };
        let numbers: Vec<u32> =
            numbers.split([' ', ',']).filter_map(|word| word.strip_prefix('T')?.parse().ok()).collect();
        let last = if cells[1].contains(" to ") { numbers[1] } else { numbers[0] };
        answered.extend(numbers[0]..=last);
        answered.extend(numbers.iter().copied().skip(1).filter(|number| *number > last));
        assert!(!fault.is_empty() && !answer.is_empty() && !proof.is_empty(), "{row}");
        for named in proof.split('`').skip(1).step_by(2) {
            let function = named.rsplit("::").next().expect("one part at least");
            let is_function = named.contains("::") && function != "*" || function.starts_with("case_");
            assert!(!is_function || text.contains(&format!("fn {function}")), "{named} of {row}");
        }
        for code in
            answer.split(|c: char| !c.is_ascii_alphanumeric()).filter_map(|word| word.strip_prefix('E'))
        {
            let known = code.parse().is_ok_and(|number| ErrorCode(number).info().is_some());
            assert!(known || code.contains('x'), "E{code} of {row}");
        }
    }
    answered.sort_unstable();
    assert_eq!(answered, (1..=56).collect::<Vec<u32>>(), "each fault once");

    // Of the threads' inputs these numbers were never given.
    let missing = [8, 16, 22, 25, 27, 30, 44, 48, 50];
    let mut inputs = String::new();
    for entry in fs::read_dir(root.join("tests/tests/field")).expect("this folder") {
        inputs.push_str(&fs::read_to_string(entry.expect("an entry").path()).expect("a file"));
    }
    for number in (1..=57).filter(|number| !missing.contains(number)) {
        let cited = |line: &str| {
            let name = format!("T{number}");
            let ends = |rest: &str| !rest.starts_with(|next: char| next.is_ascii_digit());
            line.starts_with("///") && line.match_indices(&name).any(|(at, _)| ends(&line[at + name.len()..]))
        };
        assert!(inputs.lines().any(cited), "T{number} has no test here");
    }
}
