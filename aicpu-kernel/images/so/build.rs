//! Chooses between the shared object and its stand-in.
//!
//! `AICPU_IMAGE=1` (set by `cargo xtask image --so`) makes the shared object. `AICPU_TEST_PANIC=1` besides makes one
//! with a defect in the middle of each launch, which a test looks at.

use std::env;

fn main() {
    println!("cargo::rustc-check-cfg=cfg(aicpu_test_panic)");
    for (variable, cfg) in [("AICPU_IMAGE", "aicpu_image"), ("AICPU_TEST_PANIC", "aicpu_test_panic")] {
        println!("cargo::rerun-if-env-changed={variable}");
        if env::var(variable).is_ok_and(|wanted| wanted == "1") {
            println!("cargo::rustc-cfg={cfg}");
        }
    }
}
