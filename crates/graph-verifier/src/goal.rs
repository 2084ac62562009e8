//! What a graph must do: for each rank and byte of its output, which inputs, reduced in which order.
//!
//! Written from the definitions of the operations and the documented orders of reduction alone, never from a template.

use task_graph::Rank;
use wire::{DataType, ReduceOp, Reduction};

use crate::order::{Order, slices};

/// An operation, with its sizes in elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Collective {
    /// Every rank gets the reduction of all inputs.
    AllReduce {
        /// Elements of every input and output.
        count: u64,
    },
    /// The root gets the reduction of all inputs.
    Reduce {
        /// Elements of every input, and of the root's output.
        count: u64,
        /// Who gets it.
        root: Rank,
    },
    /// Rank r gets the reduction of block r of all inputs; an entry for each rank.
    ReduceScatter {
        /// Elements of each block.
        blocks: Vec<Block>,
    },
    /// Every rank gets all inputs, that of rank r as block r.
    AllGather {
        /// Elements and place of each block.
        blocks: Vec<Block>,
    },
    /// Every rank gets the root's input.
    Broadcast {
        /// Elements.
        count: u64,
        /// Whose.
        root: Rank,
    },
    /// Rank r gets block r of the root's input.
    Scatter {
        /// Elements of each block.
        count: u64,
        /// Whose.
        root: Rank,
    },
    /// The root gets all inputs, that of rank r as block r.
    Gather {
        /// Elements of each block.
        count: u64,
        /// Who gets them.
        root: Rank,
    },
    /// Rank r's block for s comes to rank s as the block from r.
    AllToAll {
        /// `send[r][s]`: what r sends to s, in r's input.
        send: Vec<Vec<Block>>,
        /// `receive[s][r]`: where it comes, in s's output.
        receive: Vec<Vec<Block>>,
    },
    /// One rank gets the input of another.
    Send {
        /// Elements.
        count: u64,
        /// Whose input.
        from: Rank,
        /// Whose output.
        to: Rank,
    },
    /// No rank is done before every rank has started.
    Barrier,
}

/// Consecutive elements of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// The first.
    pub at: u64,
    /// How many.
    pub count: u64,
}

impl Block {
    /// Returns a block for each rank, as long as each other, one behind the other.
    #[must_use]
    pub fn equal(ranks: u32, count: u64) -> Vec<Self> {
        (0..u64::from(ranks)).map(|rank| Self { at: rank * count, count }).collect()
    }

    /// One behind the last element; where an empty block lies does not matter.
    fn end(self) -> u64 {
        if self.count == 0 { 0 } else { self.at + self.count }
    }
}

/// How an operation is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The operation.
    pub collective: Collective,
    /// Number of ranks.
    pub ranks: u32,
    /// Type of the elements.
    pub dtype: DataType,
    /// Reduction; ignored where nothing is reduced.
    pub reduce: ReduceOp,
    /// Whether input and output are the same memory, where a rank has both: the shorter lies at its place in the longer.
    pub in_place: bool,
    /// Documented order of reduction.
    pub order: Order,
    /// Elements of a chunk, within which the order of a slice is defined; 0 for one chunk.
    pub chunk: u64,
}

/// An expression over the inputs of all ranks at one and the same place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tree {
    /// The input of a rank.
    Input(Rank),
    /// `from` reduced into `into`, numbers of earlier trees.
    Reduce { into: usize, from: usize },
}

/// What some bytes of an output must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Contents {
    /// This tree.
    Tree(usize),
    /// All ranks' inputs, each once, in any order that is the same at all ranks.
    All,
}

/// Some bytes of an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// First byte in the output.
    pub(crate) at: u64,
    /// Bytes.
    pub(crate) len: u64,
    /// What they must be.
    pub(crate) contents: Contents,
    /// First byte in the inputs.
    pub(crate) from: u64,
}

/// What a graph must do, bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Goal {
    pub(crate) ranks: u32,
    pub(crate) element: u64,
    pub(crate) reduction: Option<Reduction>,
    /// Input and output of each rank.
    pub(crate) buffers: Vec<[u64; 2]>,
    /// Places of input and output of each rank where both are one memory.
    pub(crate) in_place: Vec<Option<[u64; 2]>>,
    pub(crate) barrier: bool,
    pub(crate) trees: Vec<Tree>,
    /// For each rank, ascending; what lies in none of them must not be written.
    pub(crate) pieces: Vec<Vec<Piece>>,
}

impl Goal {
    /// Returns what a request asks for. Blocks of all-to-all that no rank has are taken as empty.
    #[must_use]
    pub fn new(request: &Request) -> Self {
        let ranks = request.ranks;
        let mut goal = Self {
            ranks,
            element: request.dtype.size_bytes(),
            reduction: None,
            buffers: vec![[0; 2]; ranks as usize],
            in_place: vec![None; ranks as usize],
            barrier: false,
            trees: (0..ranks).map(Tree::Input).collect(),
            pieces: vec![Vec::new(); ranks as usize],
        };
        let places = goal.define(request);
        for ((place, buffers), places) in goal.in_place.iter_mut().zip(&goal.buffers).zip(places) {
            *place = (request.in_place && !buffers.contains(&0)).then_some(places);
        }
        goal.in_bytes();
        for pieces in &mut goal.pieces {
            pieces.retain(|piece| piece.len > 0);
            pieces.sort_by_key(|piece| piece.at);
        }
        goal
    }

    /// Returns the number of ranks.
    #[must_use]
    pub fn ranks(&self) -> u32 {
        self.ranks
    }

    /// Returns the bytes of input and output of a rank.
    #[must_use]
    pub fn buffers(&self, rank: Rank) -> [u64; 2] {
        self.buffers.get(rank as usize).copied().unwrap_or_default()
    }

    /// Returns the first byte of input and output of a rank in their memory where that is one.
    #[must_use]
    pub fn in_place(&self, rank: Rank) -> Option<[u64; 2]> {
        self.in_place.get(rank as usize).copied().flatten()
    }

    /// The definitions, in elements. Returns where input and output of each rank begin in one memory.
    fn define(&mut self, request: &Request) -> Vec<[u64; 2]> {
        let ranks = request.ranks;
        let mut places = vec![[0; 2]; ranks as usize];
        let reduction = Reduction { dtype: request.dtype, op: request.reduce };
        match &request.collective {
            &Collective::AllReduce { count } => {
                self.reduction = Some(reduction);
                self.buffers.fill([count; 2]);
                let pieces = self.reduced(request, count, 0);
                self.pieces.fill(pieces);
            }
            &Collective::Reduce { count, root } => {
                self.reduction = Some(reduction);
                self.buffers.fill([count, 0]);
                let pieces = self.reduced(request, count, root);
                self.set(root, [count; 2], pieces);
            }
            Collective::ReduceScatter { blocks } => {
                self.reduction = Some(reduction);
                let input = blocks.iter().map(|block| block.end()).max().unwrap_or(0);
                for (rank, block) in (0..ranks).zip(blocks) {
                    let contents = self.owned(request.order, rank);
                    let piece = Piece { at: 0, len: block.count, contents, from: block.at };
                    self.set(rank, [input, block.count], vec![piece]);
                }
                places = blocks.iter().map(|block| [0, block.at]).collect();
            }
            Collective::AllGather { blocks } => {
                let output = blocks.iter().map(|block| block.end()).max().unwrap_or(0);
                let pieces: Vec<_> =
                    blocks.iter().enumerate().map(|(rank, block)| copied(rank, *block, 0)).collect();
                for (rank, block) in (0..ranks).zip(blocks) {
                    self.set(rank, [block.count, output], pieces.clone());
                }
                places = blocks.iter().map(|block| [block.at, 0]).collect();
            }
            &Collective::Broadcast { count, root } => {
                for rank in 0..ranks {
                    let input = if rank == root { count } else { 0 };
                    let piece = copied(root as usize, Block { at: 0, count }, 0);
                    self.set(rank, [input, count], vec![piece]);
                }
            }
            &Collective::Scatter { count, root } => {
                for rank in 0..ranks {
                    let input = if rank == root { count * u64::from(ranks) } else { 0 };
                    let piece = copied(root as usize, Block { at: 0, count }, u64::from(rank) * count);
                    self.set(rank, [input, count], vec![piece]);
                }
                places = (0..u64::from(ranks)).map(|rank| [0, rank * count]).collect();
            }
            &Collective::Gather { count, root } => {
                self.buffers.fill([count, 0]);
                let blocks = Block::equal(ranks, count);
                let pieces = blocks.iter().enumerate().map(|(rank, block)| copied(rank, *block, 0)).collect();
                self.set(root, [count, count * u64::from(ranks)], pieces);
                places = (0..u64::from(ranks)).map(|rank| [rank * count, 0]).collect();
            }
            Collective::AllToAll { send, receive } => {
                let end = |row: Option<&Vec<Block>>| {
                    row.map_or(0, |row| row.iter().map(|block| block.end()).max().unwrap_or(0))
                };
                for (rank, row) in (0..ranks).zip(receive) {
                    let index = rank as usize;
                    let from =
                        |peer: usize| send.get(peer).and_then(|row| row.get(index)).map_or(0, |b| b.at);
                    let pieces = row
                        .iter()
                        .enumerate()
                        .map(|(peer, block)| copied(peer, *block, from(peer)))
                        .collect();
                    self.set(rank, [end(send.get(index)), end(Some(row))], pieces);
                }
            }
            &Collective::Send { count, from, to } => {
                self.set(from, [count, 0], Vec::new());
                let piece = copied(from as usize, Block { at: 0, count }, 0);
                let input = if from == to { count } else { 0 };
                self.set(to, [input, count], vec![piece]);
            }
            Collective::Barrier => self.barrier = true,
        }
        places
    }

    fn set(&mut self, rank: Rank, buffers: [u64; 2], pieces: Vec<Piece>) {
        if let (Some(lens), Some(list)) =
            (self.buffers.get_mut(rank as usize), self.pieces.get_mut(rank as usize))
        {
            (*lens, *list) = (buffers, pieces);
        }
    }

    /// The reduction of `count` elements of all inputs, chunk by chunk and slice by slice, the first owned by `root`.
    fn reduced(&mut self, request: &Request, count: u64, root: Rank) -> Vec<Piece> {
        let chunk = if request.chunk == 0 { count } else { request.chunk };
        let parts = request.order.slices(request.ranks);
        let owner = |slice: u32| (request.order.owner(slice, request.ranks) + root) % request.ranks;
        let owned: Vec<_> = (0..parts).map(|slice| self.owned(request.order, owner(slice))).collect();
        let mut pieces = Vec::new();
        let mut first = 0;
        while first < count {
            let len = chunk.min(count - first);
            for ((at, len), contents) in slices(len, parts).zip(&owned) {
                pieces.push(Piece { at: first + at, len, contents: *contents, from: first + at });
            }
            first += len;
        }
        pieces
    }

    /// The documented reduction of an element of the slice of a rank.
    fn owned(&mut self, order: Order, owner: Rank) -> Contents {
        let Some(merges) = order.merges(owner, self.ranks) else { return Contents::All };
        let mut held: Vec<usize> = (0..self.ranks as usize).collect();
        let mut last = owner as usize;
        for (into, from) in merges {
            self.trees.push(Tree::Reduce { into: held[into as usize], from: held[from as usize] });
            held[into as usize] = self.trees.len() - 1;
            last = into as usize;
        }
        Contents::Tree(held[last])
    }

    /// Everything so far was in elements.
    fn in_bytes(&mut self) {
        let element = self.element;
        let lens = self.buffers.iter_mut().chain(self.in_place.iter_mut().flatten()).flatten();
        lens.for_each(|len| *len *= element);
        for piece in self.pieces.iter_mut().flatten() {
            (piece.at, piece.len, piece.from) =
                (piece.at * element, piece.len * element, piece.from * element);
        }
    }
}

/// A block of an output that is the input of `rank` from `from` on.
fn copied(rank: usize, block: Block, from: u64) -> Piece {
    Piece { at: block.at, len: block.count, contents: Contents::Tree(rank), from }
}
