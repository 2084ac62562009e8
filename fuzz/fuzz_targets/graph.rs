//! The verifier: whatever is done to a graph, it is proved or refuted within its time, never a panic; a graph that
//! nothing was done to is proved.
//!
//! The input chooses operation, algorithm, staging, ranks and count, then says what is done to which task.
#![no_main]

use aicpu_fuzz::{Bytes, graph};
use graph_verifier::verify;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut bytes = Bytes(data);
    let Some((machine, mut operation)) = graph::expanded(&mut bytes) else { return };
    let touched = graph::edit(&mut bytes, &mut operation);
    if operation.tasks() > 4096 {
        return;
    }
    let proof = verify(&machine, &[&operation, &operation]);
    assert!(touched || proof.is_ok(), "{} is not proved: {}", operation.name, proof.expect_err("refuted"));
});
