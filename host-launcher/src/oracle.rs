//! The naive oracle: what every rank must hold afterwards, computed one element at a time.
//!
//! It shares nothing with kernel, templates or device but the documented order of reduction (the table at the head
//! of the `templates` crate) and the documented meaning of one reduction (`docs/numerics.md`).

mod file;

use half::{bf16, f16};
use templates::Tables;
use wire::launch::{ElementRange, OpKind};
use wire::{DataType, ReduceOp};

use crate::communicator::Operation;

mod order;

use order::Order;

/// What a byte of an output is that no block covers: the same as before, which the tests make this.
pub const UNTOUCHED: u8 = 0xdb;

/// Returns the ranges of elements that move to `rank`: from whom, which of its input, where to in the output.
fn moves(operation: &Operation, rank: u32, ranks: u32) -> Vec<(u32, ElementRange, u64)> {
    let count = operation.count;
    let whole = ElementRange { first: 0, count };
    let block = |index: u32| ElementRange { first: u64::from(index) * count, count };
    let row = |rank: u32, peer: u32| operation.rows(rank)[peer as usize];
    let root = operation.root;
    match operation.op {
        OpKind::Broadcast => vec![(root, whole, 0)],
        OpKind::Scatter => vec![(root, block(rank), 0)],
        OpKind::Gather if rank != root => Vec::new(),
        OpKind::AllGather | OpKind::Gather => {
            (0..ranks).map(|peer| (peer, whole, block(peer).first)).collect()
        }
        OpKind::AllToAll => (0..ranks).map(|peer| (peer, block(rank), block(peer).first)).collect(),
        OpKind::AllGatherV => (0..ranks)
            .map(|peer| {
                let block = row(rank, peer).receive;
                (peer, ElementRange { first: 0, count: block.count }, block.first)
            })
            .collect(),
        OpKind::AllToAllV | OpKind::SendReceive => {
            (0..ranks).map(|peer| (peer, row(peer, rank).send, row(rank, peer).receive.first)).collect()
        }
        _ => Vec::new(),
    }
}

/// Returns the expected output of every rank as [`expected_among`] does, also of an algorithm that was loaded as data, for
/// which it may matter whether input and output are the same memory.
///
/// # Panics
/// As [`expected`]; when the file does not work with buffers in this relation.
#[must_use]
pub fn outputs(
    operation: &Operation,
    in_place: bool,
    chunk: u64,
    inputs: &[Vec<u8>],
    groups: &Tables<'_>,
) -> Vec<Vec<u8>> {
    match &operation.file {
        Some(file) => file::expected(operation, file, in_place, chunk, inputs),
        None => expected_among(operation, chunk, inputs, groups),
    }
}

/// Returns the expected output of every rank of one server, given every rank's input and the elements per chunk. Bytes
/// between the blocks of a vector are [`UNTOUCHED`].
///
/// # Panics
/// When an input is shorter than the operation says.
#[must_use]
pub fn expected(operation: &Operation, chunk: u64, inputs: &[Vec<u8>]) -> Vec<Vec<u8>> {
    expected_among(operation, chunk, inputs, &Tables::default())
}

/// Returns the same for ranks grouped as `groups` says.
///
/// # Panics
/// As [`expected`].
#[must_use]
pub fn expected_among(
    operation: &Operation,
    chunk: u64,
    inputs: &[Vec<u8>],
    groups: &Tables<'_>,
) -> Vec<Vec<u8>> {
    let size = usize::try_from(operation.dtype.size_bytes()).expect("at most 16");
    let ranks = u32::try_from(inputs.len()).expect("ranks are counted in u32");
    let bytes = |elements: u64| usize::try_from(elements).expect("the inputs are in memory") * size;
    if !operation.op.reduces() {
        let output = |rank: u32| {
            let [_, elements] = operation.elements(rank, ranks).expect("the operation can be carried out");
            let mut output = vec![UNTOUCHED; bytes(elements)];
            // Where an empty block lies does not matter, be it outside.
            let moves = moves(operation, rank, ranks).into_iter().filter(|(_, range, _)| range.count > 0);
            for (from, range, to) in moves {
                let (source, len) = (bytes(range.first), bytes(range.count));
                output[bytes(to)..bytes(to) + len]
                    .copy_from_slice(&inputs[from as usize][source..source + len]);
            }
            output
        };
        return (0..ranks).map(output).collect();
    }
    // Every element of `count` from `first` on, each chunk cut into as many parts as there are orders.
    let reduced = |orders: &[Order], first: u64, count: u64| {
        let mut output = Vec::with_capacity(bytes(count));
        for start in (0..count).step_by(usize::try_from(chunk.max(1)).expect("fits")) {
            let len = chunk.max(1).min(count - start);
            let unit = len / orders.len() as u64;
            for index in 0..len {
                let last = orders.len() as u64 - 1;
                let part = index.checked_div(unit).map_or(last, |part| part.min(last));
                let order = &orders[usize::try_from(part).expect("below a usize")];
                output.extend(reduce_at(operation, order, inputs, bytes(first + start + index)));
            }
        }
        output
    };
    match operation.op {
        OpKind::AllReduce | OpKind::Reduce => {
            let output = reduced(&order::of_whole(operation, ranks, groups), 0, operation.count);
            let gets = |rank| operation.op == OpKind::AllReduce || rank == operation.root;
            (0..ranks).map(|rank| if gets(rank) { output.clone() } else { Vec::new() }).collect()
        }
        _ => (0..ranks)
            .map(|rank| {
                let block = match operation.rows(rank).get(rank as usize) {
                    Some(row) => row.send,
                    None => ElementRange { first: u64::from(rank) * operation.count, count: operation.count },
                };
                reduced(&order::of_block(operation, rank, ranks, groups), block.first, block.count)
            })
            .collect(),
    }
}

/// Reduces the element at byte `at` of all inputs; returns its bytes.
fn reduce_at(
    operation: &Operation,
    Order { merges, owner }: &Order,
    inputs: &[Vec<u8>],
    at: usize,
) -> impl Iterator<Item = u8> + use<> {
    let Operation { dtype, reduce, .. } = *operation;
    let size = usize::try_from(dtype.size_bytes()).expect("at most 16");
    let mut values: Vec<Value> =
        inputs.iter().map(|input| Value::read(dtype, &input[at..at + size])).collect();
    for &(into, from) in merges {
        values[into as usize] = values[into as usize].reduced(reduce, values[from as usize]);
    }
    values[*owner as usize].bytes(dtype).into_iter().take(size)
}

/// One element.
#[derive(Clone, Copy, Debug)]
enum Value {
    Int(i128),
    Half(f16),
    Brain(bf16),
    Single(f32),
    Double(f64),
}

impl Value {
    fn read(dtype: DataType, bytes: &[u8]) -> Self {
        let mut wide = [0; 16];
        wide[..bytes.len()].copy_from_slice(bytes);
        let signed = |bits: u32| (i128::from_le_bytes(wide) << (128 - bits)) >> (128 - bits);
        let word = u64::from_le_bytes(wide[..8].try_into().expect("8 bytes"));
        let [low, high, ..] = wide;
        match dtype {
            DataType::Int8 => Self::Int(signed(8)),
            DataType::Int16 => Self::Int(signed(16)),
            DataType::Int32 => Self::Int(signed(32)),
            DataType::Int64 => Self::Int(signed(64)),
            DataType::Fp16 => Self::Half(f16::from_le_bytes([low, high])),
            DataType::Bf16 => Self::Brain(bf16::from_le_bytes([low, high])),
            DataType::Fp32 => Self::Single(f32::from_le_bytes(wide[..4].try_into().expect("4 bytes"))),
            DataType::Fp64 => Self::Double(f64::from_bits(word)),
            _ => Self::Int(i128::from_le_bytes(wide)),
        }
    }

    fn bytes(self, dtype: DataType) -> [u8; 16] {
        let mut out = [0; 16];
        match self {
            // Wraps: only the low bytes are taken.
            Self::Int(value) => out = value.to_le_bytes(),
            Self::Half(value) => out[..2].copy_from_slice(&value.to_le_bytes()),
            Self::Brain(value) => out[..2].copy_from_slice(&value.to_le_bytes()),
            Self::Single(value) => out[..4].copy_from_slice(&value.to_le_bytes()),
            Self::Double(value) => out[..8].copy_from_slice(&value.to_le_bytes()),
        }
        debug_assert!(dtype.size_bytes() <= 16);
        out
    }

    fn reduced(self, op: ReduceOp, other: Self) -> Self {
        match (self, other) {
            // Sums and products of up to 64-bit values fit 128 bits only modulo 2^128, which is all that is kept.
            (Self::Int(a), Self::Int(b)) => Self::Int(match op {
                ReduceOp::Sum => a.wrapping_add(b),
                ReduceOp::Prod => a.wrapping_mul(b),
                ReduceOp::Max => a.max(b),
                ReduceOp::Min => a.min(b),
            }),
            (Self::Half(a), Self::Half(b)) => Self::Half(canonical_f16(float(op, a.to_f32(), b.to_f32()))),
            (Self::Brain(a), Self::Brain(b)) => {
                Self::Brain(canonical_bf16(float(op, a.to_f32(), b.to_f32())))
            }
            (Self::Single(a), Self::Single(b)) => Self::Single(float(op, a, b)),
            (Self::Double(a), Self::Double(b)) => Self::Double(double(op, a, b)),
            _ => unreachable!("both operands have the operation's type"),
        }
    }
}

fn float(op: ReduceOp, a: f32, b: f32) -> f32 {
    let result = match op {
        ReduceOp::Sum => a + b,
        ReduceOp::Prod => a * b,
        _ if a.is_nan() || b.is_nan() => f32::NAN,
        ReduceOp::Max => {
            if a.total_cmp(&b).is_ge() {
                a
            } else {
                b
            }
        }
        ReduceOp::Min => {
            if a.total_cmp(&b).is_le() {
                a
            } else {
                b
            }
        }
    };
    if result.is_nan() { f32::from_bits(0x7fc0_0000) } else { result }
}

fn double(op: ReduceOp, a: f64, b: f64) -> f64 {
    let result = match op {
        ReduceOp::Sum => a + b,
        ReduceOp::Prod => a * b,
        _ if a.is_nan() || b.is_nan() => f64::NAN,
        ReduceOp::Max => {
            if a.total_cmp(&b).is_ge() {
                a
            } else {
                b
            }
        }
        ReduceOp::Min => {
            if a.total_cmp(&b).is_le() {
                a
            } else {
                b
            }
        }
    };
    if result.is_nan() { f64::from_bits(0x7ff8_0000_0000_0000) } else { result }
}

fn canonical_f16(value: f32) -> f16 {
    if value.is_nan() { f16::from_bits(0x7e00) } else { f16::from_f32(value) }
}

fn canonical_bf16(value: f32) -> bf16 {
    if value.is_nan() { bf16::from_bits(0x7fc0) } else { bf16::from_f32(value) }
}
