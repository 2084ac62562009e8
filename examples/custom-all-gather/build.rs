//! Chooses between the shared object (`AICPU_IMAGE=1`, set by `cargo xtask image --so`) and an empty stand-in.

fn main() {
    println!("cargo::rerun-if-env-changed=AICPU_IMAGE");
    if std::env::var("AICPU_IMAGE").is_ok_and(|wanted| wanted == "1") {
        println!("cargo::rustc-cfg=aicpu_image");
    }
}
