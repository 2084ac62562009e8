//! Keys: everything a recorded graph depends on, as twelve words without padding.
//!
//! What differs from launch to launch without changing the graph (addresses, tokens, task ids, sequence, timeout,
//! notifies) is not in a key. Names of communicators are not either: instances are never used twice.

use wire::launch::{Algorithm, OpKind, Staging};
use wire::{ABI_MAJOR, DataType, ReduceOp};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Words of a key.
pub(crate) const WORDS: usize = 12;

/// How the input and the output of an operation lie to each other; partial overlap is refused long before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Alias {
    /// No byte is in both.
    Disjoint = 0,
    /// The same memory.
    InPlace = 1,
}

/// What a recording's lengths stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Lengths of this count, elements.
    Exact(u64),
    /// Lengths and places of the count vector with this digest. Operations with one know no piece bound: the digest's
    /// other half takes its word.
    Vector([u64; 2]),
    /// Lengths of this count, places of the script with this digest. Algorithms that are scripts know no piece bound: the
    /// digest takes its word.
    Script {
        /// Elements.
        count: u64,
        /// Digest of the script.
        digest: u64,
    },
    /// Lengths are affine in the count: every count with this schedule shape is served.
    Class(u64),
}

/// How much of the order of reductions is promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Determinism {
    /// Nothing.
    Off = 0,
    /// The same order at every run.
    On = 1,
    /// The same order whatever the topology.
    Strict = 2,
}

/// What a key is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Communicator instance, never used twice.
    pub instance: [u64; 2],
    /// Communicator epoch.
    pub epoch: u32,
    /// Operation.
    pub op: OpKind,
    /// Element type.
    pub dtype: DataType,
    /// Reduction; ignored where the operation has none.
    pub reduce: ReduceOp,
    /// Algorithm.
    pub algorithm: Algorithm,
    /// Where the algorithm works.
    pub staging: Staging,
    /// How input and output lie to each other.
    pub alias: Alias,
    /// Count or class of counts.
    pub form: Form,
    /// This rank.
    pub rank: u32,
    /// Number of ranks.
    pub ranks: u32,
    /// Root; ignored where the operation has none.
    pub root: u32,
    /// Algorithms of a composition's levels, as in the launch.
    pub levels: [u8; 4],
    /// Upper bound of elements per chunk and rank, 0 for none.
    pub chunk: u64,
    /// Longest piece of one transfer, bytes, 0 for no other bound than the engine's.
    pub piece: u64,
    /// Bytes of the scratch buffer.
    pub scratch_len: u64,
    /// Digest of the topology.
    pub topology: u64,
    /// Digest or address of the resource context.
    pub context: u64,
    /// Threads the graph is recorded for.
    pub threads: u16,
    /// What is promised about the order of reductions.
    pub determinism: Determinism,
    /// Feature bits the recorder was built or configured with.
    pub features: u32,
}

/// A key. Two launches with equal keys are served by the same recording, bar addresses.
///
/// Narrow fields are packed into whole words by arithmetic: a word that is stored in pieces and then loaded whole, to
/// be hashed, stalls the processor.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Key {
    pub(crate) instance: [u64; 2],
    pub(crate) topology: u64,
    pub(crate) context: u64,
    /// Count, class of counts, or half a digest of a tag: the form says which.
    pub(crate) count: u64,
    pub(crate) chunk: u64,
    pub(crate) piece: u64,
    pub(crate) scratch_len: u64,
    /// Epoch, and rank in the high half.
    pub(crate) place: u64,
    /// Ranks, root and levels from bit 0, 16 and 32 on: ranks are counted in 16 bits.
    pub(crate) group: u64,
    /// Feature bits, threads and ABI version from bit 0, 32 and 48 on.
    pub(crate) build: u64,
    /// From the low byte on: operation, data type, reduction, algorithm, staging, aliasing, form, determinism.
    pub(crate) kind: u64,
}
const _: () = assert!(size_of::<Key>() == 8 * WORDS);

impl Key {
    /// A key that no launch has: its operation is 0.
    pub(crate) const ZERO: Self = zerocopy::transmute!([0_u64; WORDS]);

    /// Returns the key of these facts, for this build's ABI version. What the operation has not (root, reduction) is
    /// 0, whatever the facts say.
    #[must_use]
    #[inline]
    pub fn new(facts: &Facts) -> Self {
        let (form, count, piece) = match facts.form {
            Form::Exact(count) => (0, count, facts.piece),
            Form::Class(class) => (1, class, facts.piece),
            Form::Vector([low, high]) => (3, low, high),
            Form::Script { count, digest } => (4, count, digest),
        };
        let root = if facts.op.is_rooted() { facts.root } else { 0 };
        let reduce = if facts.op.reduces() { facts.reduce as u8 } else { 0 };
        let (features, threads, abi) =
            (u64::from(facts.features), u64::from(facts.threads), u64::from(ABI_MAJOR));
        Self {
            instance: facts.instance,
            topology: facts.topology,
            context: facts.context,
            count,
            chunk: facts.chunk,
            piece,
            scratch_len: facts.scratch_len,
            place: pair(facts.epoch, facts.rank),
            group: u64::from(facts.ranks & 0xffff)
                | u64::from(root & 0xffff) << 16
                | u64::from(u32::from_le_bytes(facts.levels)) << 32,
            build: features | threads << 32 | abi << 48,
            kind: u64::from_le_bytes([
                facts.op as u8,
                facts.dtype as u8,
                reduce,
                facts.algorithm as u8,
                facts.staging as u8,
                facts.alias as u8,
                form,
                facts.determinism as u8,
            ]),
        }
    }

    /// Returns the key that stands for a tag: its digest and length.
    pub(crate) fn of_tag(instance: [u64; 2], epoch: u32, digest: [u64; 2], len: usize) -> Self {
        let [count, chunk] = digest;
        let kind = u64::from_le_bytes([0, 0, 0, 0, 0, 0, 2, 0]);
        Self { instance, place: pair(epoch, 0), count, chunk, piece: len as u64, kind, ..Self::ZERO }
    }

    /// Returns the communicator instance.
    #[must_use]
    pub const fn instance(&self) -> [u64; 2] {
        self.instance
    }

    /// Returns the communicator epoch.
    #[must_use]
    pub const fn epoch(&self) -> u32 {
        let [a, b, c, d, ..] = self.place.to_le_bytes();
        u32::from_le_bytes([a, b, c, d])
    }

    /// Returns the key as words.
    #[inline]
    pub(crate) fn words(&self) -> &[u64; WORDS] {
        zerocopy::transmute_ref!(self)
    }
}

/// Compares all words at once: no early exit, so that it vectorises.
impl PartialEq for Key {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.words().iter().zip(other.words()).fold(0, |differing, (a, b)| differing | (a ^ b)) == 0
    }
}

impl Eq for Key {}

/// Two halves of a word, the low one first.
#[inline]
fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}
