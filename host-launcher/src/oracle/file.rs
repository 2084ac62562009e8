//! The oracle of algorithm files: each chunk is computed as the file says it comes to be, one element at a time.
//!
//! What the file says is what its symbolic execution found, from which neither scripts nor templates have taken
//! anything but the same steps.

use algorithm_file::{AlgorithmFile, Term, Value as Chunk, Values};
use wire::launch::OpKind;

use super::Value;
use crate::communicator::Operation;

/// Returns the expected output of every rank of an operation by `file`, given every rank's input and the elements per
/// chunk of the operation (of the whole or of each block).
///
/// # Panics
/// When the file does not work with buffers in this relation, or an input is shorter than the operation says.
pub(super) fn expected(
    operation: &Operation,
    file: &AlgorithmFile,
    in_place: bool,
    chunk: u64,
    inputs: &[Vec<u8>],
) -> Vec<Vec<u8>> {
    // Without data, buffers stand in no relation.
    let in_place = in_place || !file.works(false);
    let (values, outputs) = file.outputs(in_place).expect("the file works with these buffers");
    let size = usize::try_from(operation.dtype.size_bytes()).expect("at most 16");
    let count = usize::try_from(operation.count).expect("the inputs are in memory");
    let chunk = usize::try_from(chunk).expect("the inputs are in memory").max(1);
    let parts = file.algorithm().parts() as usize;
    let blocks = if operation.op == OpKind::AllReduce { 1 } else { inputs.len() };
    let of_output = if operation.op == OpKind::ReduceScatter { 1 } else { blocks };
    // Which part an element of the whole, or of a block, belongs to.
    let part_of: Vec<usize> = (0..count)
        .map(|element| {
            let (at, len) = (element % chunk, chunk.min(count - element / chunk * chunk));
            // Parts are as equal as can be, the longer ones first.
            let longer = len % parts * (len / parts + 1);
            if at < longer { at / (len / parts + 1) } else { len % parts + (at - longer) / (len / parts) }
        })
        .collect();
    let output = |chunks: &Vec<Chunk>| {
        let mut bytes = Vec::with_capacity(of_output * count * size);
        for block in 0..of_output {
            for (element, part) in part_of.iter().enumerate() {
                let leaf = |rank: u32, chunk: u32| {
                    // A chunk of an input: which block, and the same place in it as everywhere.
                    let at = (chunk as usize / parts * count + element) * size;
                    Value::read(operation.dtype, &inputs[rank as usize][at..at + size])
                };
                let value = evaluate(operation, values, chunks[block * parts + part], &leaf);
                bytes.extend_from_slice(&value.bytes(operation.dtype)[..size]);
            }
        }
        bytes
    };
    outputs.iter().map(output).collect()
}

fn evaluate(
    operation: &Operation,
    values: &Values,
    chunk: Chunk,
    leaf: &impl Fn(u32, u32) -> Value,
) -> Value {
    match values.term(chunk) {
        Term::Input { rank, chunk } => leaf(rank, chunk),
        Term::Reduced(into, from) => {
            let into = evaluate(operation, values, into, leaf);
            into.reduced(operation.reduce, evaluate(operation, values, from, leaf))
        }
    }
}
