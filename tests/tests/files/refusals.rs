//! Files that do not fit the call, and scripts that are not what they were.

use std::fs;
use std::sync::Arc;

use aicpu_tests::world::{self, Place};
use host_launcher::algorithm_file as file;
use host_launcher::buffer::SharedBuffer;
use host_launcher::communicator::{Communicator, Config, Operation, Place as At};
use wire::ErrorCode;
use wire::launch::{Algorithm, OpKind};

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
