//! An operation that is only slow ends at its deadline too.

use core::time::Duration;

use aicpu_tests::bench::Bench;
use aicpu_tests::world::{self, Place};
use host_launcher::communicator::Config;
use wire::launch::Algorithm;
use wire::{DataType, ErrorCode, ReduceOp};

use aicpu_tests::scene::case;

const BYTES: u64 = 2 << 20;

/// Much payload in few tasks: the device looks up between them.
#[test]
fn a_deadline_amid_much_payload() {
    let cluster = world::threads(8, Place::OneServer, 48 << 20);
    let timeout = Duration::from_millis(1);
    let mut bench = Bench::new(&cluster, Config { timeout, ..Config::default() }, BYTES).unwrap();
    let mut large = case(Algorithm::MeshOneShot);
    large.operation.count = BYTES / DataType::Int64.size_bytes();
    (large.operation.dtype, large.operation.reduce) = (DataType::Int64, ReduceOp::Prod);
    bench.launch(&large).unwrap();
    let error = bench.communicator().synchronize().unwrap_err();
    assert_eq!(error.code(), ErrorCode::HOST_NOTIFY_TIMEOUT, "{error}");
    bench.finish().unwrap();
}
