//! Counts and places of an operation in which they differ from rank to rank.

use wire::launch::{ElementRange, VectorRow};

/// What every rank exchanges with every other, elements.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Vector {
    /// Rows of one rank behind those of another.
    rows: Vec<VectorRow>,
    ranks: usize,
}

impl Vector {
    /// Makes the vector of an all-gather-v or reduce-scatter-v: rank r has the block `blocks[r]` of the buffer that
    /// holds all.
    #[must_use]
    pub fn of_blocks(blocks: &[ElementRange]) -> Self {
        let row = |block: &ElementRange| VectorRow { send: *block, receive: *block };
        let rows: Vec<_> = blocks.iter().map(row).collect();
        Self { rows: rows.repeat(blocks.len()), ranks: blocks.len() }
    }

    /// Makes the vector of an all-to-all-vc: rank r sends `counts[r][p]` elements to rank p, and blocks lie one behind
    /// the other in rank order in all buffers. `None` unless there are as many counts as ranks for every rank.
    #[must_use]
    pub fn of_matrix(counts: &[Vec<u64>]) -> Option<Self> {
        let ranks = counts.len();
        if counts.iter().any(|row| row.len() != ranks) {
            return None;
        }
        let mut rows = Vec::with_capacity(ranks * ranks);
        for (rank, sends) in counts.iter().enumerate() {
            let (mut sent, mut received) = (0_u64, 0_u64);
            for (&to, of_peer) in sends.iter().zip(counts) {
                let from = of_peer[rank];
                rows.push(VectorRow {
                    send: ElementRange { first: sent, count: to },
                    receive: ElementRange { first: received, count: from },
                });
                (sent, received) = (sent.saturating_add(to), received.saturating_add(from));
            }
        }
        Some(Self { rows, ranks })
    }

    /// Makes a vector of rows: those of rank 0 for every peer in rank order, then those of rank 1, and so on. `None`
    /// unless their number is a square, and what one end of each pair sends is what the other receives.
    #[must_use]
    pub fn of_rows(rows: Vec<VectorRow>) -> Option<Self> {
        let ranks = rows.len().isqrt();
        let vector = Self { rows, ranks };
        let agrees = |rank: usize, peer: usize| {
            vector.rows[rank * ranks + peer].send.count == vector.rows[peer * ranks + rank].receive.count
        };
        let square = ranks * ranks == vector.rows.len();
        let all = square && (0..ranks).all(|rank| (0..ranks).all(|peer| agrees(rank, peer)));
        all.then_some(vector)
    }

    /// Returns the rows of one rank, one per peer in rank order; empty for a rank that is none.
    #[must_use]
    pub fn rows(&self, rank: u32) -> &[VectorRow] {
        let first = rank as usize * self.ranks;
        self.rows.get(first..first + self.ranks).unwrap_or_default()
    }

    /// Returns the largest block, elements.
    #[must_use]
    pub fn largest(&self) -> u64 {
        self.rows.iter().map(|row| row.send.count.max(row.receive.count)).max().unwrap_or(0)
    }
}
