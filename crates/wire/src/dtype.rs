//! Data types and reductions, with their public numbers.
//!
//! The numbers are those of the public HCCL interface (`HcclDataType`, `HcclReduceOp`). What an element-wise
//! reduction means for each type (rounding, NaN, wrap) is in `docs/numerics.md`; nothing is computed here.

use crate::ErrorCode;

/// Declares an enum whose numbers cross the wire: the only way in is `TryFrom<u8>`.
macro_rules! wire_enum {
    ($(#[$meta:meta])* $name:ident, $error:ident { $($(#[$vmeta:meta])* $variant:ident = $number:literal $text:literal),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum $name { $($(#[$vmeta])* #[doc = concat!("`", $text, "`")] $variant = $number),+ }

        impl $name {
            /// Every value there is, in the order of the numbers.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// Returns the name users type and read.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }
        }

        impl TryFrom<u8> for $name {
            type Error = ErrorCode;

            #[inline]
            fn try_from(number: u8) -> Result<Self, ErrorCode> {
                match number { $($number => Ok(Self::$variant),)+ _ => Err(ErrorCode::$error) }
            }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}
pub(crate) use wire_enum;

wire_enum! {
    /// Element type of a buffer.
    DataType, LAUNCH_DTYPE {
        Int8 = 0 "int8", Int16 = 1 "int16", Int32 = 2 "int32", Fp16 = 3 "fp16", Fp32 = 4 "fp32", Int64 = 5 "int64",
        Uint64 = 6 "uint64", Uint8 = 7 "uint8", Uint16 = 8 "uint16", Uint32 = 9 "uint32", Fp64 = 10 "fp64",
        Bf16 = 11 "bfp16", Int128 = 12 "int128", Hif8 = 14 "hif8", Fp8E4m3 = 15 "fp8e4m3", Fp8E5m2 = 16 "fp8e5m2",
        Fp8E8m0 = 17 "fp8e8m0",
    }
}

wire_enum! {
    /// How two elements become one.
    ReduceOp, LAUNCH_REDUCE { Sum = 0 "sum", Prod = 1 "prod", Max = 2 "max", Min = 3 "min" }
}

impl DataType {
    /// Returns the size of one element in bytes: 1, 2, 4, 8 or 16. It is also the element's alignment.
    #[must_use]
    pub const fn size_bytes(self) -> u64 {
        match self {
            Self::Int8 | Self::Uint8 | Self::Hif8 | Self::Fp8E4m3 | Self::Fp8E5m2 | Self::Fp8E8m0 => 1,
            Self::Int16 | Self::Uint16 | Self::Fp16 | Self::Bf16 => 2,
            Self::Int32 | Self::Uint32 | Self::Fp32 => 4,
            Self::Int64 | Self::Uint64 | Self::Fp64 => 8,
            Self::Int128 => 16,
        }
    }

    /// Returns whether elements of this type can be reduced at all; the others can only be moved.
    #[must_use]
    pub const fn can_reduce(self) -> bool {
        !matches!(self, Self::Int128 | Self::Hif8 | Self::Fp8E4m3 | Self::Fp8E5m2 | Self::Fp8E8m0)
    }
}

/// A reduction of elements of one type: both halves are always needed together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Reduction {
    /// Element type.
    pub dtype: DataType,
    /// How two elements become one.
    pub op: ReduceOp,
}
