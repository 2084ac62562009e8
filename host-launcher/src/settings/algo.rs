//! `HCCL_ALGO`: which algorithm each level of the hierarchy uses, for all operations or operation by operation.
//!
//! ```text
//! value  = levels | op "=" levels { "/" op "=" levels }
//! levels = level { ";" level }
//! level  = ("level0" | "level1" | "level2") ":" name
//! ```
//! A name is accepted when the field knows it; whether it is implemented is for the launcher to say.

use core::fmt;

use wire::ErrorCode;

use super::values::Fault;

/// Declares a set of names of the field with its text forms.
macro_rules! names {
    ($(#[$doc:meta])* $type:ident { $($(#[$variant_doc:meta])* $variant:ident $text:literal)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $type { $($(#[$variant_doc])* $variant),* }

        impl $type {
            const ALL: &[Self] = &[$(Self::$variant),*];

            /// Returns the field's name.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $text),* }
            }
        }
    };
}

names! {
    /// An algorithm as `HCCL_ALGO` names it.
    AlgoName {
        /// Left to the launcher.
        Na "NA"
        /// Ring.
        Ring "ring"
        /// Every rank with every other.
        FullMesh "fullmesh"
        /// Recursive halving and doubling.
        HalvingDoubling "H-D_R"
        /// Non-uniform hierarchical ring.
        Nhr "NHR"
        /// Its first version.
        NhrV1 "NHR_V1"
        /// Non-uniform Bruck.
        Nb "NB"
        /// Asymmetric hierarchical concatenation.
        Ahc "AHC"
        /// Pipeline over the levels.
        Pipeline "pipeline"
        /// Pairwise exchange.
        Pairwise "pairwise"
    }
}

names! {
    /// An operation as `HCCL_ALGO` names it.
    AlgoOp {
        /// All-reduce.
        AllReduce "allreduce"
        /// All-gather.
        AllGather "allgather"
        /// Reduce-scatter.
        ReduceScatter "reducescatter"
        /// Broadcast.
        Broadcast "broadcast"
        /// Reduce.
        Reduce "reduce"
        /// Scatter.
        Scatter "scatter"
        /// All-to-all.
        AllToAll "alltoall"
    }
}

const LEVELS: usize = 3;

/// The algorithm of each level; `None` where the value does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Levels([Option<(AlgoName, usize)>; LEVELS]);

impl Levels {
    /// Returns the algorithm of level 0 (inside a server), 1 (between servers) or 2 (between super pods).
    #[must_use]
    pub fn get(&self, level: usize) -> Option<AlgoName> {
        self.0.get(level).copied().flatten().map(|(name, _)| name)
    }

    /// Returns the column of the value, from 1, at which a level's name stands.
    #[must_use]
    pub fn column(&self, level: usize) -> Option<usize> {
        self.0.get(level).copied().flatten().map(|(_, column)| column)
    }
}

/// A checked value of `HCCL_ALGO`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Algo(Vec<(Option<AlgoOp>, Levels)>);

impl Algo {
    /// Returns what is asked for operation `op`; `None` if nothing is.
    #[must_use]
    pub fn levels(&self, op: AlgoOp) -> Option<Levels> {
        self.0.iter().find(|(of, _)| of.is_none_or(|of| of == op)).map(|&(_, levels)| levels)
    }
}

/// Prints the value in the syntax it was read from.
impl fmt::Display for Algo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (op, levels)) in self.0.iter().enumerate() {
            f.write_str(if index > 0 { "/" } else { "" })?;
            if let Some(op) = op {
                write!(f, "{}=", op.name())?;
            }
            let given = (0..LEVELS).filter_map(|level| Some((level, levels.get(level)?)));
            for (position, (level, name)) in given.enumerate() {
                write!(f, "{}level{level}:{}", if position > 0 { ";" } else { "" }, name.name())?;
            }
        }
        Ok(())
    }
}

/// Parses a value; a fault names the column (from 1) and what was expected there.
pub(super) fn parse(text: &str) -> Result<Algo, Fault> {
    let whole = Piece { text, column: 1 };
    if !text.contains('=') {
        return Ok(Algo(vec![(None, parse_levels(whole)?)]));
    }
    let mut algo = Algo(Vec::new());
    for piece in whole.split('/') {
        let (op, levels) =
            piece.halves('=').ok_or_else(|| piece.expected("an operation, \"=\" and its levels"))?;
        let op = op
            .one_of(AlgoOp::ALL, AlgoOp::name)
            .ok_or_else(|| op.expected(&one_of(AlgoOp::ALL, AlgoOp::name)))?;
        if algo.levels(op).is_some() {
            return Err(piece.expected(&format!("{} only once", op.name())));
        }
        algo.0.push((Some(op), parse_levels(levels)?));
    }
    Ok(algo)
}

fn parse_levels(piece: Piece<'_>) -> Result<Levels, Fault> {
    let mut levels = Levels::default();
    for piece in piece.split(';') {
        let (level, name) =
            piece.halves(':').ok_or_else(|| piece.expected("a level, \":\" and an algorithm"))?;
        let index = (0..LEVELS).find(|index| level.text == format!("level{index}"));
        let index = index.ok_or_else(|| level.expected("level0, level1 or level2"))?;
        if levels.0[index].is_some() {
            return Err(level.expected(&format!("level{index} only once")));
        }
        let algorithm = name.one_of(AlgoName::ALL, AlgoName::name);
        let algorithm = algorithm.ok_or_else(|| name.expected(&one_of(AlgoName::ALL, AlgoName::name)))?;
        levels.0[index] = Some((algorithm, name.column));
    }
    Ok(levels)
}

fn one_of<T: Copy>(all: &[T], name: fn(T) -> &'static str) -> String {
    let names: Vec<_> = all.iter().map(|&item| name(item)).collect();
    format!("one of {}", names.join(", "))
}

/// Part of the value and where it starts; everything before it was ASCII.
#[derive(Clone, Copy)]
struct Piece<'a> {
    text: &'a str,
    column: usize,
}

impl<'a> Piece<'a> {
    fn split(self, separator: char) -> impl Iterator<Item = Self> {
        let mut column = self.column;
        self.text.split(separator).map(move |text| {
            let piece = Self { text, column };
            column += text.len() + 1;
            piece
        })
    }

    fn halves(self, separator: char) -> Option<(Self, Self)> {
        let (before, after) = self.text.split_once(separator)?;
        let column = self.column + before.len() + 1;
        Some((Self { text: before, ..self }, Self { text: after, column }))
    }

    fn one_of<T: Copy>(self, all: &[T], name: fn(T) -> &'static str) -> Option<T> {
        all.iter().copied().find(|&item| name(item) == self.text)
    }

    fn expected(self, what: &str) -> Fault {
        Fault { code: ErrorCode::ENV_ALGO, expected: format!("{what} at column {}", self.column) }
    }
}
