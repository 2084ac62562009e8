//! Builds the kernel as shared objects: for the AICPU, and for this host so that tests can load it quickly.
//!
//! Each is linked by LLD from one archive, with nothing but what the archive holds: no start files, no C library. Beside
//! it lie the JSON by which a runtime finds it, the same with its symbols, and for tests one with a defect built in, one
//! of the next version, the example of a custom operator, and the C program that loads them all.

use std::env::consts::ARCH;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::json;

use crate::toolchain::{SO_TARGET, Toolchain};
use crate::{command, setup, size, workspace};

/// Name of the variable that tells tests where the shared objects are.
pub(crate) const DIR_VARIABLE: &str = "AICPU_SO_DIR";
/// The C compiler for the AICPU's processor.
pub(crate) const CROSS_CC: &str = "aarch64-linux-gnu-gcc";
const PROFILE: &str = "so";
/// Largest kernel for the AICPU, stripped, bytes.
const MOST_BYTES: u64 = 96 << 10;

/// A shared object: its package, entry point and file name.
struct Object {
    package: &'static str,
    archive: &'static str,
    entry: &'static str,
    file: &'static str,
    map: &'static str,
    /// Environment variables of its build.
    variables: &'static [(&'static str, &'static str)],
    /// Flags of the compiler.
    flags: &'static str,
}

/// No tables for unwinding, and what the templates repeat is code once.
const SMALL: &str = "-Cforce-unwind-tables=no -Cllvm-args=-enable-machine-outliner=always";

const KERNEL: Object = Object {
    package: "aicpu-image-so",
    archive: "libaicpu_ts_kernel.a",
    entry: "AicpuTsLaunch",
    file: "libaicpu_ts_kernel.so",
    map: "linker/so.map",
    variables: &[("AICPU_IMAGE", "1")],
    flags: SMALL,
};
const DEFECT: Object = Object {
    file: "libaicpu_ts_defect.so",
    variables: &[("AICPU_IMAGE", "1"), ("AICPU_TEST_PANIC", "1")],
    ..KERNEL
};
/// The kernel of the next version, which a test loads beside this one.
const NEXT: Object = Object {
    file: "libaicpu_ts_next.so",
    flags: "-Cforce-unwind-tables=no --cfg aicpu_test_next_abi",
    ..KERNEL
};
const CUSTOM: Object = Object {
    package: "aicpu-example-all-gather",
    archive: "libcustom_all_gather.a",
    entry: "CustomAllGather",
    file: "libcustom_all_gather.so",
    map: "examples/custom-all-gather/so.map",
    ..KERNEL
};

/// A processor, and how code for it is made.
struct Machine {
    arch: &'static str,
    target: String,
    /// The compiler, where it is not the one in use.
    rustc: Option<PathBuf>,
    build_dir: PathBuf,
    cc: &'static str,
}

/// Builds everything for both processors and returns the directory.
///
/// # Errors
/// When a compiler is missing or a build fails.
pub(crate) fn build() -> Result<PathBuf> {
    let host = host()?;
    build_for(&host)?;
    let cross = aarch64()?;
    build_for(&cross)?;
    Ok(directory())
}

fn directory() -> PathBuf {
    workspace::target().join("image/so")
}

/// Reports on the kernel for the AICPU as it was built last: sections, stack, panic paths.
///
/// # Errors
/// As [`size::run`].
pub(crate) fn report() -> Result<()> {
    let image = directory().join("aarch64").join(KERNEL.file).with_extension("full.so");
    size::run(&size::Options { image: Some(image) })
}

/// Runs the lints on the shared object's own code, as it is on this host.
///
/// # Errors
/// When a lint finds something.
pub(crate) fn lint() -> Result<()> {
    let machine = host()?;
    let mut cargo = command::cargo("clippy");
    cargo.args([
        "--package",
        KERNEL.package,
        "--package",
        CUSTOM.package,
        "--lib",
        "--profile",
        PROFILE,
        "--target",
        &machine.target,
    ]);
    cargo.env("CARGO_TARGET_DIR", &machine.build_dir).envs(KERNEL.variables.iter().copied());
    command::run(cargo.args(["--", "-D", "warnings"]))
}

fn host() -> Result<Machine> {
    let target = rustc_host()?;
    // A directory of its own: its flags rebuild everything.
    let build_dir = workspace::target().join("so-host");
    Ok(Machine { arch: ARCH, target, rustc: None, build_dir, cc: "cc" })
}

fn aarch64() -> Result<Machine> {
    let rustc = match setup::toolchain()? {
        Toolchain::Rustup => None,
        Toolchain::Debian { rustc } => Some(rustc),
    };
    let build_dir = workspace::target().join("fw-so");
    Ok(Machine { arch: "aarch64", target: SO_TARGET.to_owned(), rustc, build_dir, cc: CROSS_CC })
}

fn build_for(machine: &Machine) -> Result<()> {
    let into = directory().join(machine.arch);
    fs::create_dir_all(&into)?;
    for object in [&KERNEL, &CUSTOM] {
        build_object(machine, object, &into)?;
    }
    if machine.rustc.is_none() && machine.arch == ARCH {
        build_object(machine, &DEFECT, &into)?;
        build_object(machine, &NEXT, &into)?;
    }
    build_driver(machine, &into)?;
    let size = fs::metadata(into.join(KERNEL.file))?.len();
    if machine.target == SO_TARGET && size > MOST_BYTES {
        bail!("{} for {} has {size} bytes, more than {MOST_BYTES}", KERNEL.file, machine.arch);
    }
    println!("{} {size} bytes", into.join(KERNEL.file).display());
    Ok(())
}

/// Builds one object, as it is loaded and with its symbols, and its JSON.
fn build_object(machine: &Machine, object: &Object, into: &Path) -> Result<()> {
    let mut cargo = command::cargo("rustc");
    cargo.args(["--quiet", "--package", object.package, "--profile", PROFILE, "--target", &machine.target]);
    cargo.args(["--lib", "--crate-type", "staticlib"]);
    cargo.env("CARGO_TARGET_DIR", &machine.build_dir).envs(object.variables.iter().copied());
    let remap = format!("--remap-path-prefix={}/=", workspace::root().display());
    cargo.env("RUSTFLAGS", format!("{remap} {}", object.flags));
    if let Some(rustc) = &machine.rustc {
        cargo.env("RUSTC", rustc);
    }
    command::run(&mut cargo)?;
    let archive = machine.build_dir.join(&machine.target).join(PROFILE).join(object.archive);
    link(object, &archive, &into.join(object.file), true)?;
    link(object, &archive, &into.join(object.file).with_extension("full.so"), false)?;
    let description = json!({ object.entry: { "opInfo": {
        "opKernelLib": "AICPUKernel", "kernelSo": object.file, "functionName": object.entry,
    } } });
    let text = serde_json::to_string_pretty(&description)?;
    fs::write(into.join(object.file).with_extension("json"), text + "\n")?;
    Ok(())
}

fn link(object: &Object, archive: &Path, to: &Path, strip: bool) -> Result<()> {
    let lld = setup::linker(&rustc_host()?)?;
    let fresh = to.with_extension("new");
    let mut linker = Command::new(&lld);
    if lld.ends_with("rust-lld") {
        linker.args(["-flavor", "gnu"]);
    }
    // Pages of up to 64 KiB; nothing is bound later than at loading, and no code is written to.
    linker.args(["-shared", "-z", "max-page-size=65536", "-z", "now", "-z", "relro", "-z", "text"]);
    linker.args(["--gc-sections", "--build-id=sha1", "--hash-style=gnu", "-u", object.entry]);
    linker.arg("--version-script").arg(workspace::root().join(object.map));
    linker.arg("--script").arg(workspace::root().join("linker/so.ld"));
    linker.args(["-soname", object.file]).args(strip.then_some("--strip-all"));
    linker.arg(archive).arg("-o").arg(&fresh);
    command::run(&mut linker)?;
    // Renamed into place, so that a process that has the old one loaded keeps it whole.
    fs::rename(&fresh, to)?;
    Ok(())
}

/// Builds the C program that loads a kernel and is its data plane, and the same with its data plane kept to itself.
fn build_driver(machine: &Machine, into: &Path) -> Result<()> {
    compile_driver(machine, &into.join("driver"), &["-rdynamic"])?;
    compile_driver(machine, &into.join("driver-without-data-plane"), &[])
}

fn compile_driver(machine: &Machine, to: &Path, flags: &[&str]) -> Result<()> {
    let root = workspace::root();
    let fresh = to.with_extension("new");
    let mut cc = Command::new(machine.cc);
    cc.args(["-std=c11", "-O2", "-Wall", "-Wextra", "-Werror"]).args(flags);
    cc.arg("-I").arg(root.join("crates/vendor-abi/include"));
    cc.args(["driver.c", "plane.c"].map(|file| root.join("tests/driver").join(file)));
    cc.arg("-o").arg(&fresh).arg("-ldl");
    command::run(&mut cc)?;
    fs::rename(&fresh, to)?;
    Ok(())
}

/// Returns the target of this host.
pub(crate) fn rustc_host() -> Result<String> {
    let verbose = command::output(Command::new("rustc").current_dir(workspace::root()).arg("-vV"))?;
    let host = verbose.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).context("rustc -vV names no host")
}
