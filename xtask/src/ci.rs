//! Every check of the project, one named command each.
//!
//! All of them run, whatever the first ones say; the end lists what failed with the command that repeats it.

use std::process::Command;
use std::time::Instant;

use anyhow::{Result, bail};

use crate::{command, firmware, fuzz, image, layers, qemu, setup, shared_object, size, test, zoo};

/// Runs every check.
///
/// # Errors
/// When one of them fails.
pub(crate) fn run() -> Result<()> {
    let mut checks = Checks::default();
    checks.command("format", command::cargo("fmt").args(["--all", "--check"]));
    checks.task("layers", "cargo xtask ci", layers::check);
    checks.command(
        "lints",
        command::cargo("clippy").args(["--workspace", "--all-targets", "--", "-D", "warnings"]),
    );
    checks.command(
        "documentation",
        command::cargo("doc")
            .args(["--workspace", "--no-deps", "--document-private-items"])
            .env("RUSTDOCFLAGS", "-D warnings"),
    );
    checks.task("set-up", "cargo xtask setup", setup::run);
    let mut image = None;
    checks.task("image", "cargo xtask image", || {
        image = Some(image::build()?);
        Ok(())
    });
    if image.is_some() {
        checks.task("image lints", "cargo xtask ci", firmware::lint);
        checks.task("image size", "cargo xtask size", || size::run(&size::Options::default()));
        checks.task("image boot", "cargo xtask qemu", qemu::run);
    }
    let mut objects = None;
    checks.task("shared objects", "cargo xtask image --so", || {
        objects = Some(shared_object::build()?);
        Ok(())
    });
    if objects.is_some() {
        checks.task("shared object lints", "cargo xtask ci", shared_object::lint);
        checks.task("shared object size", "cargo xtask ci", shared_object::report);
    }
    checks.command("tests", &mut test::tests(image.as_deref(), objects.as_deref()));
    checks.command("constant hash", &mut test::one_bucket());
    checks.command("memory orderings", &mut test::models());
    checks.task("fuzz targets", "cargo xtask fuzz", fuzz::check);
    checks.task("planted defects", "cargo xtask zoo --sample", || zoo::run(&zoo::Options::sample()));
    checks.finish()
}

#[derive(Default)]
struct Checks {
    failed: Vec<String>,
}

impl Checks {
    fn command(&mut self, name: &str, command: &mut Command) {
        let repeat = command::line(command);
        self.task(name, &repeat, || command::run(command));
    }

    fn task(&mut self, name: &str, repeat: &str, check: impl FnOnce() -> Result<()>) {
        println!("\n== {name}: {repeat}");
        let start = Instant::now();
        let outcome = check();
        let seconds = start.elapsed().as_secs();
        match outcome {
            Ok(()) => println!("== {name}: passed in {seconds} s"),
            Err(error) => {
                println!("== {name}: FAILED in {seconds} s\n{error:#}");
                self.failed.push(format!("{name}: repeat with `{repeat}`"));
            }
        }
    }

    fn finish(self) -> Result<()> {
        if !self.failed.is_empty() {
            bail!("{} checks failed\n  {}", self.failed.len(), self.failed.join("\n  "));
        }
        println!("\nall checks passed");
        Ok(())
    }
}
