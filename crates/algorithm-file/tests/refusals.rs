//! Files that are malformed, incomplete or wrong: each is refused with its code, line and column, and the first step at
//! fault.

use aicpu_algorithm_file::Buffer::{Input, Output, Scratch};
use aicpu_algorithm_file::{AlgorithmFile, Builder, Fault, to_xml};
use wire::ErrorCode;
use wire::launch::OpKind;

#[path = "../examples/algorithms.rs"]
#[expect(dead_code, reason = "not all of the example is used here")]
mod algorithms;

/// A right file of two ranks: line 5 is the first step of the second thread block of rank 0, and so on.
const GOOD: &str = r#"<algo name="pair" coll="allreduce" ngpus="2" nchunksperloop="2" inplace="0" outofplace="1">
 <gpu id="0" i_chunks="2" o_chunks="2" s_chunks="2">
  <tb id="0" send="1" recv="1" chan="0">
   <step s="0" type="s" srcbuf="i" srcoff="0" dstbuf="i" dstoff="0" cnt="2" depid="-1" deps="-1" hasdep="0"/>
   <step s="1" type="r" srcbuf="s" srcoff="0" dstbuf="s" dstoff="0" cnt="2" depid="-1" deps="-1" hasdep="1"/>
  </tb>
  <tb id="1" send="-1" recv="-1" chan="0">
   <step s="0" type="cpy" srcbuf="i" srcoff="0" dstbuf="o" dstoff="0" cnt="2" depid="-1" deps="-1" hasdep="0"/>
   <step s="1" type="re" srcbuf="s" srcoff="0" dstbuf="o" dstoff="0" cnt="2" depid="0" deps="1" hasdep="0"/>
  </tb>
 </gpu>
 <gpu id="1" i_chunks="2" o_chunks="2" s_chunks="0">
  <tb id="0" send="0" recv="0" chan="0">
   <step s="0" type="s" srcbuf="i" srcoff="0" dstbuf="i" dstoff="0" cnt="2" depid="-1" deps="-1" hasdep="0"/>
   <step s="1" type="rrc" srcbuf="i" srcoff="0" dstbuf="o" dstoff="0" cnt="2" depid="-1" deps="-1" hasdep="0"/>
  </tb>
 </gpu>
</algo>
"#;

fn refused(text: &str) -> Fault {
    AlgorithmFile::parse(text).err().unwrap_or_else(|| panic!("was accepted:\n{text}"))
}

/// Changes line `line` of the good file and says how it is refused: code, line and column, message.
fn changed(line: usize, from: &str, to: &str) -> (ErrorCode, (u32, u32), String) {
    let mut lines: Vec<String> = GOOD.lines().map(str::to_owned).collect();
    assert!(lines[line - 1].contains(from), "{}", lines[line - 1]);
    lines[line - 1] = lines[line - 1].replacen(from, to, 1);
    let fault = refused(&lines.join("\n"));
    (fault.code, fault.at.unwrap(), fault.message)
}

#[track_caller]
fn check(line: usize, from: &str, to: &str, code: ErrorCode, at: (u32, u32), message: &str) {
    assert_eq!(changed(line, from, to), (code, at, message.to_owned()));
}

#[test]
fn the_file_is_good_before_it_is_changed() {
    AlgorithmFile::parse(GOOD).unwrap();
}

#[test]
fn what_is_malformed() {
    use ErrorCode as E;
    let (code, at, _) = changed(6, "</tb>", "</bt>");
    assert_eq!((code, at), (E::ALGORITHM_SYNTAX, (6, 3)));
    check(2, "gpu ", "cpu ", E::ALGORITHM_SYNTAX, (11, 2), "expected 'cpu' tag, not 'gpu' at 11:2");
    check(4, "step ", "stop ", E::ALGORITHM_ELEMENT, (4, 4), "element \"stop\": expected step");
    check(4, "<step", "x<step", E::ALGORITHM_ELEMENT, (3, 41), "text in tb: expected step");
    check(1, "coll=", "call=", E::ALGORITHM_ELEMENT, (1, 1), "algo has no attribute coll");
    check(4, "cnt=\"2\" ", "", E::ALGORITHM_ELEMENT, (4, 4), "step has no attribute cnt");
    check(
        1,
        "\"2\" nch",
        "\"3\" nch",
        E::ALGORITHM_ELEMENT,
        (1, 36),
        "ngpus is 3, and there are 2 gpu elements",
    );
    check(
        7,
        "id=\"1\"",
        "id=\"2\"",
        E::ALGORITHM_VALUE,
        (7, 7),
        "tb id is \"2\": expected 1: they are numbered from 0 in order",
    );
    check(
        4,
        "\"s\" src",
        "\"x\" src",
        E::ALGORITHM_VALUE,
        (4, 16),
        "step type is \"x\": expected one of s, r, rcs, rrc, rrs, rrcs, cpy, re, nop",
    );
    check(
        4,
        "srcbuf=\"i\"",
        "srcbuf=\"q\"",
        E::ALGORITHM_VALUE,
        (4, 25),
        "step srcbuf is \"q\": expected i, o or s",
    );
    check(
        4,
        "srcoff=\"0\"",
        "srcoff=\"-2\"",
        E::ALGORITHM_VALUE,
        (4, 36),
        "step srcoff is \"-2\": expected a number below 2^32",
    );
    check(
        5,
        "hasdep=\"1\"",
        "hasdep=\"yes\"",
        E::ALGORITHM_VALUE,
        (5, 98),
        "step hasdep is \"yes\": expected 0 or 1",
    );
    check(
        9,
        "deps=\"1\"",
        "deps=\"-1\"",
        E::ALGORITHM_VALUE,
        (9, 88),
        "step deps is \"-1\": expected a step of tb depid",
    );
    check(
        1,
        "allreduce",
        "custom",
        E::ALGORITHM_COLLECTIVE,
        (1, 19),
        "coll is \"custom\": expected one of allreduce, allgather, reducescatter, reduce_scatter, alltoall",
    );
    check(
        1,
        "outofplace=\"1\"",
        "outofplace=\"0\"",
        E::ALGORITHM_VALUE,
        (1, 1),
        "neither in place nor out of place: it can never be used",
    );
    assert_eq!(refused("").code, E::ALGORITHM_SYNTAX);
    assert_eq!(refused("<algorithm/>").message, "element \"algorithm\": expected algo");
}

#[test]
fn what_a_step_does_not_have() {
    use ErrorCode as E;
    check(
        3,
        "send=\"1\"",
        "send=\"0\"",
        E::ALGORITHM_VALUE,
        (3, 3),
        "gpu 0, tb 0: sends to gpu 0: expected another of 0 to 1",
    );
    check(
        3,
        "send=\"1\"",
        "send=\"-1\"",
        E::ALGORITHM_STEP,
        (4, 4),
        "gpu 0, tb 0, step 0 (s): its tb sends to nobody",
    );
    check(
        3,
        "recv=\"1\"",
        "recv=\"-1\"",
        E::ALGORITHM_STEP,
        (5, 4),
        "gpu 0, tb 0, step 1 (r): its tb receives from nobody",
    );
    check(
        7,
        "recv=\"-1\"",
        "recv=\"1\"",
        E::ALGORITHM_CHANNEL,
        (7, 3),
        "gpu 0, tb 1: receives from gpu 1 over channel 0, as tb 0 does",
    );
    check(
        4,
        "srcoff=\"0\"",
        "srcoff=\"1\"",
        E::ALGORITHM_STEP,
        (4, 4),
        "gpu 0, tb 0, step 0 (s): reads 2 chunks at i[1] of 2",
    );
    check(
        2,
        "s_chunks=\"2\"",
        "s_chunks=\"1\"",
        E::ALGORITHM_STEP,
        (5, 4),
        "gpu 0, tb 0, step 1 (r): writes 2 chunks at s[0] of 1",
    );
    check(
        15,
        "dstbuf=\"o\"",
        "dstbuf=\"i\"",
        E::ALGORITHM_STEP,
        (15, 4),
        "gpu 1, tb 0, step 1 (rrc): writes i[0]: out of place, the input may only be read",
    );
    check(
        9,
        "deps=\"1\"",
        "deps=\"7\"",
        E::ALGORITHM_STEP,
        (9, 4),
        "gpu 0, tb 1, step 1 (re): depends on step 7 of tb 0, which there is not",
    );
    check(
        5,
        "hasdep=\"1\"",
        "hasdep=\"0\"",
        E::ALGORITHM_STEP,
        (9, 4),
        "gpu 0, tb 1, step 1 (re): depends on step 1 of tb 0, which has hasdep 0",
    );
    check(
        8,
        "cnt=\"2\"",
        "cnt=\"0\"",
        E::ALGORITHM_STEP,
        (8, 4),
        "gpu 0, tb 1, step 0 (cpy): moves 0 chunks",
    );
}

#[test]
fn what_never_ends_or_goes_nowhere() {
    use ErrorCode as E;
    check(
        14,
        "\"s\" src",
        "\"nop\" src",
        E::ALGORITHM_DEADLOCK,
        (5, 4),
        "gpu 0, tb 0, step 1 (r): waits for gpu 1 to send over channel 0, which it never does",
    );
    check(
        13,
        "chan=\"0\"",
        "chan=\"1\"",
        E::ALGORITHM_DEADLOCK,
        (5, 4),
        "gpu 0, tb 0, step 1 (r): waits for gpu 1 to send over channel 0, which it never does",
    );
    check(
        14,
        "cnt=\"2\"",
        "cnt=\"1\"",
        E::ALGORITHM_UNMATCHED,
        (5, 4),
        "gpu 0, tb 0, step 1 (r): receives 2 chunks, of 1 that gpu 1, tb 0, step 0 sends",
    );
    check(
        15,
        "\"rrc\"",
        "\"cpy\"",
        E::ALGORITHM_UNMATCHED,
        (4, 4),
        "gpu 0, tb 0, step 0 (s): gpu 1 never receives this over channel 0",
    );
    let (code, at, message) = changed(5, "depid=\"-1\" deps=\"-1\"", "depid=\"1\" deps=\"1\"");
    assert_eq!((code, at), (E::ALGORITHM_STEP, (5, 4)), "{message}");
    // Two thread blocks that wait for each other.
    let mut circle = Builder::new("circle", OpKind::AllReduce, 1, 1);
    let mut one = circle.block(0);
    one.copy((Input, 0), (Output, 0)).awaited();
    let first = one.last();
    let mut other = circle.block(0);
    other.after(first).awaited();
    let second = other.last();
    let mut algorithm = circle.finish();
    algorithm.gpus[0].blocks[0].steps[0].after = Some((1, 0));
    let fault = AlgorithmFile::new(algorithm).unwrap_err();
    assert_eq!(fault.code, E::ALGORITHM_DEADLOCK);
    assert_eq!(fault.message, "gpu 0, tb 0, step 0 (cpy): waits for gpu 0, tb 1, step 0, which waits itself");
    assert_ne!(first, second);
}

#[test]
fn what_races() {
    let (code, at, message) = changed(9, "depid=\"0\" deps=\"1\"", "depid=\"-1\" deps=\"-1\"");
    // In some runs nothing has arrived by then; in the order of the simulation it has.
    assert!(matches!(code, ErrorCode::ALGORITHM_RACE | ErrorCode::ALGORITHM_RESULT), "{code} {message}");
    assert_eq!(at, (9, 4));
    // A chunk that is sent while another thread block overwrites it.
    let mut gather = algorithms::mesh_all_gather(3);
    gather.gpus[1].blocks[4].steps[0].dst.chunk = 1;
    let fault = AlgorithmFile::new(gather).unwrap_err();
    assert_eq!(fault.code, ErrorCode::ALGORITHM_RACE, "{fault}");
}

#[test]
fn what_computes_something_else() {
    use ErrorCode as E;
    check(
        15,
        "\"rrc\"",
        "\"r\"",
        E::ALGORITHM_RESULT,
        (15, 4),
        "gpu 1, tb 0, step 1 (r): leaves chunk 0 of gpu 0 in o[0] of gpu 1: expected chunk 0 of all gpus",
    );
    check(
        1,
        "allreduce",
        "alltoall",
        E::ALGORITHM_RESULT,
        (9, 4),
        "gpu 0, tb 1, step 1 (re): reduces, which no all-to-all does",
    );
    check(
        9,
        "srcbuf=\"s\"",
        "srcbuf=\"i\"",
        E::ALGORITHM_RESULT,
        (9, 4),
        "gpu 0, tb 1, step 1 (re): reduces the input of gpu 0 a second time",
    );
    check(
        8,
        "cnt=\"2\"",
        "cnt=\"1\"",
        E::ALGORITHM_RESULT,
        (9, 4),
        "gpu 0, tb 1, step 1 (re): reads o[1], which nothing was written to",
    );
    check(
        15,
        "srcoff=\"0\" dstbuf=\"o\" dstoff=\"0\" cnt=\"2\"",
        "srcoff=\"0\" dstbuf=\"o\" dstoff=\"0\" cnt=\"1\"",
        E::ALGORITHM_UNMATCHED,
        (15, 4),
        "gpu 1, tb 0, step 1 (rrc): receives 1 chunks, of 2 that gpu 0, tb 0, step 0 sends",
    );
    // Chunks that are not the same, and an output that nobody writes.
    let mut ring = algorithms::ring_all_reduce(4);
    ring.gpus[2].blocks[0].steps[1].src.chunk = 3;
    let fault = AlgorithmFile::new(ring).unwrap_err();
    assert_eq!(fault.message, "gpu 2, tb 0, step 1 (rrs): reduces chunk 3 with chunk 1");
    let mut gather = algorithms::mesh_all_gather(3);
    gather.gpus[1].blocks[0].steps.clear();
    gather.in_place = false;
    let fault = refused(&to_xml(&gather));
    assert_eq!((fault.code, fault.at), (E::ALGORITHM_RESULT, Some((19, 3))));
    assert_eq!(
        fault.message,
        "gpu 1: no step writes o[1]: it leaves nothing in o[1] of gpu 1: expected chunk 0 of gpu 1"
    );
}

#[test]
fn what_is_too_large() {
    let limit = |builder: Builder| AlgorithmFile::new(builder.finish()).unwrap_err();
    let ranks = limit(Builder::new("", OpKind::AllReduce, 129, 129));
    assert_eq!((ranks.code, &*ranks.message), (ErrorCode::ALGORITHM_LIMIT, "129 ranks; at most 128"));
    let chunks = limit(Builder::new("", OpKind::AllReduce, 2, 65_537));
    assert_eq!((chunks.code, &*chunks.message), (ErrorCode::ALGORITHM_LIMIT, "65537 chunks; at most 65536"));
    let uneven = limit(Builder::new("", OpKind::AllGather, 3, 4));
    assert_eq!(uneven.code, ErrorCode::ALGORITHM_VALUE);
    let rooted = limit(Builder::new("", OpKind::Broadcast, 2, 2));
    assert_eq!(rooted.code, ErrorCode::ALGORITHM_COLLECTIVE);
    // More tasks than a kernel keeps: 6000 messages take three each at the receiver.
    let mut many = Builder::new("many", OpKind::AllGather, 2, 12_000);
    for rank in 0..2 {
        let mut block = many.block(rank);
        block.to(1 - rank).from(1 - rank);
        block.copy((Input, 0), (Output, rank * 6000)).times(6000);
        for chunk in 0..6000 {
            block.send((Input, chunk)).receive((Output, (1 - rank) * 6000 + chunk));
        }
    }
    let many = limit(many);
    assert_eq!(many.code, ErrorCode::ALGORITHM_LIMIT);
    assert!(many.message.starts_with("gpu 0: ") && many.message.ends_with(" tasks; at most 16384"), "{many}");
}

#[test]
fn places_that_hold_other_parts_than_their_own_have_slots() {
    // Both blocks travel through each other's places: legal, if strange.
    let mut swapped = Builder::new("swapped", OpKind::AllToAll, 2, 4);
    for rank in 0..2_u32 {
        let mut block = swapped.block(rank);
        let (own, other) = (rank * 2, (1 - rank) * 2);
        block.to(1 - rank).from(1 - rank);
        // Part 1 lies where part 0 belongs for a while.
        block.copy((Input, own + 1), (Output, own)).copy((Output, own), (Scratch, 0));
        block.copy((Input, own), (Output, own)).copy((Scratch, 0), (Output, own + 1));
        block.send((Input, other)).times(2).receive((Output, other)).times(2);
    }
    let file = AlgorithmFile::new(swapped.finish()).unwrap();
    // Two for the message, one of scratch, one for the place that holds another part.
    assert!(file.headers().all(|header| (header.parts, header.slots) == (2, 4)));
}

/// Lines taken away, doubled or exchanged, and digits changed: whatever comes of it is refused or right, never a panic.
#[test]
fn damaged_files_are_refused_or_right() {
    let files = [
        GOOD.to_owned(),
        to_xml(&algorithms::hierarchical_all_reduce(2, 2)),
        to_xml(&algorithms::ring_all_reduce(4)),
    ];
    let mut state = 0x5eed_u64;
    let mut random = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    let mut refusals = std::collections::BTreeMap::new();
    for turn in 0..6000 {
        let mut lines: Vec<String> = files[turn % 3].lines().map(str::to_owned).collect();
        let (one, other) = (random(lines.len()), random(lines.len()));
        match random(4) {
            0 => drop(lines.remove(one)),
            1 => lines.insert(other, lines[one].clone()),
            2 => lines.swap(one, other),
            _ => {
                let digits: Vec<usize> =
                    lines[one].match_indices(|c: char| c.is_ascii_digit()).map(|(at, _)| at).collect();
                if let Some(&at) = (!digits.is_empty()).then(|| &digits[random(digits.len())]) {
                    lines[one].replace_range(at..=at, &random(4).to_string());
                }
            }
        }
        let outcome = AlgorithmFile::parse(&lines.join("\n")).err().map(|fault| {
            assert!(fault.at.is_some(), "seed 0x5eed, turn {turn}: {fault}");
            fault.code.name()
        });
        *refusals.entry(outcome).or_insert(0) += 1;
    }
    assert!(refusals.len() >= 9, "{refusals:?}");
}
