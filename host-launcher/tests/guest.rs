//! The aarch64 image under QEMU: boots, answers, logs, and says why it stopped.
//!
//! Needs the image in `AICPU_IMAGE_ELF`, which `cargo xtask test` builds and names; without it nothing is tested.

use core::time::Duration;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::thread;
use std::time::Instant;

use host_launcher::cluster::{Aicpu, Cluster};
use host_launcher::communicator::{Communicator, Config, Operation};
use host_launcher::image::Image;
use host_launcher::qemu::log::LogTable;
use host_launcher::qemu::{Guest, Options};
use host_launcher::rank_table::RankTable;
use host_launcher::run::{Run, Setup};
use host_launcher::topology::Topology;
use object::{Object, ObjectSection, ObjectSymbol};
use rustix::fs::{MemfdFlags, memfd_create};
use wire::boot::WindowPlace;
use wire::image_note::ImageFlags;
use wire::launch::{Algorithm, OpKind, Staging};
use wire::{DataType, DeviceAddr, ErrorCode, ReduceOp, npu};

/// An odd number of 64 KiB pieces, so that neighbouring windows share no large page.
const WINDOW: u64 = 0x5_0000;

fn image() -> Option<PathBuf> {
    let path = std::env::var_os("AICPU_IMAGE_ELF").map(PathBuf::from);
    if path.is_none() {
        eprintln!("skipped: AICPU_IMAGE_ELF names no image; run `cargo xtask test`");
    }
    path
}

struct Fabric {
    file: File,
    windows: Vec<WindowPlace>,
}

impl Fabric {
    fn new(npus: u64) -> Self {
        let file = File::from(memfd_create("test-fabric", MemfdFlags::CLOEXEC).unwrap());
        file.set_len(npus * WINDOW).unwrap();
        let place =
            |npu| WindowPlace { device_addr: DeviceAddr((npu + 1) << 44), offset: npu * WINDOW, len: WINDOW };
        Self { file, windows: (0..npus).map(place).collect() }
    }

    fn load(&self, npu: usize, word: u64) -> u64 {
        let mut bytes = [0; 8];
        self.file.read_exact_at(&mut bytes, self.windows[npu].offset + word).unwrap();
        u64::from_le_bytes(bytes)
    }

    fn store(&self, npu: usize, word: u64, value: u64) {
        self.file.write_all_at(&value.to_le_bytes(), self.windows[npu].offset + word).unwrap();
    }

    fn wait(&self, npu: usize, word: u64, done: impl Fn(u64) -> bool) -> u64 {
        let start = Instant::now();
        loop {
            let value = self.load(npu, word);
            if done(value) {
                return value;
            }
            assert!(start.elapsed() < Duration::from_secs(20), "NPU {npu}: word {word:#x} is {value}");
            thread::yield_now();
        }
    }
}

fn boot(fabric: &Fabric, options: &Options) -> Option<(Guest, Image)> {
    let image = Image::read(&image()?).unwrap();
    let start = Instant::now();
    let guest = Guest::boot(&image, &fabric.windows, &fabric.file, options).unwrap();
    println!("{} cores run after {} ms", fabric.windows.len(), start.elapsed().as_millis());
    Some((guest, image))
}

#[test]
fn the_image_has_an_identity_and_no_panic_path() {
    let Some(path) = image() else { return };
    let image = Image::read(&path).unwrap();
    assert_eq!(image.build_id().map(<[u8]>::len), Some(20));
    assert_eq!(image.note().flags, ImageFlags::PANIC_FREE.bits());
}

#[test]
fn every_core_answers_through_shared_memory() {
    for npus in [1, 2, 8, 16] {
        let fabric = Fabric::new(npus);
        let Some((guest, _)) = boot(&fabric, &Options::default()) else { return };
        for npu in 0..fabric.windows.len() {
            fabric.wait(npu, npu::KERNEL_STATE, |state| state == npu::KernelState::Ready as u64);
            fabric.store(npu, npu::LAUNCH_TAIL, 1);
        }
        for npu in 0..fabric.windows.len() {
            fabric.wait(npu, npu::LAUNCH_HEAD, |head| head == 1);
            let code = fabric.load(npu, npu::STATUSES) >> 32 & 0xffff;
            assert_eq!(code, u64::from(ErrorCode::LAUNCH_MAGIC.0), "the launch posted was nothing but zeros");
            let beat = fabric.load(npu, npu::HEARTBEAT);
            fabric.wait(npu, npu::HEARTBEAT, |now| now > beat);
        }
        guest.check().unwrap();
        assert_eq!(guest.console(), "");
    }
}

#[test]
fn a_counting_machine_works_the_same() {
    let fabric = Fabric::new(2);
    let options = Options { count_instructions: true, ..Options::default() };
    let Some((guest, _)) = boot(&fabric, &options) else { return };
    fabric.store(1, npu::LAUNCH_TAIL, 1);
    fabric.wait(1, npu::LAUNCH_HEAD, |head| head == 1);
    guest.check().unwrap();
}

/// Returns the processor time that a process has used, in hundredths of a second (proc(5), utime + stime).
fn processor_time(process: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

#[test]
fn a_machine_of_its_own_sleeps_until_it_is_woken() {
    let fabric = Fabric::new(1);
    let options = Options { per_npu: true, ..Options::default() };
    let Some((guest, _)) = boot(&fabric, &options) else { return };
    fabric.wait(0, npu::KERNEL_STATE, |state| state == npu::KernelState::Ready as u64);
    let before = processor_time(guest.process_id());
    thread::sleep(Duration::from_secs(1));
    let used = processor_time(guest.process_id()) - before;
    assert!(used < 5, "{used} % of a processor while there is nothing to do");

    fabric.store(0, npu::LAUNCH_TAIL, 1);
    thread::sleep(Duration::from_millis(50));
    assert_eq!(fabric.load(0, npu::LAUNCH_HEAD), 0, "it looks for work without having been woken");
    for posted in 1..=100 {
        fabric.store(0, npu::LAUNCH_TAIL, posted);
        guest.wake();
        fabric.wait(0, npu::LAUNCH_HEAD, |head| head == posted);
    }
    guest.check().unwrap();
}

#[test]
fn machines_of_their_own_carry_out_an_operation_longer_than_their_rings() {
    let Some(path) = image() else { return };
    let texts = LogTable::read(&std::fs::read(&path).unwrap()).unwrap().expect("the image logs");
    let options = Options { per_npu: true, ..Options::default() };
    let aicpu = Aicpu::Qemu { image: Image::read(&path).unwrap(), options };
    let topology = Topology::new(&RankTable::uniform(4, 4).unwrap());
    let operation = Operation {
        op: OpKind::AllReduce,
        count: 50_000,
        dtype: DataType::Fp32,
        reduce: ReduceOp::Sum,
        algorithm: Algorithm::Ring,
        staging: Staging::Scratch,
        chunk: 100,
        ..Operation::default()
    };
    let cluster = Cluster::start(topology, 64 << 20, &aicpu).unwrap();
    assert_eq!(cluster.guests().len(), 4);
    let comm = Communicator::create(&cluster, Config::default()).unwrap();
    let mut run = Run::prepare(
        &cluster,
        comm,
        operation,
        &Setup { chunk: 100, seed: 1, in_place: false, buffers: 1, capture: 0 },
    )
    .unwrap();
    for _ in 0..2 {
        let (_, answers) = run.step().unwrap();
        for answer in &answers {
            assert_eq!((answer.status.code, answer.status.chunks), (0, 500), "{answer:?}");
            assert!(answer.status.sqes > 4 * 2048, "many times the depth of a ring: {answer:?}");
        }
    }
    let lines = texts.stream().decode(&cluster.take_log(3));
    assert!(lines[0].contains("core 0 serves the window"), "{lines:?}");
    assert!(cluster.take_log(3).is_empty(), "what has been taken is gone");
    cluster.check().unwrap();
}

#[test]
fn more_npus_than_a_machine_has_cores_share_several() {
    let Some(path) = image() else { return };
    let aicpu = Aicpu::Qemu { image: Image::read(&path).unwrap(), options: Options::default() };
    let topology = Topology::new(&RankTable::uniform(17, 8).unwrap());
    let cluster = Cluster::start(topology, 1 << 20, &aicpu).unwrap();
    assert_eq!((cluster.guests().len(), cluster.aicpu()), (2, "qemu"), "and all 17 kernels take launches");
}

#[test]
fn the_text_log_names_core_window_and_source() {
    let fabric = Fabric::new(3);
    let Some((_guest, _)) = boot(&fabric, &Options::default()) else { return };
    let table = LogTable::read(&std::fs::read(image().unwrap()).unwrap()).unwrap().expect("the image logs");
    for npu in 0..3 {
        let written = fabric.wait(npu, npu::LOG, |written| written > 0);
        let mut bytes = vec![0; usize::try_from(written).unwrap()];
        fabric.file.read_exact_at(&mut bytes, fabric.windows[npu].offset + npu::LOG + 16).unwrap();
        let lines = table.stream().decode(&bytes);
        let expected = format!("core {npu} serves the window at {:#x}", (npu as u64 + 1) << 44);
        assert!(lines[0].contains(&expected) && lines[0].contains("core_main.rs:"), "{lines:?}");
    }
}

/// Replaces the first instructions of a function in an image file.
fn patch(elf: &mut [u8], function: &str, instructions: &[u32]) {
    let file = object::File::parse(&*elf).unwrap();
    let address = file.symbols().find(|symbol| symbol.name() == Ok(function)).expect(function).address();
    let code = file.section_by_name(".text").unwrap();
    let at = usize::try_from(code.file_range().unwrap().0 + address - code.address()).unwrap();
    let bytes: Vec<u8> = instructions.iter().flat_map(|word| word.to_le_bytes()).collect();
    elf[at..at + bytes.len()].copy_from_slice(&bytes);
}

#[test]
fn an_exception_is_reported_with_its_registers() {
    let Some(path) = image() else { return };
    let cases: [(&str, &[u32], &str); 5] = [
        ("brk #0", &[0xd420_0000], "breakpoint instruction: ESR 0xf2000000 ELR 0x402"),
        ("udf #0", &[0], "undefined instruction: ESR 0x2000000 ELR 0x402"),
        (
            "adr x0, .; str x0, [x0]",
            &[0x1000_0000, 0xf900_0000],
            "write to memory that is read-only: ESR 0x9600004f",
        ),
        (
            "mov x0, #1 << 46; ldr x0, [x0]",
            &[0xd2c8_0000, 0xf940_0000],
            "access to memory that is not mapped: ESR 0x96000004 ELR 0x402",
        ),
        (
            "1: stp x29, x30, [sp, #-16]!; b 1b",
            &[0xa9bf_7bfd, 0x17ff_ffff],
            "access to memory that is not mapped",
        ),
    ];
    for (what, instructions, expected) in cases {
        let mut elf = std::fs::read(&path).unwrap();
        // Every core logs a line once translation is on.
        patch(&mut elf, "_defmt_acquire", instructions);
        let image = Image::parse(elf, what).unwrap();
        let fabric = Fabric::new(1);
        let stopped = match Guest::boot(&image, &fabric.windows, &fabric.file, &Options::default()) {
            Err(error) => error,
            Ok(guest) => {
                fabric.wait(0, npu::KERNEL_STATE, |state| state == npu::KernelState::Parked as u64);
                let start = Instant::now();
                loop {
                    assert!(start.elapsed() < Duration::from_secs(20), "{what}: nothing happens");
                    match guest.check() {
                        Err(error) => break error,
                        Ok(()) => thread::sleep(Duration::from_millis(1)),
                    }
                }
            }
        };
        assert_eq!(
            (stopped.code(), stopped.place()),
            (ErrorCode::KERNEL_FAULT, Some("core 0")),
            "{what}: {stopped}"
        );
        assert!(stopped.message().contains(expected), "{what}: {stopped}");
    }
}
