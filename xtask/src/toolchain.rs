//! Finds the compiler that builds the aarch64 image.
//!
//! Either the project's own compiler with rustup's `core` for the target, or the distribution's compiler with a
//! `core` built from its sources (made by `setup::sysroot`). Nothing is installed here.

use core::fmt;
use core::hash::{Hash, Hasher};
use std::env;
use std::hash::DefaultHasher;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};

use crate::{command, workspace};

/// The target of the bare-metal image.
pub(crate) const TARGET: &str = "aarch64-unknown-none";
/// The target of the shared object.
pub(crate) const SO_TARGET: &str = "aarch64-unknown-linux-gnu";
/// Both; on the distribution's route a sysroot is built for each.
pub(crate) const TARGETS: &[&str] = &[TARGET, SO_TARGET];
/// Compiler of the distribution's route.
pub(crate) const DEBIAN_RUSTC: &str = "/usr/bin/rustc";
/// Flags of the sysroot's build: fat LTO of the image needs the bitcode.
pub(crate) const SYSROOT_RUSTFLAGS: &str = "-Cembed-bitcode=yes";
/// The distribution's compiler must be able to build this workspace.
pub(crate) const MINIMUM: (u32, u32) = (1, 95);

/// A compiler that can build for [`TARGETS`].
#[derive(Clone, Debug)]
pub(crate) enum Toolchain {
    /// The compiler in use, with rustup's targets.
    Rustup,
    /// A wrapper around the distribution's compiler with our sysroot.
    Debian {
        /// The wrapper, to be used as `RUSTC`.
        rustc: PathBuf,
    },
}

impl fmt::Display for Toolchain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rustup => write!(f, "{} of the compiler in use", TARGETS.join(" and ")),
            Self::Debian { rustc } => write!(f, "the distribution's compiler, {}", rustc.display()),
        }
    }
}

/// Which route may be taken to install the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Preference {
    /// rustup, then the distribution.
    Any,
    /// Only rustup (`AICPU_TOOLCHAIN=rustup`).
    Rustup,
    /// Only the distribution (`AICPU_TOOLCHAIN=debian`, or rustup is told not to fetch anything).
    Debian,
}

/// Returns which route the environment allows.
///
/// # Errors
/// When `AICPU_TOOLCHAIN` holds something else than `rustup` or `debian`.
pub(crate) fn preference() -> Result<Preference> {
    match env::var("AICPU_TOOLCHAIN").as_deref() {
        Ok("rustup") => Ok(Preference::Rustup),
        Ok("debian") => Ok(Preference::Debian),
        Ok(other) => bail!("AICPU_TOOLCHAIN={other:?}: it may be `rustup` or `debian`, or unset"),
        Err(_) if env::var("RUSTUP_AUTO_INSTALL").as_deref() == Ok("0") => Ok(Preference::Debian),
        Err(_) => Ok(Preference::Any),
    }
}

/// Returns a compiler that is ready to use, or `None` when one must be installed first.
///
/// # Errors
/// When `AICPU_TOOLCHAIN` holds an unknown value.
pub(crate) fn find() -> Result<Option<Toolchain>> {
    let wanted = preference()?;
    let forced = env::var_os("AICPU_TOOLCHAIN").is_some();
    if (wanted != Preference::Debian || !forced) && TARGETS.iter().all(|target| has_target(target)) {
        return Ok(Some(Toolchain::Rustup));
    }
    if wanted == Preference::Rustup {
        return Ok(None);
    }
    Ok(debian_version()
        .map(|version| sysroot_dir(&version))
        .filter(|dir| is_complete(dir))
        .map(|dir| Toolchain::Debian { rustc: wrapper(&dir) }))
}

fn has_target(target: &str) -> bool {
    let mut query = Command::new(env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    query.current_dir(workspace::root()).args(["--print", "target-libdir", "--target", target]);
    command::output(&mut query).is_ok_and(|dir| Path::new(dir.trim()).is_dir())
}

/// Returns the version of the distribution's compiler when it is installed and new enough.
pub(crate) fn debian_version() -> Option<String> {
    let text = command::output(Command::new(DEBIAN_RUSTC).arg("--version")).ok()?;
    let version = text.split_whitespace().nth(1)?.to_owned();
    is_new_enough(&version).then_some(version)
}

/// Returns whether a version such as `1.96.0+dfsg1-1` reaches [`MINIMUM`].
pub(crate) fn is_new_enough(version: &str) -> bool {
    let mut parts = version.split(['.', '+', '-', '~']).map_while(|part| part.parse::<u32>().ok());
    matches!((parts.next(), parts.next()), (Some(major), Some(minor)) if (major, minor) >= MINIMUM)
}

/// Returns the sysroot's directory. Its name changes with compiler and recipe, because cargo does not notice a
/// rebuilt sysroot at the same path.
pub(crate) fn sysroot_dir(version: &str) -> PathBuf {
    let mut recipe = DefaultHasher::new();
    (TARGETS, SYSROOT_RUSTFLAGS).hash(&mut recipe);
    workspace::target().join(format!("fw-toolchain-{version}-{:08x}", recipe.finish() >> 32))
}

/// Returns the compiler wrapper inside a sysroot.
pub(crate) fn wrapper(sysroot: &Path) -> PathBuf {
    sysroot.join("bin/rustc")
}

/// The wrapper is written last, so a sysroot that has it is whole.
fn is_complete(sysroot: &Path) -> bool {
    wrapper(sysroot).exists()
}

#[cfg(test)]
mod tests {
    use super::is_new_enough;

    #[test]
    fn versions_compare_as_numbers() {
        for (version, enough) in [
            ("1.96.0+dfsg1-1~deb12u2", true),
            ("1.95.0", true),
            ("1.100.0", true),
            ("2.0", true),
            ("1.85.0+dfsg3-1~deb12u3", false),
            ("1.9.0", false),
            ("1", false),
            ("", false),
        ] {
            assert_eq!(is_new_enough(version), enough, "{version:?}");
        }
    }
}
