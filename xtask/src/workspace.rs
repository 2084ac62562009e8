//! Where things lie in the workspace.

use std::env;
use std::path::{Path, PathBuf};

/// Returns the root of the workspace.
pub(crate) fn root() -> &'static Path {
    // PANIC: the manifest directory of a member always has a parent.
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace")
}

/// Returns the build directory, which holds everything these tasks make; `cargo clean` removes it.
pub(crate) fn target() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |dir| root().join(dir))
}

/// Returns where `cargo xtask image` puts the kernel image.
pub(crate) fn image_elf() -> PathBuf {
    target().join("image/aicpu-kernel.elf")
}
