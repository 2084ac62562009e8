//! What the kernel calls, read back from the log, is the text listing of the recorded tasks, line for line.

use aicpu_tests::variants::Variant;
use task_graph::Listing;
use wire::launch::CacheOutcome;
use wire::npu::Protocol;
use wire::{DataType, ReduceOp};

use crate::rig::{Case, Loaded, Rig};

/// Says where bytes lie, from their address alone: the rig's buffers of rank n lie n times 4 GiB behind those of rank 0.
fn span(own: u32, address: &str, len: u64) -> String {
    let address = u64::from_str_radix(address.trim_start_matches("0x"), 16).expect("an address");
    let kind = match address >> 40 {
        0x71 => "input",
        0x72 => "output",
        0x73 => "scratch",
        _ => panic!("{address:#x} is no buffer"),
    };
    let (rank, from) = (address >> 32 & 0xff, address & 0xffff_ffff);
    let whose = if rank == u64::from(own) { String::new() } else { format!("peer {rank} ") };
    format!("{whose}{kind}[{from}..{}]", from + len)
}

/// Says what a logged call does, as a listing does.
fn read_back(own: u32, line: &str) -> String {
    let words: Vec<_> = line.split(' ').collect();
    let number = |at: usize| words[at].parse::<u64>().expect("a number");
    let notify = |at: usize| ["Ack", "Data", "Fin"][usize::try_from(number(at)).expect("small")];
    // Destination, source and how much, from a word on; the index of the word behind them.
    let moved = |at: usize| {
        if !words[0].contains("reduce") {
            let len = number(at + 2);
            return (format!("{} <- {}", span(own, words[at], len), span(own, words[at + 1], len)), at + 3);
        }
        let dtype = DataType::ALL.iter().find(|dtype| **dtype as u64 == number(at + 3)).expect("a type");
        let op = ReduceOp::ALL.iter().find(|op| **op as u64 == number(at + 4)).expect("a reduction");
        let len = number(at + 2) * dtype.size_bytes();
        let spans = format!("{} <- {}", span(own, words[at], len), span(own, words[at + 1], len));
        (format!("{spans} {op} {dtype}"), at + 5)
    };
    let what = match words[0] {
        name @ ("copy" | "reduce") => format!("{name} {}", moved(2).0),
        "write" | "write-reduce" => match moved(3) {
            (text, at) if words[at] == "-" => format!("write {text}"),
            (text, at) => format!("write {text} then {}", notify(at)),
        },
        "read" | "read-reduce" => format!("read {}", moved(3).0),
        "record" => format!("record thread {} notify {}", words[2], words[3]),
        "wait" => format!("wait notify {}", words[2]),
        "channel-record" => format!("record peer {} {}", words[2], notify(3)),
        "channel-wait" => format!("wait peer {} {}", words[2], notify(3)),
        other => panic!("{other}"),
    };
    format!("{} {what}", words[1])
}

/// The listing of a case's tasks, without phases and steps, which no call carries.
fn listing(case: &Case) -> Vec<String> {
    let mut listing = Listing::new(String::new(), case.caps());
    let plan = case.plan().expect("a case with a plan");
    for chunk in 0..plan.chunks() {
        plan.emit(chunk, &case.tables(), &mut listing).expect("prints");
    }
    let without_phase = |line: &str| {
        let words: Vec<_> = line.split_whitespace().collect();
        [&words[..1], &words[2..]].concat().join(" ")
    };
    listing.into_inner().lines().map(without_phase).collect()
}

#[test]
fn the_log_is_the_recorders_listing_on_a_miss_and_on_a_hit() {
    let Some(kernel) = Loaded::kernel() else { return };
    let mut cases = 0;
    for protocol in [Protocol::Hccs, Protocol::Roce, Protocol::Ub] {
        for (ranks, dtype, reduce) in [
            (2, DataType::Int8, ReduceOp::Max),
            (5, DataType::Fp32, ReduceOp::Sum),
            (8, DataType::Int64, ReduceOp::Prod),
        ] {
            for Variant { op, algorithm, staging } in Variant::all() {
                let case = Case::new(op, algorithm, ranks);
                let case = case.with(|operation| {
                    (operation.staging, operation.dtype) = (staging, dtype);
                    if op.reduces() {
                        operation.reduce = reduce;
                    }
                });
                let case = Case { protocol, ..case };
                if case.plan().is_err() {
                    continue;
                }
                let expected = listing(&case);
                let mut rig = Rig::new(case);
                for outcome in [CacheOutcome::Miss, CacheOutcome::Hit] {
                    let (status, lines) = rig.launch(&kernel);
                    assert_eq!((status.code, status.cache), (0, outcome as u8), "{:?}", rig.case);
                    let log: Vec<_> =
                        lines[3..lines.len() - 3].iter().map(|line| read_back(rig.case.rank, line)).collect();
                    assert_eq!(log, expected, "{:?}", rig.case);
                }
                cases += 1;
            }
        }
    }
    assert!(cases > 200, "{cases} cases");
}
