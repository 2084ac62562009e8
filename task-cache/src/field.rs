//! The fields of a key by name, for messages: which differ, and with what values.

use core::fmt;

use wire::launch::{Algorithm, Staging};
use wire::{DataType, ReduceOp};

use crate::key::Key;
use crate::operation::Operation;

/// Declares the fields with their names and where they are in a key.
macro_rules! fields {
    ($($variant:ident $text:literal $field:ident),+ $(,)?) => {
        /// A field of a [`Key`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Field { $(#[doc = $text] $variant),+ }

        impl Field {
            /// Every field, in the order messages have them.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// Returns the name users read.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }
        }

        impl Key {
            /// Returns one field's value, to be printed.
            #[must_use]
            pub fn value(&self, field: Field) -> Value {
                let words = match field { $(Field::$variant => Words::from(self.$field).0),+ };
                Value { field, words }
            }
        }
    };
}

fields! {
    Instance "communicator instance" instance, Epoch "epoch" epoch, Op "operation" op, Dtype "data type" dtype,
    Reduce "reduction" reduce, Algorithm "algorithm" algorithm, Staging "staging" staging, Alias "aliasing" alias,
    Form "form" form, Count "count or class" count, Rank "rank" rank, Ranks "ranks" ranks, Root "root" root,
    Chunk "chunk bound" chunk, Piece "piece bound" piece, Scratch "scratch bytes" scratch_len,
    Topology "topology digest" topology, Context "context" context, Threads "threads" threads,
    Determinism "determinism" determinism, Abi "ABI version" abi, Features "feature bits" features,
}

/// The bits of any field.
struct Words([u64; 2]);

impl From<[u64; 2]> for Words {
    fn from(words: [u64; 2]) -> Self {
        Self(words)
    }
}

/// Implements the conversion of the narrower fields.
macro_rules! words {
    ($($narrow:ty),+) => {
        $(impl From<$narrow> for Words {
            fn from(word: $narrow) -> Self {
                Self([word.into(), 0])
            }
        })+
    };
}
words!(u8, u16, u32, u64);

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
            Field::Op => Operation::from_number(word).map(Operation::name),
            Field::Dtype => DataType::try_from(byte).ok().map(DataType::name),
            Field::Reduce => ReduceOp::try_from(byte).ok().map(ReduceOp::name),
            Field::Algorithm => Algorithm::try_from(byte).ok().map(Algorithm::name),
            Field::Staging => Staging::try_from(byte).ok().map(Staging::name),
            Field::Alias => listed(&["disjoint", "in place"]),
            Field::Form => listed(&["exact count", "shape class", "tag"]),
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
