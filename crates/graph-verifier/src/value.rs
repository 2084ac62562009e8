//! Values: what bytes hold, as expressions over the ranks' inputs.
//!
//! A value is an input of a rank, or one value reduced into another. Equal expressions have equal numbers, so that
//! "is this element reduced in the documented order" is one comparison. A buffer's bytes are a value and a shift:
//! the byte at `p` holds the value at input offset `p + shift`. Both operands of a reduction are taken at the same
//! offset, unless `bias` says otherwise, which no sound operation does.

use core::fmt::Write;
use core::hash::{BuildHasherDefault, Hasher};
use std::collections::HashMap;

use task_graph::Rank;
use wire::Reduction;

/// Number of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Value(u32);

impl Value {
    /// Bytes that nothing has written.
    pub(crate) const UNDEFINED: Self = Self(0);
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Expression {
    Undefined,
    Input(Rank),
    Reduced { reduction: Reduction, into: Value, from: Value, bias: i64 },
}

/// Hashes a few numbers in a few instructions: the keys are counted by this crate, nobody chooses them to collide.
#[derive(Default)]
struct Mixer(u64);

impl Hasher for Mixer {
    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 32
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    #[inline]
    fn write_u8(&mut self, number: u8) {
        self.write_u64(u64::from(number));
    }

    #[inline]
    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }

    #[inline]
    fn write_u32(&mut self, number: u32) {
        self.write_u64(u64::from(number));
    }

    #[inline]
    fn write_u64(&mut self, number: u64) {
        // The golden ratio, as in Fibonacci hashing.
        self.0 = (self.0.rotate_left(5) ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

/// All values there are.
pub(crate) struct Values {
    all: Vec<Expression>,
    known: HashMap<Expression, Value, BuildHasherDefault<Mixer>>,
}

impl Values {
    /// Makes the inputs of all ranks.
    pub(crate) fn new(ranks: u32) -> Self {
        let mut all = vec![Expression::Undefined];
        all.extend((0..ranks).map(Expression::Input));
        Self { all, known: HashMap::default() }
    }

    pub(crate) fn input(rank: Rank) -> Value {
        Value(rank + 1)
    }

    /// Returns `from` reduced into `into`, the former taken `bias` bytes further on.
    pub(crate) fn reduced(&mut self, reduction: Reduction, into: Value, from: Value, bias: i64) -> Value {
        let expression = Expression::Reduced { reduction, into, from, bias };
        *self.known.entry(expression).or_insert_with(|| {
            let number = u32::try_from(self.all.len()).unwrap_or(u32::MAX);
            self.all.push(expression);
            Value(number)
        })
    }

    fn expression(&self, value: Value) -> Expression {
        self.all.get(value.0 as usize).copied().unwrap_or(Expression::Undefined)
    }

    /// Returns how often each rank contributes, at most `most` contributions in all; `None` where some contribution
    /// is undefined, shifted, or reduced otherwise.
    pub(crate) fn contributions(
        &self,
        value: Value,
        reduction: Option<Reduction>,
        most: usize,
    ) -> Option<Vec<Rank>> {
        let (mut open, mut ranks) = (vec![value], Vec::new());
        while let Some(value) = open.pop() {
            match self.expression(value) {
                Expression::Undefined => return None,
                Expression::Input(rank) => ranks.push(rank),
                Expression::Reduced { reduction: how, into, from, bias } => {
                    if bias != 0 || Some(how) != reduction {
                        return None;
                    }
                    open.extend([from, into]);
                }
            }
            if ranks.len() + open.len() > most {
                return None;
            }
        }
        ranks.sort_unstable();
        Some(ranks)
    }

    /// Returns the expression as text, cut where it is long.
    pub(crate) fn text(&self, value: Value) -> String {
        const MOST: usize = 160;
        let mut text = String::new();
        self.write(&mut text, value, MOST);
        text
    }

    fn write(&self, text: &mut String, value: Value, most: usize) {
        if text.len() > most {
            if !text.ends_with('…') {
                text.push('…');
            }
            return;
        }
        match self.expression(value) {
            Expression::Undefined => text.push_str("undefined"),
            Expression::Input(rank) => {
                let _ = write!(text, "x{rank}");
            }
            Expression::Reduced { into, from, bias, .. } => {
                text.push('(');
                self.write(text, into, most);
                text.push_str(" · ");
                self.write(text, from, most);
                if bias != 0 {
                    let _ = write!(text, "[{bias:+}]");
                }
                text.push(')');
            }
        }
    }
}
