//! Boots the image alone under QEMU: the smallest proof that it starts.
//!
//! Without a launcher there is no boot block; the image then prints what it found and ends the emulator through
//! semihosting. Runs with a launcher belong to `host-launcher`, their tests to the `tests` package.

use core::time::Duration;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::{command, image, setup};

const DEADLINE: Duration = Duration::from_secs(20);

/// Builds the image, boots it, and checks its exit code.
///
/// # Errors
/// When there is no emulator, when the image does not end in time, or ends with another code than 0.
pub(crate) fn run() -> Result<()> {
    let image = image::build()?;
    let version =
        setup::emulator_version().with_context(|| format!("no {}: run `cargo xtask setup`", setup::QEMU))?;
    println!("{version}");
    let mut qemu = Command::new(setup::QEMU);
    qemu.args(["-M", "virt", "-cpu", "cortex-a72", "-m", "64", "-accel", "tcg,thread=single"]);
    qemu.args(["-nodefaults", "-display", "none", "-serial", "stdio"]);
    qemu.args(["-semihosting-config", "enable=on,target=native", "-kernel"]).arg(&image);
    qemu.stdin(Stdio::null());

    let start = Instant::now();
    let mut child = qemu.spawn().with_context(|| format!("cannot start `{}`", command::line(&qemu)))?;
    let status = wait(&mut child, start + DEADLINE)?;
    println!("{} ms, {status}", start.elapsed().as_millis());
    if !status.success() {
        bail!("the image ended with {status}; repeat with `{}`", command::line(&qemu));
    }
    Ok(())
}

fn wait(child: &mut Child, deadline: Instant) -> Result<ExitStatus> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if Instant::now() > deadline {
            child.kill()?;
            child.wait()?;
            bail!("the image did not end within {} s", DEADLINE.as_secs());
        }
        thread::sleep(Duration::from_millis(5));
    }
}
