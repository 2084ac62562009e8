//! Checks that dependencies between our crates only go down the layers, and that every crate inherits the lints.
//!
//! The layers are those of `docs/adr/0001-layers.md`. Dependencies of tests are free.

use std::fs;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::command;

/// The crates of each layer, lowest first. An arrow goes from a layer to a lower one.
const LAYERS: &[&[&str]] = &[
    &["aicpu-wire", "aicpu-vendor-abi"],
    &["aicpu-hal", "aicpu-task-graph", "aicpu-algorithm-file"],
    &[
        "aicpu-templates",
        "task-cache",
        "aicpu-graph-verifier",
        "aicpu-ring",
        "aicpu-platform-aarch64",
        "aicpu-device-model",
        "aicpu-hcomm-sink",
    ],
    &["aicpu-kernel"],
    &["aicpu-image-elf", "aicpu-image-so", "aicpu-example-all-gather", "host-launcher"],
    &["aicpu-tests", "aicpu-benches", "xtask"],
];

/// Arrows that go down and are forbidden all the same, with the reason.
const FORBIDDEN: &[(&str, &str, &str)] = &[
    ("aicpu-kernel", "aicpu-platform-aarch64", "the kernel knows no platform, only the traits of aicpu-hal"),
    ("aicpu-kernel", "aicpu-device-model", "the kernel knows no platform, only the traits of aicpu-hal"),
    ("aicpu-templates", "aicpu-hal", "templates are pure"),
    ("task-cache", "aicpu-hal", "the cache is pure"),
];

/// Checks the workspace.
///
/// # Errors
/// When a crate is in no layer, an arrow is not allowed, or a crate does not inherit the lints; lists them all.
pub(crate) fn check() -> Result<()> {
    let metadata = command::output(command::cargo("metadata").args(["--no-deps", "--format-version", "1"]))?;
    let metadata: Value = serde_json::from_str(&metadata).context("cargo metadata is no JSON")?;
    let packages = metadata["packages"].as_array().context("cargo metadata lists no packages")?;
    let names: Vec<&str> = packages.iter().filter_map(|package| package["name"].as_str()).collect();
    let mut faults = Vec::new();
    for package in packages {
        let name = package["name"].as_str().unwrap_or_default();
        let manifest = package["manifest_path"].as_str().unwrap_or_default();
        if !inherits_lints(&fs::read_to_string(manifest)?) {
            faults.push(format!("{name} does not inherit the lints: add `[lints] workspace = true`"));
        }
        let dependencies = package["dependencies"].as_array().map(Vec::as_slice).unwrap_or_default();
        let normal = dependencies.iter().filter(|dependency| dependency["kind"].is_null());
        let ours =
            normal.filter_map(|dependency| dependency["name"].as_str()).filter(|to| names.contains(to));
        faults.extend(ours.filter_map(|to| fault(name, to)));
    }
    if !faults.is_empty() {
        bail!("{}", faults.join("\n"));
    }
    println!("{} crates, every arrow goes down", names.len());
    Ok(())
}

/// Returns what is wrong with a dependency of `from` on `to`, if anything.
fn fault(from: &str, to: &str) -> Option<String> {
    let layer = |name: &str| LAYERS.iter().position(|layer| layer.contains(&name));
    if let Some((_, _, why)) = FORBIDDEN.iter().find(|(a, b, _)| (*a, *b) == (from, to)) {
        return Some(format!("{from} -> {to}: {why}"));
    }
    match (layer(from), layer(to)) {
        (Some(from), Some(to)) if from > to => None,
        (Some(upper), Some(lower)) => {
            Some(format!("{from} (layer {upper}) -> {to} (layer {lower}) does not go down"))
        }
        (None, _) => Some(format!("{from} is in no layer: add it to xtask/src/layers.rs")),
        (_, None) => Some(format!("{to} is in no layer: add it to xtask/src/layers.rs")),
    }
}

fn inherits_lints(manifest: &str) -> bool {
    let mut lines = manifest.lines().map(str::trim);
    lines.any(|line| line == "[lints]") && lines.find(|line| !line.is_empty()) == Some("workspace = true")
}

#[cfg(test)]
mod tests {
    use super::{fault, inherits_lints};

    #[test]
    fn arrows_go_down_only() {
        assert_eq!(fault("aicpu-kernel", "aicpu-wire"), None);
        assert!(fault("aicpu-wire", "aicpu-hal").is_some());
        assert!(fault("aicpu-device-model", "aicpu-ring").is_some(), "one layer: the consumer is its own");
        assert!(fault("aicpu-kernel", "aicpu-platform-aarch64").is_some());
        assert!(fault("aicpu-templates", "aicpu-hal").is_some());
        assert!(fault("task-cache", "aicpu-hal").is_some());
        assert!(fault("aicpu-new", "aicpu-wire").is_some());
    }

    #[test]
    fn inherited_lints_are_recognized() {
        assert!(inherits_lints("[package]\nname = \"a\"\n\n[lints]\nworkspace = true\n"));
        assert!(!inherits_lints("[package]\nname = \"a\"\n"));
        assert!(!inherits_lints("[lints]\n[lints.rust]\nworkspace = true\n"));
    }
}
