//! Seeds of the fuzz targets: for each of them inputs that its reader accepts, or refuses only late.
//!
//! With `AICPU_TS_WRITE_FUZZ_SEEDS` they are written there, a folder for each target; `cargo xtask fuzz` does so.

#[path = "../../host-launcher/tests/image/mod.rs"]
#[expect(dead_code, reason = "the launcher's tests damage the image; here it is a seed")]
mod image;

use std::fs;
use std::path::{Path, PathBuf};

use aicpu_tests::scene::{Scene, TIMEOUT, case, warm};
use aicpu_tests::world::{self, Place};
use algorithm_file::AlgorithmFile;
use device_model::fault::Fault;
use host_launcher::communicator::Config;
use host_launcher::diagnosis::{dump, offline};
use host_launcher::image::Image;
use host_launcher::rank_table::{RankTable, Source};
use host_launcher::settings::Settings;
use wire::context::Context;
use wire::launch::{Algorithm, Launch, OpKind};
use wire::program::{Program, ProgramEntry, ProgramHeader, ProgramOperand};
use wire::script::{Script, ScriptEntry, ScriptHeader};
use wire::{Command, DataType, Descriptor, LaunchArgs, WorkRequest};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

/// Writes a seed where it is asked for.
fn seed(target: &str, name: &str, bytes: &[u8]) {
    let Some(folder) = std::env::var_os("AICPU_TS_WRITE_FUZZ_SEEDS") else { return };
    let folder = PathBuf::from(folder).join(target);
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join(name), bytes).unwrap();
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The files in a folder of the project, by name; none of them is large.
fn files(folder: &str) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(root().join(folder)).unwrap().map(|entry| entry.unwrap().path());
    let files = entries.filter(|path| path.is_file() && fs::metadata(path).unwrap().len() < 1 << 16);
    files
        .map(|path| (path.file_name().unwrap().to_str().unwrap().to_owned(), fs::read(&path).unwrap()))
        .collect()
}

fn golden(start: &str) -> Vec<(String, Vec<u8>)> {
    let files: Vec<_> =
        files("tests/golden/v1").into_iter().filter(|(name, _)| name.starts_with(start)).collect();
    assert!(!files.is_empty(), "no golden file is called {start}…");
    files
}

/// Bytes aligned as a window's.
fn aligned(bytes: &[u8]) -> Vec<u64> {
    let mut words = vec![0; bytes.len().div_ceil(8)];
    words.as_mut_bytes()[..bytes.len()].copy_from_slice(bytes);
    words
}

#[test]
fn contexts_launches_and_descriptors() {
    for (name, bytes) in golden("context-") {
        Context::parse(&aligned(&bytes).as_bytes()[..bytes.len()]).unwrap();
        seed("context", &name, &bytes);
    }
    for (name, bytes) in golden("launch-args") {
        Launch::parse(&LaunchArgs::read_from_bytes(&bytes).unwrap()).unwrap();
        seed("launch", &name, &bytes);
    }
    for (name, bytes) in golden("sqe-") {
        Command::parse(&Descriptor::read_from_bytes(&bytes).unwrap().into()).unwrap();
        seed("descriptor", &name, &bytes);
    }
    for (name, bytes) in golden("wqe-") {
        WorkRequest::parse(&Descriptor::read_from_bytes(&bytes).unwrap().into()).unwrap();
        seed("descriptor", &name, &bytes);
    }
}

#[test]
fn programs_and_scripts() {
    let entry = |start_base| ProgramEntry {
        op: OpKind::AllReduce as u8,
        dtype: DataType::Fp32 as u8,
        algorithm: Algorithm::Nhr as u8,
        count: 16,
        context_len: 640,
        start_base,
        input: ProgramOperand { slot: 0, offset: 64, len: 64, ..ProgramOperand::default() },
        output: ProgramOperand { slot: 1, offset: 0, len: 64, ..ProgramOperand::default() },
        ..ProgramEntry::default()
    };
    let entries = [entry(100), entry(40)];
    let header = ProgramHeader { instance: [11, 12], epoch: 3, bindings: 2, ..ProgramHeader::default() };
    let header = header.sealed(&entries).unwrap();
    Program::new(&header, &entries).unwrap();
    seed("program", "two-all-reduces", &[header.as_bytes(), entries.as_bytes()].concat());

    for (name, bytes) in golden("script") {
        let (header, rest) = ScriptHeader::read_from_prefix(&bytes).unwrap();
        let mut entries = vec![ScriptEntry::new_zeroed(); rest.len() / size_of::<ScriptEntry>()];
        entries.as_mut_bytes().copy_from_slice(rest);
        Script::new(&header, &entries).unwrap();
        seed("script", &name, &bytes);
    }
}

/// JSON without blanks and line ends; there are none in its strings.
fn without_blanks(json: &[u8]) -> Vec<u8> {
    json.iter().copied().filter(|byte| !byte.is_ascii_whitespace()).collect()
}

#[test]
fn rank_tables_and_topologies() {
    let read = |name: &str| fs::read(root().join("examples/rank-tables").join(name)).unwrap();
    let topology = read("topo_mesh8.json");
    for (name, bytes) in files("examples/rank-tables") {
        let is_table = name.ends_with(".json") && name != "topo_mesh8.json";
        if !is_table {
            continue;
        }
        let table = Source { bytes: &bytes, name: &name };
        let second = name.starts_with("v2.0");
        let beside = second.then_some(Source { bytes: &topology, name: "topology" });
        RankTable::parse(table, beside).unwrap();
        let both = [&bytes[..], b"\0", &topology].concat();
        seed("rank_table", &name, if second { &both } else { &bytes });
    }
    // What the target puts before it; blanks in a seed are only bytes to read.
    let table = fs::read(root().join("fuzz/table.json")).unwrap();
    let good = |bytes: &[u8]| {
        let beside = Some(Source { bytes, name: "topology" });
        RankTable::parse(Source { bytes: &table, name: "table" }, beside)
    };
    good(&topology).unwrap();
    seed("topology", "mesh8", &without_blanks(&topology));
    for (name, bytes) in files("tests/bad/rank-table") {
        seed("rank_table", &format!("bad-{name}"), &bytes);
    }
    for (name, bytes) in files("tests/bad/topology") {
        let (as_it_is, short) = (good(&bytes), without_blanks(&bytes));
        assert_eq!(
            as_it_is.map_err(|error| error.code()),
            good(&short).map_err(|error| error.code()),
            "{name}"
        );
        seed("topology", &format!("bad-{name}"), &short);
    }
}

#[test]
fn settings_and_arguments() {
    let lines = [
        "HCCL_ALGO=allreduce=level0:NA;level1:ring/allgather=level0:NA;level1:H-D_R",
        "HCCL_ALGO=level0:fullmesh;level1:NHR",
        "HCCL_BUFFSIZE=200\nHCCL_EXEC_TIMEOUT=1836\nHCCL_CONNECT_TIMEOUT=120\nHCCL_DETERMINISTIC=strict",
        "HCCL_OP_EXPANSION_MODE=AI_CPU\nRANK_ID=3\nRANK_SIZE=8\nDEVICE_ID=3\nRANK_TABLE_FILE=a.json",
        "HCCL_OP_RETRY_ENABLE=L1:0,L2:1\nHCCL_OP_RETRY_PARAMS=MaxCnt:3,HoldTime:5000,IntervalTime:1000",
        "HCCL_BUFSIZE=1\nHCCL_RDMA_TIMEOUT=20\nHCCL_HOST_SOCKET_PORT_RANGE=60000-60050",
    ];
    let mut taken = 0;
    for (number, text) in lines.iter().enumerate() {
        let variables = text.lines().map(|line| line.split_once('=').unwrap());
        taken += usize::from(Settings::from_env(variables.map(|(a, b)| (a.into(), b.into()))).is_ok());
        seed("settings", &number.to_string(), text.as_bytes());
    }
    assert!(taken >= 4, "{taken} of {} are taken", lines.len());

    // The command's own tests say what these mean.
    for (number, words) in [
        "run all-reduce --ranks 4 --algo ring --bytes 64K --fault kill:rank=2@step=1 --json",
        "run all-to-all-v --rank-table a.json --topology b.json --count 9 --staging direct --rotate-buffers 3",
        "verify broadcast --ranks 6 --all-algos --dtype bf16 --root 2",
        "explain all-reduce --ranks 8 --cache --then --count 7 --then --in-place",
        "sim --seeds 100 --seed 0x5eed --faults 3 --timeout 500 --jobs 1",
        "diagnose a.dump b.dump",
        "image inspect kernel.elf",
    ]
    .into_iter()
    .enumerate()
    {
        seed("arguments", &number.to_string(), words.replace(' ', "\n").as_bytes());
    }
}

#[test]
fn images_and_algorithms() {
    Image::parse(image::minimal(), "seed").unwrap();
    seed("image", "minimal", &image::minimal());
    for folder in ["examples/algorithms", "tests/data/msccl"] {
        for (name, bytes) in files(folder).into_iter().filter(|(name, _)| name.ends_with(".xml")) {
            AlgorithmFile::parse(core::str::from_utf8(&bytes).unwrap()).unwrap();
            seed("algorithm", &name, &bytes);
        }
    }
}

#[test]
fn dumps_of_a_failure() {
    let folder = tempfile::tempdir().unwrap();
    let cluster = world::threads(2, Place::OneServer, 24 << 20);
    let config = Config { timeout: TIMEOUT, dump: Some(folder.path().to_owned()), ..Config::default() };
    let mut scene = Scene::with(&cluster, config);
    warm(scene.bench(), Algorithm::Ring);
    cluster.machine().inject(1, Fault::Stall);
    scene.bench().launch(&case(Algorithm::Ring)).unwrap();
    let failure = scene.failure();
    assert!(offline::diagnose(&[folder.path()]).unwrap().root.is_some(), "{}", failure.error());
    for rank in 0..2 {
        let bytes = fs::read(folder.path().join(format!("rank-{rank:04}.{}", dump::ENDING))).unwrap();
        // The target gives head and checksum itself.
        seed("dump", &format!("rank-{rank}"), &bytes[dump::MAGIC.len() + 4..bytes.len() - 4]);
    }
}

#[test]
fn graphs_and_rings() {
    // Operation, algorithm, staging, ranks, count, flags; then what is done to which task.
    for op in 0..u8::try_from(OpKind::ALL.len()).unwrap() {
        for algorithm in 0..u8::try_from(Algorithm::ALL.len()).unwrap() {
            let edits: [&[u8]; 3] = [&[], &[0, 3, 0], &[1, 5, 5, 16, 0, 0, 0, 0, 0, 0, 0, 8]];
            for (number, edit) in edits.iter().enumerate() {
                let bytes = [&[op, algorithm, algorithm & 1, 2, 12, 1][..], edit].concat();
                seed("graph", &format!("{op}-{algorithm}-{number}"), &bytes);
            }
        }
    }
    // An entry, a doorbell, a run of the engines.
    for (name, entry) in golden("sqe-").into_iter().chain(golden("wqe-")) {
        for (queue, fix) in [(0, 0x7f), (1, 0x53)] {
            let bytes = [&[queue, 0][..], &entry, &[fix, 0, queue, 4, 1, 0, 4, 1, 0, 7, 63]].concat();
            seed("ring", &format!("{name}-{queue}"), &bytes);
        }
    }
    for (name, entry) in golden("cqe") {
        let mut bytes = vec![2, 3, 4, 7, 3, 9, 1, 0, 2];
        bytes.extend(entry);
        bytes.extend([0, 5, 5]);
        seed("completion", &name, &bytes);
    }
}
