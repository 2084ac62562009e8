//! Packages of a Debian-like distribution: what is on offer, what it costs, install it.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::command;

/// Installs `packages` after refreshing the package lists; prints the cost before it starts.
///
/// # Errors
/// When there is no apt, no right to use it, no such package, or when it fails: the message names the command.
pub(crate) fn install(packages: &[&str], what: &str) -> Result<()> {
    update().with_context(|| manual(packages, what))?;
    let mut arguments = vec!["install", "--yes", "--no-install-recommends"];
    arguments.extend(packages);
    println!("apt: installing {} for {what}; {}", packages.join(" "), cost(packages));
    command::output(&mut root_apt(&arguments)?).map(drop).with_context(|| manual(packages, what))
}

/// Refreshes the package lists.
///
/// # Errors
/// When there is no apt or no right to use it.
pub(crate) fn update() -> Result<()> {
    if !Path::new("/usr/bin/apt-get").exists() {
        bail!("this system has no apt-get");
    }
    command::output(&mut root_apt(&["update"])?).map(drop)
}

/// Returns the version that `install` would install, or `None` when no package source has it.
pub(crate) fn candidate(package: &str) -> Option<String> {
    let policy =
        command::output(Command::new("apt-cache").env("LC_ALL", "C").args(["policy", package])).ok()?;
    let version = policy.lines().find_map(|line| line.trim().strip_prefix("Candidate: "))?;
    (version != "(none)").then(|| version.to_owned())
}

fn manual(packages: &[&str], what: &str) -> String {
    format!("{what}: install it by hand (Debian: `sudo apt-get install {}`)", packages.join(" "))
}

/// Returns apt's own words on download and disk; it prints them before it asks, so the question is answered no.
fn cost(packages: &[&str]) -> String {
    let mut ask = apt_get(Command::new("apt-get"));
    ask.args(["install", "--assume-no", "--no-install-recommends"]).args(packages);
    let Ok(answer) = ask.output() else { return "size unknown".to_owned() };
    let text = String::from_utf8_lossy(&answer.stdout);
    let says = |start: &str| text.lines().find_map(|line| line.strip_prefix(start)).map(str::to_owned);
    let download = says("Need to get ").and_then(|rest| rest.split(" of ").next().map(str::to_owned));
    let disk = says("After this operation, ").and_then(|rest| rest.split(" of ").next().map(str::to_owned));
    let removed = removed(&text).map_or_else(String::new, |names| format!("; REPLACES {names}"));
    let none = || "none".to_owned();
    format!("download {}, disk {}{removed}", download.unwrap_or_else(none), disk.unwrap_or_else(none))
}

/// Returns the packages that apt wants to remove because they conflict.
fn removed(answer: &str) -> Option<String> {
    let (_, list) = answer.split_once("The following packages will be REMOVED:\n")?;
    let names: Vec<&str> =
        list.lines().take_while(|line| line.starts_with(' ')).flat_map(str::split_whitespace).collect();
    Some(names.join(" "))
}

fn root_apt(arguments: &[&str]) -> Result<Command> {
    let is_root = fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0);
    let mut command = if is_root {
        Command::new("apt-get")
    } else if Path::new("/usr/bin/sudo").exists() {
        let mut sudo = Command::new("sudo");
        sudo.args(["DEBIAN_FRONTEND=noninteractive", "apt-get"]);
        sudo
    } else {
        bail!("not root, and there is no sudo");
    };
    command.arg("--quiet").args(arguments);
    Ok(apt_get(command))
}

fn apt_get(mut command: Command) -> Command {
    command.env("DEBIAN_FRONTEND", "noninteractive").env("LC_ALL", "C");
    command
}

#[cfg(test)]
mod tests {
    use super::removed;

    #[test]
    fn packages_that_go_are_named() {
        let answer = "Suggested packages:\n  samba\nThe following packages will be REMOVED:\n  old-a old-b\n  old-c\n\
                      The following NEW packages will be installed:\n  new\n";
        assert_eq!(removed(answer).as_deref(), Some("old-a old-b old-c"));
        assert_eq!(removed("The following NEW packages will be installed:\n  new\n"), None);
    }
}
