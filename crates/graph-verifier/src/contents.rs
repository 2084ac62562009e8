//! What outputs hold, compared with what they must hold (V8 to V10, and the barrier).

use core::ops::Range;

use task_graph::{Rank, RegionKind};

use crate::clocks::Moment;
use crate::goal::{Contents, Goal, Piece, Tree};
use crate::layout::Spot;
use crate::memory::Fragment;
use crate::obligation::Obligation;
use crate::pass::{Pass, Refuted};
use crate::value::{Value, Values};

/// What the outputs of one operation must hold.
pub(crate) struct Expected {
    /// The value of each tree of the goal.
    trees: Vec<Value>,
    /// Where the order is free: what the first rank that got there holds for these bytes of the inputs.
    agreed: Vec<(Range<u64>, Value)>,
}

impl Expected {
    pub(crate) fn new(goal: &Goal, values: &mut Values) -> Self {
        let mut trees: Vec<Value> = Vec::with_capacity(goal.trees.len());
        for tree in &goal.trees {
            trees.push(match (*tree, goal.reduction) {
                (Tree::Input(rank), _) => Values::input(rank),
                (Tree::Reduce { into, from }, Some(reduction)) => {
                    values.reduced(reduction, trees[into], trees[from], 0)
                }
                (Tree::Reduce { .. }, None) => Value::UNDEFINED,
            });
        }
        Self { trees, agreed: Vec::new() }
    }
}

impl Pass<'_> {
    /// Checks the output of a rank that is done with an operation.
    pub(crate) fn check_output(
        &mut self,
        operation: usize,
        rank: Rank,
        moment: Moment,
    ) -> Result<(), Refuted> {
        let goal = &self.layout.operations[operation].goal;
        let (memory, base) = self.layout.buffer(operation, rank, RegionKind::Output);
        let [_, len] = goal.buffers(rank);
        let mut done = 0;
        for piece in &goal.pieces[rank as usize] {
            if goal.in_place(rank).is_none() {
                self.check_unwritten(operation, (memory, base), done..piece.at, moment)?;
            }
            self.check_piece(operation, rank, (memory, base), piece, moment)?;
            done = done.max(piece.at + piece.len);
        }
        if goal.in_place(rank).is_none() {
            self.check_unwritten(operation, (memory, base), done..len, moment)?;
        }
        Ok(())
    }

    /// Checks that an operation left bytes of an output alone.
    fn check_unwritten(
        &mut self,
        operation: usize,
        (memory, base): (usize, u64),
        bytes: Range<u64>,
        moment: Moment,
    ) -> Result<(), Refuted> {
        if bytes.is_empty() {
            return Ok(());
        }
        let range = self.memories[memory].cut(base + bytes.start..base + bytes.end);
        let number = u32::try_from(operation).unwrap_or(u32::MAX);
        let written =
            |fragment: &&Fragment| fragment.operation == number && fragment.value != Value::UNDEFINED;
        let found = self.memories[memory].get(range).iter().find(written).copied();
        let Some(fragment) = found else { return Ok(()) };
        let why = "a byte of the output is written that the operation does not define".to_owned();
        let spot = Spot { memory, at: base + bytes.start, len: bytes.end - bytes.start };
        let mut refuted = self.alone(Obligation::Writes, why, moment, Some((operation, spot)));
        refuted.with = Some(self.layout.place(fragment.writer));
        Err(refuted)
    }

    fn check_piece(
        &mut self,
        operation: usize,
        rank: Rank,
        (memory, base): (usize, u64),
        piece: &Piece,
        moment: Moment,
    ) -> Result<(), Refuted> {
        let number = u32::try_from(operation).unwrap_or(u32::MAX);
        let range = self.memories[memory].cut(base + piece.at..base + piece.at + piece.len);
        // Two's complement: a difference of places below 2^63.
        let shift = piece.from.wrapping_sub(base + piece.at).cast_signed();
        for index in range {
            let start = self.memories[memory].start(index);
            let fragment = self.memories[memory].get(index..index + 1)[0];
            let held = if fragment.operation == number { fragment.value } else { Value::UNDEFINED };
            let right = match piece.contents {
                Contents::Tree(tree) => held == self.expected[operation].trees[tree],
                Contents::All => self.is_all(operation, held),
            };
            let found = if !right || held == Value::UNDEFINED {
                Some(self.wrong(operation, held, piece.contents))
            } else if fragment.shift != shift {
                let why = "the bytes come from another place of the inputs";
                Some((Obligation::Result, format!("{why}: {:+} bytes", fragment.shift.wrapping_sub(shift))))
            } else if piece.contents == Contents::All {
                let from = start.wrapping_add_signed(shift)..fragment.end.wrapping_add_signed(shift);
                self.agree(operation, from, held)
            } else {
                None
            };
            if let Some((obligation, why)) = found {
                let spot = Spot { memory, at: start, len: fragment.end - start };
                let why = format!("the output of rank {rank} is wrong: {why}");
                let mut refuted = self.alone(obligation, why, moment, Some((operation, spot)));
                refuted.with = (!fragment.writer.is_never()).then(|| self.layout.place(fragment.writer));
                return Err(refuted);
            }
        }
        Ok(())
    }

    /// Whether a value has every rank's input once.
    fn is_all(&self, operation: usize, held: Value) -> bool {
        let goal = &self.layout.operations[operation].goal;
        let ranks = self.values.contributions(held, goal.reduction, goal.ranks as usize);
        ranks.is_some_and(|ranks| ranks.iter().copied().eq(0..goal.ranks))
    }

    /// What is wrong with a value: another order of the right contributions, or other contributions.
    fn wrong(&self, operation: usize, held: Value, contents: Contents) -> (Obligation, String) {
        if held == Value::UNDEFINED {
            return (Obligation::Result, "this operation has not written it".to_owned());
        }
        let text = self.values.text(held);
        match contents {
            Contents::All => {
                (Obligation::Result, format!("it holds {text}, which has not every input exactly once"))
            }
            Contents::Tree(tree) => {
                let wanted = self.expected[operation].trees[tree];
                let goal = &self.layout.operations[operation].goal;
                let ranks = |value| self.values.contributions(value, goal.reduction, goal.ranks as usize);
                let same = ranks(held).is_some() && ranks(held) == ranks(wanted);
                let obligation = if same { Obligation::Order } else { Obligation::Result };
                (obligation, format!("it holds {text} and must hold {}", self.values.text(wanted)))
            }
        }
    }

    /// Compares a result of free order with what other ranks hold for the same bytes.
    fn agree(&mut self, operation: usize, from: Range<u64>, held: Value) -> Option<(Obligation, String)> {
        let agreed = &mut self.expected[operation].agreed;
        let mut open = from.start;
        for (range, value) in agreed.iter() {
            if range.start < from.end && from.start < range.end && *value != held {
                let (text, other) = (self.values.text(held), self.values.text(*value));
                return Some((Obligation::Order, format!("it holds {text}, another rank {other}")));
            }
            if range.contains(&open) {
                open = range.end;
            }
        }
        if open < from.end {
            agreed.push((open..from.end, held));
        }
        None
    }

    /// Checks that every rank has started before this one is done.
    pub(crate) fn check_barrier(&self, operation: usize, rank: Rank, moment: Moment) -> Result<(), Refuted> {
        let layout = self.layout;
        for other in (0..layout.ranks).filter(|other| *other != rank) {
            let main = other * layout.threads;
            let before: usize = (0..operation).map(|earlier| layout.list(earlier, main).len() + 1).sum();
            if (self.clocks.seen(moment.queue, main) as usize) <= before {
                let why = format!("rank {rank} leaves the barrier, and nothing says that rank {other} came");
                return Err(self.alone(Obligation::Result, why, moment, None));
            }
        }
        Ok(())
    }
}
