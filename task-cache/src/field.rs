//! The fields of a key by name, for messages: which differ, and with what values.

use core::fmt;
use core::ops::Range;

use wire::launch::{Algorithm, OpKind, Staging};
use wire::{DataType, ReduceOp};

use crate::key::Key;

/// Declares the fields with their names and where they are in a key: a word, and which of its bits.
macro_rules! fields {
    ($($variant:ident $text:literal $word:ident $bits:expr),+ $(,)?) => {
        /// A field of a [`Key`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Field { #[doc = "communicator instance"] Instance, $(#[doc = $text] $variant),+ }

        impl Field {
            /// Every field, in the order messages have them.
            pub const ALL: &[Self] = &[Self::Instance, $(Self::$variant),+];

            /// Returns the name users read.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { Self::Instance => "communicator instance", $(Self::$variant => $text),+ }
            }
        }

        impl Key {
            /// Returns one field's value, to be printed.
            #[must_use]
            pub fn value(&self, field: Field) -> Value {
                let words = match field {
                    Field::Instance => self.instance,
                    $(Field::$variant => [bits(self.$word, $bits), 0]),+
                };
                Value { field, words }
            }
        }
    };
}

fields! {
    Epoch "epoch" place 0..32, Op "operation" kind 0..8, Dtype "data type" kind 8..16,
    Reduce "reduction" kind 16..24, Algorithm "algorithm" kind 24..32, Staging "staging" kind 32..40,
    Alias "aliasing" kind 40..48, Form "form" kind 48..56, Count "count or class" count 0..64,
    Rank "rank" place 32..64, Ranks "ranks" group 0..16, Root "root" group 16..32, Levels "levels" group 32..64,
    Chunk "chunk bound" chunk 0..64, Piece "piece bound" piece 0..64, Scratch "scratch bytes" scratch_len 0..64,
    Topology "topology digest" topology 0..64, Context "context" context 0..64, Threads "threads" build 32..48,
    Determinism "determinism" kind 56..64, Abi "ABI version" build 48..64, Features "feature bits" build 0..32,
}

/// Cuts bits out of a word.
fn bits(word: u64, range: Range<u32>) -> u64 {
    word << (64 - range.end) >> (64 - range.end + range.start)
}

/// What a field of a key holds; prints as users know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value {
    field: Field,
    words: [u64; 2],
}

impl Value {
    /// Returns the name of the number, where it has one.
    fn name(self) -> Option<&'static str> {
        let [word, _] = self.words;
        let byte = u8::try_from(word).ok()?;
        let listed = |names: &[&'static str]| names.get(usize::from(byte)).copied();
        match self.field {
            Field::Op => OpKind::try_from(byte).ok().map(OpKind::name),
            Field::Dtype => DataType::try_from(byte).ok().map(DataType::name),
            Field::Reduce => ReduceOp::try_from(byte).ok().map(ReduceOp::name),
            Field::Algorithm => Algorithm::try_from(byte).ok().map(Algorithm::name),
            Field::Staging => Staging::try_from(byte).ok().map(Staging::name),
            Field::Alias => listed(&["disjoint", "in place"]),
            Field::Form => listed(&["exact count", "shape class", "tag", "count vector"]),
            Field::Determinism => listed(&["off", "on", "strict"]),
            _ => None,
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [word, second] = self.words;
        match (self.name(), self.field) {
            (Some(name), _) => f.write_str(name),
            (None, Field::Instance) => write!(f, "{word:016x}{second:016x}"),
            (None, Field::Topology | Field::Context | Field::Features) => write!(f, "{word:#x}"),
            (None, _) => write!(f, "{word}"),
        }
    }
}

/// One field in which two keys differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Which.
    pub field: Field,
    /// What the recording has.
    pub stored: Value,
    /// What the launch has.
    pub wanted: Value,
}

/// Prints `count or class: recorded 1024, now 2048`.
impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: recorded {}, now {}", self.field.name(), self.stored, self.wanted)
    }
}

impl Key {
    /// Returns the fields in which a recording's key differs from this one.
    pub fn differences(self, stored: Self) -> impl Iterator<Item = Difference> {
        Field::ALL.iter().copied().filter_map(move |field| {
            let (stored, wanted) = (stored.value(field), self.value(field));
            (stored != wanted).then_some(Difference { field, stored, wanted })
        })
    }
}
