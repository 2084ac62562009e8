//! Where things lie in the workspace.

use std::env;
use std::path::{Path, PathBuf};

/// Returns the root of the workspace.
pub(crate) fn root() -> PathBuf {
    // Asked when it runs: a checkout may have moved since this was compiled.
    let package = env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    Path::new(&package).parent().map(Path::to_owned).unwrap_or_default()
}

/// Returns the build directory, which holds everything these tasks make; `cargo clean` removes it.
pub(crate) fn target() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |dir| root().join(dir))
}

/// Returns where `cargo xtask image` puts the kernel image.
pub(crate) fn image_elf() -> PathBuf {
    target().join("image/aicpu-kernel.elf")
}
