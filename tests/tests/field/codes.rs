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
