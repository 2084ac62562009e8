//! Collective algorithms as data.
//!
//! An [`Algorithm`] is read from MSCCL XML ([`AlgorithmFile::parse`]) or written in Rust ([`Builder`]). Either way it is
//! carried out symbolically, on all ranks, before anything else happens: an [`AlgorithmFile`] exists only of one that
//! neither hangs nor races and leaves in every output what its collective says. It then becomes one
//! [script](wire::script) per rank, which the kernel expands for any count and type.
//!
//! ```
//! use aicpu_algorithm_file::{AlgorithmFile, Builder, Buffer::{Input, Output}};
//! use wire::launch::OpKind;
//!
//! /// Every rank sends its block to every other.
//! fn all_gather(ranks: u32) -> Builder {
//!     let mut algorithm = Builder::new("mesh", OpKind::AllGather, ranks, ranks);
//!     for rank in 0..ranks {
//!         algorithm.block(rank).copy((Input, 0), (Output, rank));
//!         for peer in (0..ranks).filter(|&peer| peer != rank) {
//!             algorithm.block(rank).to(peer).send((Input, 0));
//!             algorithm.block(rank).from(peer).receive((Output, peer));
//!         }
//!     }
//!     algorithm
//! }
//! assert!(AlgorithmFile::new(all_gather(4).finish()).is_ok());
//! ```
//!
//! No memory is touched and no hardware is known here; which count and type are run with which script is the host's.

mod algorithm;
mod build;
mod check;
mod clocks;
mod fault;
mod lower;
mod program;
mod simulate;
mod values;
mod write;
mod xml;

pub use algorithm::{Algorithm, Buffer, Gpu, Kind, Place, Step, ThreadBlock};
pub use build::{BlockBuilder, Builder, StepRef};
pub use fault::Fault;
pub use lower::RankScript;
pub use values::{Term, Value, Values};
pub use write::to_xml;

use wire::ErrorCode;
use wire::script::ScriptHeader;

use simulate::Execution;

/// Longest file that is read, bytes.
pub const MAX_BYTES: usize = 64 << 20;

/// An algorithm that has been carried out symbolically, and found right.
#[derive(Clone, Debug)]
pub struct AlgorithmFile {
    algorithm: Algorithm,
    /// Out of place, in place.
    uses: [Option<Use>; 2],
}

/// An algorithm with input and output in one relation.
#[derive(Clone, Debug)]
struct Use {
    scripts: Vec<RankScript>,
    values: Values,
    outputs: Vec<Vec<Value>>,
}

/// What every rank must have for the scripts of an algorithm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Threads, the main one included.
    pub threads: u16,
    /// Notifies of the main thread besides the start notifies.
    pub main_notifies: u16,
    /// Notifies of each sub thread.
    pub sub_notifies: u16,
}

impl AlgorithmFile {
    /// Reads MSCCL XML.
    ///
    /// # Errors
    /// `ALGORITHM_*` with line and column of the first fault.
    pub fn parse(text: &str) -> Result<Self, Fault> {
        xml::parse(text).and_then(Self::new).map_err(|fault| fault.located(text))
    }

    /// Checks an algorithm, carries it out and makes its scripts.
    ///
    /// # Errors
    /// `ALGORITHM_*` with the first step at fault.
    pub fn new(algorithm: Algorithm) -> Result<Self, Fault> {
        check::check(&algorithm)?;
        let make = |wanted: bool, in_place| -> Result<Option<Use>, Fault> {
            if !wanted {
                return Ok(None);
            }
            let execution = simulate::simulate(&algorithm, in_place)?;
            let scripts = lower::lower(&algorithm, &execution, in_place)?;
            let Execution { values, outputs, .. } = execution;
            Ok(Some(Use { scripts, values, outputs }))
        };
        let uses = [make(algorithm.out_of_place, false)?, make(algorithm.in_place, true)?];
        Ok(Self { algorithm, uses })
    }

    /// Returns what it says.
    #[must_use]
    pub fn algorithm(&self) -> &Algorithm {
        &self.algorithm
    }

    /// Returns the script of every rank.
    ///
    /// # Errors
    /// `ALGORITHM_MISMATCH` for buffers in a relation that it is not made for.
    pub fn scripts(&self, in_place: bool) -> Result<&[RankScript], Fault> {
        self.use_of(in_place).map(|used| &*used.scripts)
    }

    /// Returns how every chunk of a rank's output comes to be: what an oracle computes it from.
    ///
    /// # Errors
    /// As [`scripts`](Self::scripts).
    pub fn outputs(&self, in_place: bool) -> Result<(&Values, &[Vec<Value>]), Fault> {
        self.use_of(in_place).map(|used| (&used.values, &*used.outputs))
    }

    /// Returns whether it works with buffers in this relation.
    #[must_use]
    pub fn works(&self, in_place: bool) -> bool {
        self.uses[usize::from(in_place)].is_some()
    }

    /// Returns a number that stands for everything its scripts say.
    #[must_use]
    pub fn digest(&self) -> u64 {
        // Sums would let two ranks change places: each digest is moved away from those before it.
        self.headers().fold(0, |digest: u64, header| digest.rotate_left(7).wrapping_add(header.digest))
    }

    /// Returns the heads of all scripts.
    pub fn headers(&self) -> impl Iterator<Item = ScriptHeader> {
        self.uses.iter().flatten().flat_map(|used| &used.scripts).map(|script| script.header)
    }

    /// Returns what every rank must have, whatever the relation of its buffers.
    #[must_use]
    pub fn needs(&self) -> Needs {
        self.headers().fold(Needs::default(), |needs, header| Needs {
            threads: needs.threads.max(header.threads),
            main_notifies: needs.main_notifies.max(header.main_notifies),
            sub_notifies: needs.sub_notifies.max(header.sub_notifies),
        })
    }

    fn use_of(&self, in_place: bool) -> Result<&Use, Fault> {
        self.uses[usize::from(in_place)].as_ref().ok_or_else(|| {
            let (is, other) = if in_place { ("out of", "in") } else { ("in", "out of") };
            let message = format!("{:?} works {is} place only, not {other} place", self.algorithm.name);
            Fault::new(ErrorCode::ALGORITHM_MISMATCH, 0, message)
        })
    }
}

/// Equal when the algorithms are: everything else follows from them.
impl PartialEq for AlgorithmFile {
    fn eq(&self, other: &Self) -> bool {
        self.algorithm == other.algorithm
    }
}

impl Eq for AlgorithmFile {}

/// Equal files have equal scripts, and those equal digests.
impl core::hash::Hash for AlgorithmFile {
    fn hash<H: core::hash::Hasher>(&self, state: &mut H) {
        self.digest().hash(state);
    }
}
