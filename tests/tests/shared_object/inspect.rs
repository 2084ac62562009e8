//! What `aicpu-ts image inspect` says of the kernel's objects, and of files that a loader would refuse.

use std::path::PathBuf;

use host_launcher::image::inspect::Inspection;
use wire::ErrorCode;

use crate::rig::file;

/// The object for the AICPU.
fn aicpu(name: &str) -> Option<PathBuf> {
    let here = file(name)?;
    Some(here.parent()?.parent()?.join("aarch64").join(name))
}

fn refusals(bytes: &[u8]) -> Vec<ErrorCode> {
    let found = Inspection::of(bytes).expect("an ELF file still");
    found.refusals.iter().map(|error| error.code()).collect()
}

#[test]
fn the_object_asks_for_the_data_plane_and_mem_alone() {
    let Some(path) = aicpu("libaicpu_ts_kernel.so") else { return };
    for path in [path.clone(), path.with_extension("full.so")] {
        let found = Inspection::read(&path).expect("readable");
        assert!(found.refusals.is_empty(), "{:?}", found.refusals);
        assert_eq!((found.kind, found.machine), ("shared object", "aarch64"));
        assert_eq!(found.exports, ["AicpuTsLaunch"]);
        assert_eq!(found.abi.as_deref(), Some("1.0"));
        assert_eq!(found.max_stack, Some(16 << 10));
        assert_eq!(found.build_id.map(|id| id.len()), Some(40), "SHA-1");
        assert!(found.needed.is_empty());
        let (weak, strong): (Vec<_>, Vec<_>) = found.undefined.into_iter().partition(|symbol| symbol.weak);
        let names = |symbols: Vec<host_launcher::image::inspect::Undefined>| {
            let mut names: Vec<_> = symbols.into_iter().map(|symbol| symbol.name).collect();
            names.sort();
            names
        };
        let calls =
            ["Clear", "End", "Execute", "Lookup", "Start"].map(|call| format!("AicpuTsTaskCache{call}"));
        let order = ["ChannelDrainOnThread", "ChannelFenceOnThread"].map(str::to_owned);
        assert_eq!(
            names(weak),
            [&calls[..], &order].concat().iter().map(|call| format!("Hcomm{call}")).collect::<Vec<_>>()
        );
        let mut strong = names(strong);
        strong.retain(|name| !name.starts_with("mem") && name != "bcmp");
        assert_eq!(
            strong,
            [
                "HcommAcquireComm",
                "HcommBatchModeEnd",
                "HcommBatchModeStart",
                "HcommChannelNotifyRecordOnThread",
                "HcommChannelNotifyWaitOnThread",
                "HcommLocalCopyOnThread",
                "HcommLocalReduceOnThread",
                "HcommReadOnThread",
                "HcommReadReduceOnThread",
                "HcommReleaseComm",
                "HcommThreadNotifyRecordOnThread",
                "HcommThreadNotifyWaitOnThread",
                "HcommWriteOnThread",
                "HcommWriteReduceOnThread",
                "HcommWriteReduceWithNotifyOnThread",
                "HcommWriteWithNotifyOnThread",
            ]
        );
    }
    let size = std::fs::metadata(&path).expect("there").len();
    assert!(size <= 96 << 10, "{size} bytes");
}

#[test]
fn no_instruction_names_a_register_above_el0() {
    use object::{Object, ObjectSection};
    let Some(path) = aicpu("libaicpu_ts_kernel.so") else { return };
    let bytes = std::fs::read(path).expect("readable");
    let file = object::File::parse(&*bytes).expect("ELF");
    let code = file.section_by_name(".text").expect("there is code").data().expect("in the file");
    let words = code.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().expect("4 bytes")));
    // MRS and MSR (Arm ARM C6.2): bits 31 to 22 fixed, bit 21 the direction, bit 20 set; op1 in bits 18 to 16.
    let moves: Vec<u32> = words.filter(|word| word & 0xffd0_0000 == 0xd510_0000).collect();
    assert!(moves.len() >= 2, "the clock is read: {moves:x?}");
    assert!(moves.iter().all(|word| word >> 16 & 7 == 3), "op1 is 3 for what EL0 may name: {moves:x?}");
}

#[test]
fn a_custom_operator_is_as_clean() {
    let Some(path) = aicpu("libcustom_all_gather.so") else { return };
    let found = Inspection::read(&path).expect("readable");
    assert!(found.refusals.is_empty(), "{:?}", found.refusals);
    assert_eq!(found.exports, ["CustomAllGather"]);
}

#[test]
fn the_json_beside_it_names_file_and_entry() {
    let Some(path) = aicpu("libaicpu_ts_kernel.so") else { return };
    let text = std::fs::read(path.with_extension("json")).expect("beside it");
    let json: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
    let info = &json["AicpuTsLaunch"]["opInfo"];
    assert_eq!(info["opKernelLib"], "AICPUKernel");
    assert_eq!(info["kernelSo"], "libaicpu_ts_kernel.so");
    assert_eq!(info["functionName"], "AicpuTsLaunch");
}

#[test]
fn what_a_loader_would_refuse_is_said() {
    let Some(path) = aicpu("libaicpu_ts_kernel.so") else { return };
    let good = std::fs::read(&path).expect("readable");
    assert_eq!(refusals(&good), []);
    let patched = |at: usize, bytes: &[u8]| {
        let mut file = good.clone();
        file[at..at + bytes.len()].copy_from_slice(bytes);
        file
    };
    // The processor of this host.
    assert_eq!(refusals(&patched(18, &62_u16.to_le_bytes())), [ErrorCode::IMAGE_MACHINE]);
    // The first loaded segment (program header 1: flags at 4, size in the file at 32, alignment at 48).
    let header = 64 + 56;
    assert_eq!(good[header], 1, "PT_LOAD");
    assert_eq!(refusals(&patched(header + 4, &[7])), [ErrorCode::SEGMENT_WRITE_EXECUTE]);
    assert_eq!(refusals(&patched(header + 48, &4096_u64.to_le_bytes())), [ErrorCode::SEGMENT_ALIGN]);
    assert_eq!(refusals(&patched(header + 32, &(1_u64 << 40).to_le_bytes())), [ErrorCode::SEGMENT_FILE]);
    assert_eq!(refusals(&patched(header, &[7])), [ErrorCode::SEGMENT_KIND], "thread-local storage");
    // The note: its version, and its name.
    let note = good.windows(8).position(|bytes| bytes == b"aicpu-ts").expect("the note");
    assert_eq!(refusals(&patched(note + 12, &[2])), [ErrorCode::NOTE_ABI]);
    assert_eq!(refusals(&patched(note, b"A")), [ErrorCode::NOTE_MISSING]);
    // A symbol that nobody has.
    let symbol = good.windows(16).position(|bytes| bytes == b"HcommReleaseComm").expect("the name");
    assert_eq!(refusals(&patched(symbol, b"G")), [ErrorCode::OBJECT_SYMBOL]);
    // An entry of the dynamic table, said to be DT_TEXTREL.
    use object::{Object, ObjectSection};
    let parsed = object::File::parse(&*good).expect("ELF");
    let (start, len) = parsed.section_by_name(".dynamic").and_then(|own| own.file_range()).expect("dynamic");
    let mut entries = (start..start + len).step_by(16).map(|at| usize::try_from(at).expect("small"));
    // DT_FLAGS_1 or, where there is none, the hash table, which nothing here reads.
    let spare = [0x6fff_fffb_u64, 0x6fff_fef5, 4].map(u64::to_le_bytes);
    let at = entries.find(|at| spare.iter().any(|tag| good[*at..*at + 8] == *tag)).expect("one of them");
    assert_eq!(refusals(&patched(at, &22_u64.to_le_bytes())), [ErrorCode::OBJECT_TEXT]);
    // Half a file, on which a loader would crash.
    let half = Inspection::of(&good[..good.len() / 2]).expect_err("its tables are gone");
    assert_eq!(half.code(), ErrorCode::IMAGE_SECTIONS);
}

#[test]
fn a_program_with_a_c_library_is_no_kernel() {
    let Some(path) = aicpu("driver") else { return };
    let codes = refusals(&std::fs::read(path).expect("readable"));
    for code in [
        ErrorCode::SEGMENT_KIND,
        ErrorCode::NOTE_MISSING,
        ErrorCode::OBJECT_SYMBOL,
        ErrorCode::OBJECT_EXPORTS,
        ErrorCode::OBJECT_NEEDED,
    ] {
        assert!(codes.contains(&code), "{code}: {codes:?}");
    }
}
