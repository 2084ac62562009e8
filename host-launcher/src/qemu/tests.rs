use core::time::Duration;
use std::fs::File;
use std::thread;
use std::time::Instant;

use wire::ErrorCode;
use wire::boot::CoreRecord;
use zerocopy::FromZeros;

use super::process::Emulator;
use super::{Ended, memory::PrivateMemory, process, stopped};

fn shell(script: &str) -> Emulator {
    Emulator::start("sh".as_ref(), vec!["-c".into(), script.into()]).unwrap()
}

fn ended(emulator: &Emulator) -> Ended {
    let start = Instant::now();
    loop {
        if let Some(ended) = emulator.ended() {
            return ended;
        }
        assert!(start.elapsed() < Duration::from_secs(20), "the child does not end");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn exit_codes_and_output_arrive() {
    let emulator = shell("echo out; echo err >&2; exit 3");
    assert_eq!(ended(&emulator), Ended::Code(3));
    assert_eq!(emulator.console(), "out\nerr\n");
    assert_eq!(
        Ended::Code(3).to_string(),
        "the emulator ended with code 3 (the image met a processor exception)"
    );
    let killed = shell("kill -9 $$");
    assert_eq!(ended(&killed), Ended::Signal(9));
}

#[test]
fn output_is_kept_up_to_a_limit_and_read_beyond_it() {
    let emulator = shell("head -c 300000 /dev/zero");
    assert_eq!(ended(&emulator), Ended::Code(0));
    assert_eq!(emulator.console().len(), 64 << 10);
}

#[test]
fn a_missing_program_is_an_error_with_advice() {
    let error = Emulator::start("no-such-emulator".as_ref(), Vec::new()).unwrap_err();
    assert_eq!(error.code(), ErrorCode::EMULATOR_START);
    assert!(
        error.to_string().contains("no-such-emulator") && error.advice().contains("cargo xtask setup"),
        "{error}"
    );
}

#[test]
fn rings_arrive_and_never_wait() {
    let emulator = shell("head -c 3 | wc -c; exec sleep 1000");
    for _ in 0..3 {
        emulator.ring();
    }
    let start = Instant::now();
    while emulator.console().trim() != "3" {
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}", emulator.console());
        thread::sleep(Duration::from_millis(1));
    }
    // More than any pipe holds, and nobody reads.
    for _ in 0..200_000 {
        emulator.ring();
    }
}

#[test]
fn dropping_ends_the_child() {
    let emulator = shell("echo $$; exec sleep 1000");
    let start = Instant::now();
    let pid = loop {
        if let Ok(pid) = emulator.console().trim().parse::<u32>() {
            break pid;
        }
        assert!(start.elapsed() < Duration::from_secs(20));
        thread::sleep(Duration::from_millis(1));
    };
    let process = format!("/proc/{pid}");
    assert!(std::path::Path::new(&process).exists());
    drop(emulator);
    assert!(!std::path::Path::new(&process).exists());
}

#[test]
fn memory_without_a_name_is_reached_through_its_path() {
    let memory = PrivateMemory::new(4 << 20).unwrap();
    memory.write(0x11_0000 + 128, &[1, 0, 0, 0, 0, 0, 0, 0, 7]).unwrap();
    let record = memory.record(1).unwrap();
    assert_eq!((record.state, record.code), (1, 7));
    assert_eq!(memory.record(0).unwrap(), CoreRecord::new_zeroed());
    let again = File::open(process::path(memory.file())).unwrap();
    assert_eq!(again.metadata().unwrap().len(), 4 << 20);
}

#[test]
fn a_stopped_core_says_why() {
    let mut record = CoreRecord::new_zeroed();
    record.code = 9002;
    record.state = 4;
    (record.esr, record.elr, record.far, record.spsr) = (0x9600_0005, 0x4020_0100, 0x1234, 0x3c4);
    let error = stopped(3, &record);
    assert_eq!((error.code(), error.place()), (ErrorCode::KERNEL_FAULT, Some("core 3")));
    assert_eq!(
        error.message(),
        "access to memory that is not mapped: ESR 0x96000005 ELR 0x40200100 FAR 0x1234 SPSR 0x3c4"
    );
    record.code = 9001;
    record.state = 3;
    record.line = 12;
    record.file[..9].copy_from_slice(b"src/ab.rs");
    assert_eq!(stopped(0, &record).message(), "defect at src/ab.rs:12");
}

#[test]
fn memory_that_no_system_has_is_an_error() {
    let error = PrivateMemory::new(u64::MAX).unwrap_err();
    assert_eq!(error.code(), ErrorCode::EMULATOR_MEMORY, "{error}");
}
