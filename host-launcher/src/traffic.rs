//! What `aicpu-ts run` takes for an operation: the names users type, and the counts that go with those that have some.
//!
//! Counts and partners are made from a seed, so that a run can be repeated. Only the shape of the traffic is here.

use fastrand::Rng;
use wire::launch::{ElementRange, OpKind, VectorRow};

use crate::communicator::Vector;

/// An operation by the name users type; several names may be one operation of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// An operation without a vector.
    Plain(OpKind),
    /// `all-gather-v`: every rank sends as many elements as it likes.
    AllGatherV,
    /// `reduce-scatter-v`: every rank gets as many elements as it likes.
    ReduceScatterV,
    /// `all-to-all-v`: counts of their own for every pair, blocks with gaps between them.
    AllToAllV,
    /// `all-to-all-vc`: the same from a matrix of counts, blocks one behind the other.
    AllToAllVc,
    /// `send-recv`, `send`, `recv`: every rank sends to the next one.
    SendReceive,
    /// `batch-send-recv`: every rank sends to some others and receives from some, different numbers of elements.
    BatchSendReceive,
}

impl Traffic {
    /// Returns the traffic of a name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::all().into_iter().find_map(|(text, traffic)| (text == name).then_some(traffic))
    }

    /// Returns every name and what it stands for.
    #[must_use]
    pub fn all() -> Vec<(&'static str, Self)> {
        let plain = OpKind::ALL.iter().filter(|op| !op.has_vector());
        let mut all: Vec<_> = plain.map(|op| (op.name(), Self::Plain(*op))).collect();
        all.extend([
            ("all-gather-v", Self::AllGatherV),
            ("reduce-scatter-v", Self::ReduceScatterV),
            ("all-to-all-v", Self::AllToAllV),
            ("all-to-all-vc", Self::AllToAllVc),
            ("send-recv", Self::SendReceive),
            ("send", Self::SendReceive),
            ("recv", Self::SendReceive),
            ("batch-send-recv", Self::BatchSendReceive),
        ]);
        all
    }

    /// Returns the operation of the kernel.
    #[must_use]
    pub const fn op(self) -> OpKind {
        match self {
            Self::Plain(op) => op,
            Self::AllGatherV => OpKind::AllGatherV,
            Self::ReduceScatterV => OpKind::ReduceScatterV,
            Self::AllToAllV | Self::AllToAllVc => OpKind::AllToAllV,
            Self::SendReceive | Self::BatchSendReceive => OpKind::SendReceive,
        }
    }

    /// Returns the counts and places for `ranks` ranks, of at most `count` elements a block, some of none; `None` where the
    /// operation has no vector.
    #[must_use]
    pub fn vector(self, seed: u64, count: u64, ranks: u32) -> Option<Vector> {
        let mut dice = Rng::with_seed(seed);
        let size = ranks as usize;
        match self {
            Self::Plain(_) => None,
            Self::AllGatherV | Self::ReduceScatterV => {
                let mut first = 0;
                let mut block = |_| {
                    let block = ElementRange { first, count: roll(&mut dice, count) };
                    // A gap now and then: places are the caller's.
                    first += block.count + gap(&mut dice);
                    block
                };
                Some(Vector::of_blocks(&(0..ranks).map(&mut block).collect::<Vec<_>>()))
            }
            Self::AllToAllV => {
                let matrix = matrix(&mut dice, size, count, |_, _| true);
                let rows = spread(&matrix, &mut dice);
                Vector::of_rows(rows)
            }
            Self::AllToAllVc => Vector::of_matrix(&matrix(&mut dice, size, count, |_, _| true)),
            Self::SendReceive => {
                let next = |from: usize, to: usize| (from + 1) % size == to && from != to;
                let row = |from| (0..size).map(|to| if next(from, to) { count } else { 0 }).collect();
                Vector::of_matrix(&(0..size).map(row).collect::<Vec<_>>())
            }
            Self::BatchSendReceive => Vector::of_matrix(&matrix(&mut dice, size, count, |from, to| {
                from != to && (from + 2 * to) % 3 != 0
            })),
        }
    }
}

/// Lays the blocks of a matrix out with gaps, in descending order of peers.
fn spread(matrix: &[Vec<u64>], dice: &mut Rng) -> Vec<VectorRow> {
    let size = matrix.len();
    let mut rows = vec![VectorRow::default(); size * size];
    for rank in 0..size {
        let (mut sent, mut received) = (0, 0);
        for peer in (0..size).rev() {
            let row = &mut rows[rank * size + peer];
            row.send = ElementRange { first: sent, count: matrix[rank][peer] };
            row.receive = ElementRange { first: received, count: matrix[peer][rank] };
            sent += row.send.count + gap(dice);
            received += row.receive.count + gap(dice);
        }
    }
    rows
}

/// Rolls a count: at most `most`, now and then 0.
fn roll(dice: &mut Rng, most: u64) -> u64 {
    if dice.u8(..4) == 0 { 0 } else { dice.u64(..=most) }
}

/// Rolls a gap between two blocks, elements.
fn gap(dice: &mut Rng) -> u64 {
    dice.u64(..3)
}

/// Rolls a count for each pair; those that are not wanted get 0, and leave the others' as they are.
fn matrix(dice: &mut Rng, size: usize, most: u64, wanted: impl Fn(usize, usize) -> bool) -> Vec<Vec<u64>> {
    let mut matrix = vec![vec![0; size]; size];
    for (from, row) in matrix.iter_mut().enumerate() {
        for (to, cell) in row.iter_mut().enumerate() {
            let count = roll(dice, most);
            *cell = if wanted(from, to) { count } else { 0 };
        }
    }
    matrix
}
