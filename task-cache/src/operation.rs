//! The operations a recording can be of: all that the field has, not only those a launch can name today.
//!
//! Only what keys and policies ask of an operation is here.

use wire::launch::OpKind;

/// Declares the operations with their numbers and names.
macro_rules! operations {
    ($($variant:ident = $number:literal $text:literal),+ $(,)?) => {
        /// A communication operation; the numbers are our own, the first three are those of [`OpKind`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Operation { $(#[doc = concat!("`", $text, "`")] $variant = $number),+ }

        impl Operation {
            /// Every operation, in the order of the numbers.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// Returns the name users read.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }
        }
    };
}

operations! {
    AllReduce = 1 "all-reduce", AllGather = 2 "all-gather", ReduceScatter = 3 "reduce-scatter",
    Broadcast = 4 "broadcast", Reduce = 5 "reduce", Scatter = 6 "scatter", AllToAll = 7 "all-to-all",
    AllToAllV = 8 "all-to-all-v", AllToAllVC = 9 "all-to-all-vc", AllGatherV = 10 "all-gather-v",
    ReduceScatterV = 11 "reduce-scatter-v", Send = 12 "send", Receive = 13 "receive",
    BatchSendReceive = 14 "batch-send-receive",
}

impl Operation {
    /// Returns whether one rank is the root, so that the graph depends on which.
    #[must_use]
    pub const fn is_rooted(self) -> bool {
        matches!(self, Self::Broadcast | Self::Reduce | Self::Scatter)
    }

    /// Returns whether elements are reduced, so that the graph depends on how.
    #[must_use]
    pub const fn reduces(self) -> bool {
        matches!(self, Self::AllReduce | Self::ReduceScatter | Self::Reduce | Self::ReduceScatterV)
    }

    /// Returns whether each rank has a count of its own.
    #[must_use]
    pub const fn has_count_vector(self) -> bool {
        matches!(self, Self::AllToAllV | Self::AllToAllVC | Self::AllGatherV | Self::ReduceScatterV)
    }

    /// Returns whether it moves between named ranks instead of all.
    #[must_use]
    pub const fn is_point_to_point(self) -> bool {
        matches!(self, Self::Send | Self::Receive | Self::BatchSendReceive)
    }

    /// Returns the operation of a number, for printing keys.
    pub(crate) fn from_number(number: u64) -> Option<Self> {
        Self::ALL.iter().copied().find(|op| u64::from(*op as u8) == number)
    }
}

impl From<OpKind> for Operation {
    fn from(op: OpKind) -> Self {
        match op {
            OpKind::AllReduce => Self::AllReduce,
            OpKind::AllGather => Self::AllGather,
            OpKind::ReduceScatter => Self::ReduceScatter,
        }
    }
}
