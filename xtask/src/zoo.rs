//! The bug zoo: plants each defect of a list, one at a time, and fails unless the test named for it turns red.
//!
//! Defects are planted in a copy of the workspace, so nothing of them is in what is shipped
//! (`docs/adr/0036-defects-are-planted-in-a-copy.md`). A defect counts as found when its test passes without it, still
//! compiles with it, and then fails by itself: neither a build that breaks nor a test that has to be stopped counts.

mod defects;

use core::fmt;
use core::time::Duration;
use std::fs;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

use crate::{command, workspace};
use defects::DEFECTS;

/// How long a test may run; the slowest of them takes a tenth of it.
const LIMIT: Duration = Duration::from_secs(240);

/// Options of `cargo xtask zoo`.
#[derive(clap::Args, Default)]
pub(crate) struct Options {
    /// Only these defects, by name
    names: Vec<String>,
    /// Only those in crates that build within seconds
    #[arg(long)]
    sample: bool,
    /// Print the list and plant nothing
    #[arg(long)]
    list: bool,
}

impl Options {
    /// What runs with every check.
    pub(crate) fn sample() -> Self {
        Self { sample: true, ..Self::default() }
    }
}

/// One planted defect, and the test that must find it.
struct Defect {
    /// Name, as in the specification's list, with hyphens.
    name: &'static str,
    /// File it is planted in, from the workspace's root.
    file: &'static str,
    /// What stands there, once, and what is put in its place.
    right: &'static str,
    wrong: &'static str,
    /// The test: package, target (`lib` or the name of a test target) and full name.
    test: (&'static str, &'static str, &'static str),
    /// Whether it belongs to the sample.
    sample: bool,
}

/// Plants the defects.
///
/// # Errors
/// When one survives, with the names of those that do.
pub(crate) fn run(options: &Options) -> Result<()> {
    let asked = |defect: &&Defect| options.names.is_empty() || options.names.iter().any(|n| n == defect.name);
    let chosen: Vec<&Defect> = DEFECTS.iter().filter(asked).filter(|d| d.sample || !options.sample).collect();
    if let Some(name) = options.names.iter().find(|name| !DEFECTS.iter().any(|defect| defect.name == **name))
    {
        bail!("there is no defect `{name}`; `cargo xtask zoo --list` names them");
    }
    if options.list {
        for Defect { name, file, test: (package, _, test), .. } in chosen {
            println!("{name:<34} {file:<52} {package} {test}");
        }
        return Ok(());
    }
    let copy = workspace::target().join("zoo/workspace");
    mirror(&workspace::root(), &copy)?;
    // All sound tests first: a defect is built once, and what follows it once, not everything between them as well.
    for defect in &chosen {
        let sound = build(defect, &copy).and_then(|()| test(defect, &copy));
        let sound = sound.with_context(|| format!("the test of `{}`", defect.name))?;
        ensure!(sound == Outcome::Survived, "the test of `{}` fails without the defect", defect.name);
    }
    let mut survivors = Vec::new();
    for defect in &chosen {
        let start = Instant::now();
        let outcome =
            plant(defect, &copy).with_context(|| format!("the zoo cannot try `{}`", defect.name))?;
        println!("{:<34} {outcome} ({:.0} s)", defect.name, start.elapsed().as_secs_f64());
        if outcome != Outcome::Found {
            survivors.push(defect.name);
        }
    }
    println!("{} of {} planted defects found", chosen.len() - survivors.len(), chosen.len());
    ensure!(survivors.is_empty(), "not found: {}", survivors.join(", "));
    Ok(())
}

/// What a test did.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Found,
    Survived,
    /// It did not end by itself.
    Hung,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Found => "found",
            Self::Survived => "SURVIVED",
            Self::Hung => "NOT FOUND, its test did not end",
        })
    }
}

fn plant(defect: &Defect, copy: &Path) -> Result<Outcome> {
    let path = copy.join(defect.file);
    let sound = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let planted = defect.planted(&sound)?;
    fs::write(&path, planted)?;
    let outcome = build(defect, copy).context("it does not compile").and_then(|()| test(defect, copy));
    fs::write(&path, sound)?;
    outcome
}

impl Defect {
    /// The file's text with the defect in it.
    fn planted(&self, sound: &str) -> Result<String> {
        let places = sound.matches(self.right).count();
        ensure!(places == 1, "`{}` stands {places} times in {}, not once", self.right, self.file);
        Ok(sound.replacen(self.right, self.wrong, 1))
    }

    fn cargo(&self, copy: &Path) -> Command {
        let (package, target, _) = self.test;
        let mut cargo = command::cargo("test");
        cargo.current_dir(copy).args(["--quiet", "--package", package]);
        match target {
            "lib" => cargo.arg("--lib"),
            _ => cargo.args(["--test", target]),
        };
        // A directory of its own: the copy's packages have the names of the real ones.
        cargo.env("CARGO_TARGET_DIR", workspace::target().join("zoo")).env("CARGO_PROFILE_DEV_DEBUG", "0");
        cargo
    }
}

fn build(defect: &Defect, copy: &Path) -> Result<()> {
    // Warnings about what a defect leaves unused say nothing.
    command::output(defect.cargo(copy).arg("--no-run")).map(drop)
}

/// Runs the test; `Survived` when it ran and passed.
fn test(defect: &Defect, copy: &Path) -> Result<Outcome> {
    let mut cargo = defect.cargo(copy);
    cargo.args(["--", "--exact", defect.test.2]);
    // A group of its own, so that what it started ends with it.
    cargo.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).process_group(0);
    let mut child = cargo.spawn().with_context(|| format!("cannot start `{}`", command::line(&cargo)))?;
    let mut out = child.stdout.take().context("no output to read")?;
    let said = thread::spawn(move || {
        let mut text = String::new();
        out.read_to_string(&mut text).map(|_| text)
    });
    let Some(passed) = wait(&mut child)? else { return Ok(Outcome::Hung) };
    let text = said.join().ok().context("the reader stopped")??;
    let failed = text.contains("0 passed; 1 failed");
    ensure!(failed != passed && (failed || text.contains("1 passed; 0 failed")), "{text}");
    Ok(if passed { Outcome::Survived } else { Outcome::Found })
}

/// Returns whether a process succeeded; `None` when it had to be stopped.
fn wait(child: &mut Child) -> Result<Option<bool>> {
    let start = Instant::now();
    while start.elapsed() < LIMIT {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status.success()));
        }
        thread::sleep(Duration::from_millis(50));
    }
    command::run(Command::new("kill").args(["-KILL", "--", &format!("-{}", child.id())]))?;
    child.wait()?;
    Ok(None)
}

/// Makes `copy` the files of `root` that belong to the project. What is the same already is not touched, so that only
/// what changed is compiled.
fn mirror(root: &Path, copy: &Path) -> Result<()> {
    let files = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let listed = command::output(Command::new("git").arg("-C").arg(root).args(files))?;
    let files: Vec<PathBuf> =
        listed.split('\0').filter(|f| !f.is_empty() && root.join(f).is_file()).map(PathBuf::from).collect();
    for file in &files {
        let (from, to) = (root.join(file), copy.join(file));
        let bytes = fs::read(&from).with_context(|| format!("cannot read {}", from.display()))?;
        if fs::read(&to).is_ok_and(|old| old == bytes) {
            continue;
        }
        fs::create_dir_all(to.parent().unwrap_or(copy))?;
        fs::write(&to, bytes).with_context(|| format!("cannot write {}", to.display()))?;
    }
    remove_others(copy, copy, &files)
}

/// Removes what is in the copy and not in the project: a test that is gone must not be found.
fn remove_others(folder: &Path, copy: &Path, files: &[PathBuf]) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            remove_others(&path, copy, files)?;
        } else if !path.strip_prefix(copy).is_ok_and(|own| files.iter().any(|file| file == own)) {
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;

    use super::{DEFECTS, workspace};

    #[test]
    fn every_defect_has_one_place_and_differs() {
        for defect in DEFECTS {
            let sound = fs::read_to_string(workspace::root().join(defect.file)).unwrap();
            let planted = defect.planted(&sound).unwrap_or_else(|error| panic!("{}: {error:#}", defect.name));
            assert_ne!(planted, sound, "{}", defect.name);
        }
    }

    #[test]
    fn the_list_of_the_specification_is_complete() {
        let names: BTreeSet<_> = DEFECTS.iter().map(|defect| defect.name).collect();
        assert_eq!((names.len(), DEFECTS.len()), (26, 26));
        assert!(DEFECTS.iter().filter(|defect| defect.sample).count() >= 8);
    }
}
