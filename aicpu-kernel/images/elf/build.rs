//! Chooses between the bare-metal image and its stand-in on a host.
//!
//! `AICPU_IMAGE=1` (set by `cargo xtask image`) makes the image. It is no cargo feature, because `--all-features`
//! on a host would then ask for an image.

use std::env;

fn main() {
    println!("cargo::rerun-if-env-changed=AICPU_IMAGE");
    let is_bare_metal = env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "none");
    if env::var("AICPU_IMAGE").is_ok_and(|wanted| wanted == "1") && is_bare_metal {
        let root = env::var("CARGO_MANIFEST_DIR").map(|package| format!("{package}/../../.."));
        let root = root.expect("cargo names the package's directory");
        println!("cargo::rustc-cfg=aicpu_image");
        println!("cargo::rerun-if-changed={root}/linker/qemu-virt.ld");
        println!("cargo::rustc-link-arg-bins=-T{root}/linker/qemu-virt.ld");
        println!("cargo::rustc-link-arg-bins=-Tdefmt.x");
        println!("cargo::rustc-link-arg-bins=-zmax-page-size=4096");
        println!("cargo::rustc-link-arg-bins=--build-id");
    }
}
