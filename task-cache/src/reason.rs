//! Reasons why an operation is not recorded, and sets of them.

use core::fmt;

/// Declares the reasons with their sentences.
macro_rules! reasons {
    ($($variant:ident $text:literal),+ $(,)?) => {
        /// Why a policy lets an operation pass by the cache.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Reason { $(#[doc = $text] $variant),+ }

        impl Reason {
            /// Every reason.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// Returns the sentence users read.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }
        }
    };
}

reasons! {
    Disabled "the cache is switched off",
    Chunks "the operation takes more than one chunk",
    Product "the product is not of the 950 generation",
    Operation "the operation is not one that is recorded",
    Version "the toolkit is older than 9.1.0",
    CountVector "each rank has a count of its own",
    PointToPoint "send, receive and batches are not recorded",
    WideType "64-bit elements are reduced by the processor while expanding",
    Prod "products are reduced by the processor while expanding",
    InPlace "input and output are the same memory",
    Protocol "a channel uses another protocol than UB-CTP and UBoE",
    Captured "the stream is being captured into a graph",
    Offloaded "the operation belongs to an offloaded graph",
    Fused "the operation is fused with a computation (MC2)",
    Empty "input and output are both empty",
    NullAddress "a buffer has no address",
}

/// A set of reasons; empty where the operation may be recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reasons(u32);

impl Reasons {
    /// None.
    pub const NONE: Self = Self(0);

    /// Returns the set with `reason` added where `holds`.
    #[must_use]
    pub const fn with(self, reason: Reason, holds: bool) -> Self {
        if holds { Self(self.0 | 1 << reason as u8) } else { self }
    }

    /// Returns whether `reason` is one of them.
    #[must_use]
    pub const fn contains(self, reason: Reason) -> bool {
        self.0 >> reason as u8 & 1 == 1
    }

    /// Returns whether there is none.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns all of them, in the order of [`Reason::ALL`].
    pub fn iter(self) -> impl Iterator<Item = Reason> {
        Reason::ALL.iter().copied().filter(move |reason| self.contains(*reason))
    }

    /// Returns one bit per reason, in the order of [`Reason::ALL`].
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }
}

/// Prints the sentences, separated by semicolons.
impl fmt::Display for Reasons {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for reason in self.iter() {
            write!(f, "{separator}{}", reason.text())?;
            separator = "; ";
        }
        Ok(())
    }
}
