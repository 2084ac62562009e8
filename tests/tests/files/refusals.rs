//! Files that do not fit the call, and scripts that are not what they were.

use std::fs;
use std::sync::Arc;

use aicpu_tests::world::{self, Place};
use host_launcher::algorithm_file as file;
use host_launcher::buffer::SharedBuffer;
use host_launcher::communicator::{Communicator, Config, Operation, Place as At};
use templates::{Plan, Shape, Tables};
use wire::launch::{Algorithm, OpKind, Staging};
use wire::script::Script;
use wire::{DataType, ErrorCode, ReduceOp};

use crate::bytes::read;

#[test]
fn a_file_for_another_call_is_refused_before_anything_is_launched() {
    let file = Some(Arc::new(read("tests/data/msccl/alltoall-8n-0-9kb.xml")));
    let good = Operation {
        op: OpKind::AllToAll,
        count: 8,
        algorithm: Algorithm::File,
        file,
        ..Operation::default()
    };
    for (ranks, change) in [
        (8, Operation { op: OpKind::AllReduce, ..good.clone() }),
        (4, good.clone()),
        (8, Operation { file: None, ..good.clone() }),
        (8, Operation { algorithm: Algorithm::Pairwise, ..good.clone() }),
    ] {
        let cluster = world::threads(ranks, Place::OneServer, 32 << 20);
        let mut comm = Communicator::create(&cluster, Config::default()).unwrap();
        let buffer = SharedBuffer::new(&cluster, 4096).unwrap();
        let (input, output) = (At { buffer: &buffer, offset: 0 }, At { buffer: &buffer, offset: 2048 });
        let error = comm.launch(0, &change, input, output).unwrap_err();
        assert_eq!(error.code(), ErrorCode::ALGORITHM_MISMATCH, "{error}");
        // In place it does not work either.
        if ranks == 8 {
            let error = comm.launch(0, &good, input, input).unwrap_err();
            assert_eq!(error.code(), ErrorCode::ALGORITHM_MISMATCH, "{error}");
        }
        comm.destroy().unwrap();
    }
}

#[test]
fn a_file_is_refused_with_its_name_line_and_column() {
    let folder = std::env::temp_dir().join(format!("aicpu-ts-files-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let path = folder.join("bad.xml");
    for (text, code, place) in [
        ("<algo coll=\"allreduce\">\n  </gpu>", ErrorCode::ALGORITHM_SYNTAX, "2:3"),
        ("<algo coll=\"allreduce\"\n  nchunksperloop=\"x\"/>", ErrorCode::ALGORITHM_VALUE, "2:3"),
    ] {
        fs::write(&path, text).unwrap();
        let error = file::read(&path).unwrap_err();
        assert_eq!(error.code(), code, "{error}");
        assert_eq!(error.place(), Some(&*format!("{}:{place}", path.display())), "{error}");
    }
    assert_eq!(file::read(&folder).unwrap_err().code(), ErrorCode::ALGORITHM_READ);
    fs::remove_dir_all(&folder).unwrap();
    assert_eq!(file::read(&path).unwrap_err().code(), ErrorCode::ALGORITHM_READ);
}

/// A kernel that gets the script of another rank, number of ranks, operation or use of buffers makes no plan of it.
#[test]
fn a_script_of_another_rank_or_operation_makes_no_plan() {
    let file = read("examples/algorithms/all-reduce-ring-8.xml");
    let script = &file.scripts(false).unwrap()[3];
    let right = Shape {
        op: OpKind::AllReduce,
        algorithm: Algorithm::File,
        levels: [None; 4],
        staging: Staging::Scratch,
        rank: 3,
        ranks: 8,
        root: 0,
        count: 1000,
        dtype: DataType::Fp32,
        reduce: ReduceOp::Sum,
        scratch_len: 1 << 20,
        threads: script.header.threads,
        inline_reduce: true,
        in_place: false,
        chunk: 0,
        piece: 0,
    };
    let plan = |shape: &Shape| {
        let script = Some(Script::trusted(&script.header, &script.entries));
        Plan::new(shape, &Tables { script, ..Tables::default() }).map(drop).map_err(|error| error.code)
    };
    assert_eq!(plan(&right), Ok(()));
    for wrong in [
        Shape { rank: 2, ..right },
        Shape { ranks: 9, ..right },
        Shape { op: OpKind::AllGather, ..right },
        Shape { in_place: true, ..right },
    ] {
        assert_eq!(plan(&wrong), Err(ErrorCode::SCRIPT_MISMATCH), "{wrong:?}");
    }
}
