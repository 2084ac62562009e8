//! 21xx: the kernel image (ELF) is refused by the loader, or its emulator does not come up.

super::codes! {
    2101 IMAGE_READ NoEffect hccl 10 ei 0
        "the kernel image file cannot be read"
        "build it with `cargo xtask image`"
    2102 IMAGE_SIZE NoEffect hccl 1 ei 0
        "the kernel image is empty or larger than an image may be"
        "name the image that `cargo xtask image` builds, not an archive or a disk"
    2103 IMAGE_MAGIC NoEffect hccl 1 ei 0
        "the kernel image is not an ELF file"
        "name the image that `cargo xtask image` builds"
    2104 IMAGE_CLASS NoEffect hccl 5 ei 0
        "the kernel image is not a 64-bit ELF file"
        "build it for aarch64-unknown-none with `cargo xtask image`"
    2105 IMAGE_ENDIAN NoEffect hccl 5 ei 0
        "the kernel image is not little-endian"
        "build it for aarch64-unknown-none with `cargo xtask image`"
    2106 IMAGE_VERSION NoEffect hccl 5 ei 0
        "the kernel image is of an unknown ELF version"
        "the file is damaged; build it again with `cargo xtask image`"
    2107 IMAGE_MACHINE NoEffect hccl 5 ei 0
        "the kernel image is for another processor"
        "build it for aarch64-unknown-none with `cargo xtask image`; the host's own programs are not images"
    2108 IMAGE_TYPE NoEffect hccl 5 ei 0
        "the kernel image is not a statically linked executable"
        "link it with -no-pie and the linker script of the image"
    2109 IMAGE_HEADERS NoEffect hccl 1 ei 0
        "the program headers of the kernel image are not where or what its file header says"
        "the file is damaged or cut off; build it again with `cargo xtask image`"
    2110 IMAGE_SECTIONS NoEffect hccl 1 ei 0
        "the section headers of the kernel image are not where or what its file header says"
        "the file is damaged or cut off; build it again with `cargo xtask image`"
    2111 IMAGE_TRAILING NoEffect hccl 1 ei 0
        "the kernel image is followed by bytes that no header names"
        "something was appended to the file; build it again with `cargo xtask image`"
    2112 IMAGE_EMPTY NoEffect hccl 1 ei 0
        "the kernel image has nothing to load"
        "the linker dropped everything: keep the entry point in the linker script"
    2113 SEGMENT_KIND NoEffect hccl 5 ei 0
        "the kernel image needs a dynamic loader or thread-local storage"
        "link it statically with -no-pie, without thread-locals"
    2114 SEGMENT_FILE NoEffect hccl 1 ei 0
        "a segment of the kernel image reaches beyond the file"
        "the file is damaged or cut off; build it again with `cargo xtask image`"
    2115 SEGMENT_MEMORY NoEffect hccl 1 ei 0
        "a segment of the kernel image is larger in the file than in memory, or wraps the address space"
        "the file is damaged; build it again with `cargo xtask image`"
    2116 SEGMENT_ADDRESS NoEffect hccl 5 ei 0
        "a segment of the kernel image has different virtual and physical addresses"
        "link it at the addresses it runs at: no AT() in the linker script"
    2117 SEGMENT_ZEROS NoEffect hccl 7 ei 0
        "the kernel image asks for more zeroed memory than an image may"
        "make its static buffers smaller"
    2118 SEGMENT_ALIGN NoEffect hccl 5 ei 0
        "a segment of the kernel image has an impossible alignment"
        "link it with -z max-page-size=4096"
    2119 SEGMENT_OVERLAP NoEffect hccl 1 ei 0
        "two segments of the kernel image overlap in memory"
        "the linker script places two sections at one address"
    2120 SEGMENT_WRITE_EXECUTE NoEffect hccl 5 ei 0
        "a segment of the kernel image is both writable and executable"
        "keep code and data in different segments of the linker script"
    2121 SEGMENT_PLACE NoEffect hccl 7 ei 0
        "a segment of the kernel image lies outside the guest's memory"
        "link the image for this machine's memory map, or give the guest more memory"
    2122 IMAGE_ENTRY NoEffect hccl 1 ei 0
        "the entry point of the kernel image is not code"
        "name the entry point in the linker script: ENTRY(symbol)"
    2123 IMAGE_RELOCATION NoEffect hccl 5 ei 0
        "the kernel image has relocations that this loader does not apply"
        "link it statically with -no-pie and without --emit-relocs"
    2124 RELOCATION_RANGE NoEffect hccl 1 ei 0
        "a relocation of the kernel image lies outside its segments"
        "the file is damaged; build it again with `cargo xtask image`"
    2125 NOTE_MISSING NoEffect hccl 5 ei 8
        "the kernel image has no note that says what it is"
        "keep .note.aicpu-ts in a PT_NOTE segment of the linker script; other programs are not images"
    2126 NOTE_SYNTAX NoEffect hccl 1 ei 8
        "a note of the kernel image is cut off, doubled or out of range"
        "the file is damaged; build it again with `cargo xtask image`"
    2127 NOTE_ABI NoEffect hccl 5 ei 8
        "the kernel image is of another ABI version"
        "build launcher and image from the same commit"
    2128 IMAGE_HASH NoEffect hccl 1 ei 8
        "the kernel image is not the file the manifest names"
        "build image and manifest together with `cargo xtask image`"
    2131 OBJECT_SYMBOL NoEffect hccl 6 ei 0
        "the shared object needs a symbol that a process with a data plane has not"
        "link everything in; only the data plane and C's memory functions may stay undefined"
    2132 OBJECT_NEEDED NoEffect hccl 6 ei 0
        "the shared object needs another library"
        "link it without libraries: -nostdlib, or the linker alone"
    2133 OBJECT_EXPORTS NoEffect hccl 1 ei 0
        "the shared object does not export exactly one symbol"
        "name the entry point in a version script, and everything else local"
    2134 OBJECT_TEXT NoEffect hccl 5 ei 0
        "the shared object has relocations in code"
        "compile everything position-independent and link with -z text"
    2141 EMULATOR_START NoEffect hccl 10 ei 0
        "the emulator cannot be started"
        "install it with `cargo xtask setup`"
    2142 EMULATOR_EXIT DeviceLost hccl 4 ei 0
        "the emulator ended by itself"
        "read its last words in the message"
    2143 EMULATOR_TIMEOUT NoEffect hccl 9 ei 0
        "the image did not come up in time"
        "look at the image's last words in the message; on a loaded machine try again"
    2144 EMULATOR_MEMORY NoEffect hccl 7 ei 0
        "the guest's memory cannot be set up"
        "free memory, or ask for fewer NPUs or smaller windows"
    2151 BOOT_ABI NoEffect hccl 5 ei 8
        "the boot block is of another ABI version than the image"
        "build launcher and image from the same commit"
    2152 BOOT_FIELD NoEffect hccl 1 ei 0
        "a field of the boot block is out of range"
        "report it: the launcher writes this block itself"
}
