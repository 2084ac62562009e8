//! T32: every reason of a policy alone, all of them together, and what is recorded for none.

use task_cache::{Directory, Mode, Policy, Product, Protocol, Protocols, Reason, Reasons, Request};
use wire::launch::OpKind;
use wire::{DataType, ReduceOp};

/// What the field records: an eager all-reduce out of place.
const PLAIN: Request = Request {
    op: OpKind::AllReduce,
    dtype: DataType::Fp32,
    reduce: ReduceOp::Sum,
    in_place: false,
    mode: Mode::Eager,
    protocols: Protocols::NONE.with(Protocol::UbCtp),
    product: Product::A5,
    toolkit: [9, 1, 0],
    disabled: false,
    sizes: [1024, 1024],
    null_address: false,
    chunks: 1,
};

fn field(request: &Request) -> Vec<Reason> {
    Policy::Hccl.judge(request).iter().collect()
}

#[test]
fn the_field_records_these_and_no_other_operations() {
    use wire::launch::OpKind::{AllGather, AllReduce, AllToAll, Broadcast, Reduce, ReduceScatter, Scatter};
    let recorded: Vec<_> =
        OpKind::ALL.iter().copied().filter(|op| field(&Request { op: *op, ..PLAIN }).is_empty()).collect();
    assert_eq!(recorded, [AllReduce, AllGather, ReduceScatter, Broadcast, Reduce, Scatter, AllToAll]);
}

#[test]
fn each_reason_of_the_field_stands_alone() {
    let alone = [
        (Reason::Disabled, Request { disabled: true, ..PLAIN }),
        (Reason::Product, Request { product: Product::A3, ..PLAIN }),
        (Reason::Product, Request { product: Product::A2, ..PLAIN }),
        (Reason::Product, Request { product: Product::Other, ..PLAIN }),
        (Reason::Version, Request { toolkit: [9, 0, 9], ..PLAIN }),
        (Reason::Version, Request { toolkit: [8, 5, 0], ..PLAIN }),
        (Reason::Operation, Request { op: OpKind::Gather, ..PLAIN }),
        (Reason::Operation, Request { op: OpKind::Barrier, ..PLAIN }),
        (Reason::CountVector, Request { op: OpKind::AllToAllV, ..PLAIN }),
        (Reason::CountVector, Request { op: OpKind::AllGatherV, ..PLAIN }),
        (Reason::CountVector, Request { op: OpKind::ReduceScatterV, ..PLAIN }),
        (Reason::PointToPoint, Request { op: OpKind::SendReceive, ..PLAIN }),
        (Reason::WideType, Request { dtype: DataType::Int64, ..PLAIN }),
        (Reason::WideType, Request { dtype: DataType::Uint64, ..PLAIN }),
        (Reason::WideType, Request { dtype: DataType::Fp64, op: OpKind::ReduceScatter, ..PLAIN }),
        (Reason::Prod, Request { reduce: ReduceOp::Prod, ..PLAIN }),
        (Reason::InPlace, Request { in_place: true, ..PLAIN }),
        (Reason::Protocol, Request { protocols: PLAIN.protocols.with(Protocol::Roce), ..PLAIN }),
        (Reason::Captured, Request { mode: Mode::Captured, ..PLAIN }),
        (Reason::Offloaded, Request { mode: Mode::Offloaded, ..PLAIN }),
        (Reason::Fused, Request { mode: Mode::Fused, ..PLAIN }),
        (Reason::Empty, Request { sizes: [0, 0], ..PLAIN }),
        (Reason::NullAddress, Request { null_address: true, ..PLAIN }),
    ];
    for (reason, request) in alone {
        assert_eq!(field(&request), [reason], "{request:?}");
    }
    let told: Vec<Reason> = alone.iter().map(|(reason, _)| *reason).collect();
    let untold: Vec<_> = Reason::ALL.iter().filter(|reason| !told.contains(reason)).collect();
    assert_eq!(untold, [&Reason::Chunks], "which is ours");
}

#[test]
fn what_the_field_lets_through() {
    let through = [
        Request { toolkit: [9, 1, 1], ..PLAIN },
        Request { toolkit: [10, 0, 0], ..PLAIN },
        Request { dtype: DataType::Int64, op: OpKind::AllGather, ..PLAIN },
        Request { reduce: ReduceOp::Prod, op: OpKind::AllToAll, ..PLAIN },
        Request { in_place: true, op: OpKind::Broadcast, ..PLAIN },
        Request { protocols: PLAIN.protocols.with(Protocol::Uboe), ..PLAIN },
        Request { protocols: Protocols::NONE, ..PLAIN },
        Request { sizes: [0, 8], ..PLAIN },
        Request { sizes: [8, 0], ..PLAIN },
        Request { chunks: 9, ..PLAIN },
    ];
    for request in through {
        assert_eq!(field(&request), [], "{request:?}");
    }
}

#[test]
fn all_failing_reasons_are_listed_not_only_the_first() {
    let bad = Request {
        op: OpKind::ReduceScatterV,
        dtype: DataType::Fp64,
        reduce: ReduceOp::Prod,
        in_place: true,
        mode: Mode::Captured,
        protocols: Protocols::NONE.with(Protocol::Hccs),
        product: Product::A2,
        toolkit: [8, 0, 0],
        disabled: true,
        sizes: [0, 0],
        null_address: true,
        chunks: 3,
    };
    use Reason::{
        Captured, CountVector, Disabled, Empty, InPlace, NullAddress, Prod, Product as Generation,
        Protocol as Channel, Version, WideType,
    };
    assert_eq!(
        field(&bad),
        [
            Disabled,
            Generation,
            Version,
            CountVector,
            WideType,
            Prod,
            InPlace,
            Channel,
            Captured,
            Empty,
            NullAddress
        ]
    );
    assert_eq!(
        Policy::Ours.judge(&bad).to_string(),
        "the cache is switched off; the operation takes more than one chunk"
    );
}

#[test]
fn ours_records_whatever_is_one_chunk() {
    for op in OpKind::ALL {
        for dtype in DataType::ALL {
            for reduce in ReduceOp::ALL {
                let request = Request {
                    op: *op,
                    dtype: *dtype,
                    reduce: *reduce,
                    in_place: true,
                    mode: Mode::Captured,
                    protocols: Protocols::NONE.with(Protocol::Roce),
                    product: Product::A2,
                    toolkit: [8, 0, 0],
                    ..PLAIN
                };
                assert_eq!(Policy::Ours.judge(&request), Reasons::NONE);
            }
        }
    }
}

#[test]
fn bypasses_are_counted_by_reason() {
    let mut directory = Directory::<u32, 4>::new();
    let both = Policy::Hccl.judge(&Request { in_place: true, disabled: true, ..PLAIN });
    directory.bypass(both);
    directory.bypass(Policy::Hccl.judge(&Request { in_place: true, ..PLAIN }));
    directory.bypass(Policy::Hccl.judge(&PLAIN));
    let stats = directory.stats();
    assert_eq!(
        (stats.bypassed, stats.bypassed_by(Reason::InPlace), stats.bypassed_by(Reason::Disabled)),
        (2, 2, 1)
    );
    assert_eq!((stats.hits, stats.misses, stats.bypassed_by(Reason::Empty)), (0, 0, 0));
    assert!(both.contains(Reason::InPlace) && !both.contains(Reason::Prod));
    assert_eq!(both.bits().count_ones(), 2);
}
