//! Runs other programs and says exactly which one failed.

use core::fmt::Write;
use std::ffi::OsStr;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::workspace;

/// Returns a `cargo` command that runs in the workspace root, with the cargo that runs this program.
pub(crate) fn cargo(task: &str) -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(workspace::root()).arg(task);
    cargo
}

/// Runs `command` with its output on this terminal.
///
/// # Errors
/// When it cannot be started, or exits with another status than 0.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot start `{}`", line(command)))?;
    if !status.success() {
        bail!("`{}`: {status}", line(command));
    }
    Ok(())
}

/// Runs `command` quietly and returns its standard output; its error output becomes part of the error.
///
/// # Errors
/// When it cannot be started, or exits with another status than 0.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let done =
        command.stdin(Stdio::null()).output().with_context(|| format!("cannot start `{}`", line(command)))?;
    if !done.status.success() {
        let said = String::from_utf8_lossy(&done.stderr);
        bail!("`{}`: {}\n{}", line(command), done.status, said.trim_end());
    }
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}

/// Returns the command as a person would type it, settings of environment variables first.
pub(crate) fn line(command: &Command) -> String {
    let mut text = String::new();
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            let _ = write!(text, "{}={} ", name.display(), word(value));
        }
    }
    let program = std::path::Path::new(command.get_program());
    let is_cargo = program.file_stem().is_some_and(|stem| stem == "cargo");
    text += &if is_cargo { "cargo".to_owned() } else { word(program.as_os_str()) };
    for arg in command.get_args() {
        text.push(' ');
        text += &word(arg);
    }
    text
}

fn word(text: &OsStr) -> String {
    let text = text.to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=./:,+".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.into_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::line;
    use std::process::Command;

    #[test]
    fn a_command_prints_as_one_would_type_it() {
        let mut command = Command::new("/some/where/bin/cargo");
        command.args(["test", "-p", "wire", "--", "it's"]).env("RUSTDOCFLAGS", "-D warnings");
        assert_eq!(line(&command), r"RUSTDOCFLAGS='-D warnings' cargo test -p wire -- 'it'\''s'");
    }
}
