//! `docs/errors.md` describes each code of the registry, once, and says of it what the registry says.
//!
//! What a section says beyond that is for its author; only that no part of it is empty is checked here.

use aicpu_wire::{CodeInfo, ErrorCode};

const DOCUMENT: &str = include_str!("../../../docs/errors.md");
/// The parts of a section, in their order.
const PARTS: [&str; 4] = ["Meaning", "Where", "Causes", "Do"];

/// One section: what stands in its heading, under it, and the beginning of each part.
struct Section<'a> {
    group: &'a str,
    heading: &'a str,
    facts: &'a str,
    parts: Vec<(&'a str, &'a str)>,
}

fn sections() -> Vec<Section<'static>> {
    let mut sections: Vec<Section<'_>> = Vec::new();
    let mut group = "";
    for line in DOCUMENT.lines() {
        if let Some(title) = line.strip_prefix("## ") {
            group = title;
        } else if let Some(heading) = line.strip_prefix("### ") {
            sections.push(Section { group, heading, facts: "", parts: Vec::new() });
        } else if let Some(section) = sections.last_mut() {
            if let Some((name, text)) = line.strip_prefix("- **").and_then(|part| part.split_once(":**")) {
                section.parts.push((name, text.trim()));
            } else if section.facts.is_empty() {
                section.facts = line;
            }
        }
    }
    sections
}

fn registry() -> Vec<&'static CodeInfo> {
    let mut all: Vec<_> = ErrorCode::all().collect();
    all.sort_by_key(|info| info.code);
    all
}

fn facts(info: &CodeInfo) -> String {
    let family = if info.ei == 0 { "no EI".to_owned() } else { format!("EI{:04}", info.ei) };
    format!("`{:?}` · HCCL {} · {family}", info.effect, info.hccl)
}

#[test]
fn every_code_has_its_section_and_every_section_its_code() {
    let described: Vec<_> = sections().iter().map(|section| section.heading.to_owned()).collect();
    let known: Vec<_> = registry().iter().map(|info| info.code.to_string()).collect();
    let missing: Vec<_> = known.iter().filter(|code| !described.contains(code)).collect();
    let stray: Vec<_> = described.iter().filter(|heading| !known.contains(heading)).collect();
    assert!(missing.is_empty() && stray.is_empty(), "without section: {missing:?}; without code: {stray:?}");
    assert_eq!(described, known, "in number order, each once");
}

#[test]
fn every_section_says_what_the_registry_says() {
    let wrong: Vec<_> = sections()
        .iter()
        .zip(registry())
        .filter(|(section, info)| section.heading == info.code.to_string() && section.facts != facts(info))
        .map(|(section, info)| {
            format!("{}: {:?}, the registry has {:?}", section.heading, section.facts, facts(info))
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_section_has_its_parts_and_stands_in_its_group() {
    for section in sections() {
        let names: Vec<_> = section.parts.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, PARTS, "{}", section.heading);
        assert!(section.parts.iter().all(|(_, text)| !text.is_empty()), "{}", section.heading);
        let thousands = section.heading.get(1..2).unwrap_or_default();
        assert!(
            section.group.starts_with(&format!("{thousands}xxx: ")),
            "{} in {:?}",
            section.heading,
            section.group
        );
    }
}

#[test]
fn every_public_number_is_named() {
    for info in registry() {
        let result = format!("| HCCL {} | `HCCL_E_", info.hccl);
        assert!(DOCUMENT.contains(&result), "HcclResult {} has no name", info.hccl);
        let family = format!("| EI{:04} | ", info.ei);
        assert!(info.ei == 0 || DOCUMENT.contains(&family), "EI{:04} has no name", info.ei);
    }
}

#[test]
fn known_codes_are_described_as_decided() {
    let section =
        |code: ErrorCode| sections().into_iter().find(|section| section.heading == code.to_string());
    assert_eq!(
        section(ErrorCode::CONTEXT_MAGIC).map(|section| section.facts),
        Some("`NoEffect` · HCCL 4 · EI0008")
    );
    assert_eq!(
        section(ErrorCode::KERNEL_SILENT).map(|section| section.facts),
        Some("`DeviceLost` · HCCL 4 · no EI")
    );
}
