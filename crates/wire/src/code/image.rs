//! 21xx: the kernel image (ELF) is refused by the loader, or its emulator does not come up.

super::codes! {
    2101 IMAGE_READ NoEffect hccl 10 ei 0
        "the kernel image file cannot be read"
        "build it with `cargo xtask image`"
}
