//! Builds `core` for aarch64 from the distribution's packages.
//!
//! For machines where rustup cannot fetch the target. The result is a sysroot: a compiler wrapper, links to the
//! distribution's host libraries and to a linker, and `core`, `alloc` and `compiler_builtins` for each target. It is
//! built once; after that the image is built by plain stable cargo without any unstable flag.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::apt;
use crate::command;
use crate::toolchain::{self, DEBIAN_RUSTC, MINIMUM, SYSROOT_RUSTFLAGS, TARGETS, Toolchain};

const PACKAGES: &[&str] = &["rustc-web", "rust-web-src"];
const SOURCES: &str = "/usr/lib/rustlib/src/rust/library";
const STUB_MANIFEST: &str = r#"[package]
name = "sysroot-stub"
version = "0.0.0"
edition = "2024"

[profile.release]
opt-level = 3
debug = false
panic = "abort"
codegen-units = 1

[workspace]
"#;

/// Installs the packages where they are missing and builds the sysroot.
///
/// # Errors
/// When the packages are not to be had or too old, or when the build fails.
pub(super) fn install() -> Result<Toolchain> {
    if toolchain::debian_version().is_none() || !Path::new(SOURCES).exists() {
        packages()?;
    }
    let version =
        toolchain::debian_version().context("rustc-web is installed, but its compiler does not run")?;
    let dir = toolchain::sysroot_dir(&version);
    println!("sysroot: building core {version} for {} (half a minute each, 58 MB)", TARGETS.join(", "));
    build(&dir).with_context(|| format!("building the sysroot {}", dir.display()))?;
    Ok(Toolchain::Debian { rustc: toolchain::wrapper(&dir) })
}

fn packages() -> Result<()> {
    apt::update()?;
    let (major, minor) = MINIMUM;
    match apt::candidate("rustc-web") {
        Some(version) if toolchain::is_new_enough(&version) => apt::install(PACKAGES, "the aarch64 compiler"),
        Some(version) => bail!(
            "the distribution offers rustc-web {version}, but {major}.{minor} is needed: enable its security \
             updates (Debian 12: the suite bookworm-security), or use rustup (`AICPU_TOOLCHAIN=rustup`)"
        ),
        None => bail!(
            "the distribution has no package rustc-web ({major}.{minor} is needed, Debian 12 has it): use rustup \
             (`rustup target add {}`)",
            TARGETS.join(" ")
        ),
    }
}

fn build(sysroot: &Path) -> Result<()> {
    let host = host()?;
    let libraries = sysroot.join("lib/rustlib");
    let _ = fs::remove_dir_all(sysroot);
    fs::create_dir_all(libraries.join(&host).join("bin"))?;
    symlink(format!("/usr/lib/rustlib/{host}/lib"), libraries.join(&host).join("lib"))?;
    symlink(linker(&host)?, libraries.join(&host).join("bin/rust-lld"))?;
    symlink("/usr/lib/rustlib/src", libraries.join("src"))?;
    for target in TARGETS {
        build_core(sysroot, target)?;
    }
    write_wrapper(sysroot)
}

fn host() -> Result<String> {
    let verbose = command::output(Command::new(DEBIAN_RUSTC).arg("-vV"))?;
    let host = verbose.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).context("rustc -vV names no host")
}

/// Returns the linker: the one that came with the compiler in use, or a system-wide one.
///
/// # Errors
/// When there is none.
pub(crate) fn linker(host: &str) -> Result<PathBuf> {
    let own = command::output(Command::new("rustc").args(["--print", "sysroot"])).unwrap_or_default();
    let candidates = [
        Path::new(own.trim()).join(format!("lib/rustlib/{host}/bin/rust-lld")),
        PathBuf::from("/usr/bin/ld.lld"),
    ];
    let found = candidates.into_iter().find(|path| path.exists());
    found.context("no LLD linker: install it (Debian: `sudo apt-get install lld`)")
}

/// Lets cargo build the standard library's lower half, and keeps what a `no_std` program links.
fn build_core(sysroot: &Path, target: &str) -> Result<()> {
    let work = sysroot.join("build");
    fs::create_dir_all(work.join("src"))?;
    fs::write(work.join("Cargo.toml"), STUB_MANIFEST)?;
    fs::write(work.join("src/lib.rs"), "#![no_std]\n")?;
    let mut cargo = command::cargo("build");
    cargo.current_dir(&work).args(["--release", "-Z", "build-std=core,alloc", "--target", target]);
    cargo.env("RUSTC", DEBIAN_RUSTC).env("RUSTC_BOOTSTRAP", "1").env("RUSTFLAGS", SYSROOT_RUSTFLAGS);
    cargo.env("CARGO_TARGET_DIR", work.join("target")).env_remove("CARGO_ENCODED_RUSTFLAGS");
    cargo.env_remove("RUSTUP_TOOLCHAIN").env_remove("RUSTC_WRAPPER");
    command::output(&mut cargo)?;

    let into = sysroot.join("lib/rustlib").join(target).join("lib");
    fs::create_dir_all(&into)?;
    let built = work.join("target").join(target).join("release/deps");
    for entry in fs::read_dir(&built)? {
        let path = entry?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        let wanted = ["libcore-", "liballoc-", "libcompiler_builtins-"];
        if wanted.iter().any(|start| name.starts_with(start)) && name.ends_with(".rlib") {
            fs::copy(&path, into.join(name))?;
        }
    }
    fs::remove_dir_all(&work)?;
    Ok(())
}

fn write_wrapper(sysroot: &Path) -> Result<()> {
    let wrapper = toolchain::wrapper(sysroot);
    fs::create_dir_all(sysroot.join("bin"))?;
    fs::write(
        &wrapper,
        format!("#!/bin/sh\nexec {DEBIAN_RUSTC} --sysroot '{}' \"$@\"\n", sysroot.display()),
    )?;
    fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755))?;
    Ok(())
}
