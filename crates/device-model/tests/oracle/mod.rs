//! Reductions written again, in integers only: what the device model is compared with.
//!
//! Shares no code and no idea with the model: floating-point numbers are taken apart into sign, integer significand
//! and exponent, combined exactly in 128 bits, and rounded once at the end.

use wire::{DataType, ReduceOp};

/// A binary floating-point format: bits of the exponent and of the fraction.
#[derive(Clone, Copy)]
struct Format {
    exponent: u32,
    fraction: u32,
}

/// A number that is not NaN and not infinite: ±`significand` × 2^`scale`.
#[derive(Clone, Copy)]
struct Finite {
    negative: bool,
    significand: u128,
    scale: i32,
}

enum Value {
    Nan,
    Infinite { negative: bool },
    Finite(Finite),
}

/// Returns `a op b` of one element; operands and result are the element's bits in the lower end of the word.
pub(crate) fn combine(dtype: DataType, op: ReduceOp, a: u64, b: u64) -> u64 {
    let float = |exponent, fraction| Format { exponent, fraction }.combine(op, a, b);
    match dtype {
        DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64 => {
            integer(8 * dtype.size_bytes(), true, op, a, b)
        }
        DataType::Uint8 | DataType::Uint16 | DataType::Uint32 | DataType::Uint64 => {
            integer(8 * dtype.size_bytes(), false, op, a, b)
        }
        DataType::Fp16 => float(5, 10),
        DataType::Bf16 => float(8, 7),
        DataType::Fp32 => float(8, 23),
        DataType::Fp64 => float(11, 52),
        other => panic!("{other:?} is not reduced"),
    }
}

/// Works modulo 2^`bits` on values spread into 128 bits.
fn integer(bits: u64, signed: bool, op: ReduceOp, a: u64, b: u64) -> u64 {
    let modulus = 1i128 << bits;
    let value = |word: u64| {
        let word = i128::from(word).rem_euclid(modulus);
        if signed && word >= modulus / 2 { word - modulus } else { word }
    };
    let (a, b) = (value(a), value(b));
    let exact = match op {
        ReduceOp::Sum => a + b,
        // Two unsigned words of 64 bits overflow a signed product: 2^128 is a multiple of the modulus.
        ReduceOp::Prod => a.wrapping_mul(b),
        ReduceOp::Max if b > a => b,
        ReduceOp::Min if b < a => b,
        ReduceOp::Max | ReduceOp::Min => a,
    };
    u64::try_from(exact.rem_euclid(modulus)).unwrap()
}

impl Format {
    fn all_ones(self) -> u64 {
        (1 << self.exponent) - 1
    }

    fn bias(self) -> i32 {
        (1 << (self.exponent - 1)) - 1
    }

    /// The exponent of the last bit of a subnormal number.
    fn lowest_scale(self) -> i32 {
        1 - self.bias() - self.fraction.cast_signed()
    }

    fn nan(self) -> u64 {
        self.all_ones() << self.fraction | 1 << (self.fraction - 1)
    }

    fn infinity(self, negative: bool) -> u64 {
        self.sign(negative) | self.all_ones() << self.fraction
    }

    fn sign(self, negative: bool) -> u64 {
        u64::from(negative) << (self.exponent + self.fraction)
    }

    fn decode(self, bits: u64) -> Value {
        let negative = bits >> (self.exponent + self.fraction) & 1 == 1;
        let exponent = bits >> self.fraction & self.all_ones();
        let fraction = bits & ((1 << self.fraction) - 1);
        if exponent == self.all_ones() {
            return if fraction == 0 { Value::Infinite { negative } } else { Value::Nan };
        }
        let hidden = if exponent == 0 { 0 } else { 1 << self.fraction };
        let scale = self.lowest_scale() + i32::try_from(exponent.max(1)).unwrap() - 1;
        Value::Finite(Finite { negative, significand: u128::from(hidden | fraction), scale })
    }

    fn combine(self, op: ReduceOp, a: u64, b: u64) -> u64 {
        let (left, right) = (self.decode(a), self.decode(b));
        if matches!(left, Value::Nan) || matches!(right, Value::Nan) {
            return self.nan();
        }
        match op {
            ReduceOp::Sum => self.sum(left, right),
            ReduceOp::Prod => self.prod(left, right),
            ReduceOp::Max => self.pick(a, b, true),
            ReduceOp::Min => self.pick(a, b, false),
        }
    }

    /// Sign and magnitude, compared as one would on paper.
    fn pick(self, a: u64, b: u64, larger: bool) -> u64 {
        let parts = |bits: u64| (bits >= self.sign(true), bits & !self.sign(true));
        let a_is_larger = match (parts(a), parts(b)) {
            ((false, x), (false, y)) => x > y,
            ((true, x), (true, y)) => x < y,
            ((a_negative, _), _) => !a_negative,
        };
        if a_is_larger == larger { a } else { b }
    }

    fn sum(self, left: Value, right: Value) -> u64 {
        match (left, right) {
            (Value::Infinite { negative: a }, Value::Infinite { negative: b }) if a != b => self.nan(),
            (Value::Infinite { negative }, _) | (_, Value::Infinite { negative }) => self.infinity(negative),
            (Value::Finite(a), Value::Finite(b)) => self.round(add(a, b)),
            (Value::Nan, _) | (_, Value::Nan) => unreachable!("handled by the caller"),
        }
    }

    fn prod(self, left: Value, right: Value) -> u64 {
        match (left, right) {
            (Value::Infinite { negative: a }, Value::Infinite { negative: b }) => self.infinity(a != b),
            (Value::Infinite { negative }, Value::Finite(other))
            | (Value::Finite(other), Value::Infinite { negative }) => {
                if other.significand == 0 {
                    self.nan()
                } else {
                    self.infinity(negative != other.negative)
                }
            }
            (Value::Finite(a), Value::Finite(b)) => self.round(Finite {
                negative: a.negative != b.negative,
                significand: a.significand * b.significand,
                scale: a.scale + b.scale,
            }),
            (Value::Nan, _) | (_, Value::Nan) => unreachable!("handled by the caller"),
        }
    }

    /// Rounds to nearest, ties to even; overflows to infinity, underflows through the subnormals to zero.
    fn round(self, value: Finite) -> u64 {
        let sign = self.sign(value.negative);
        if value.significand == 0 {
            return sign;
        }
        let top = value.significand.ilog2().cast_signed() + value.scale;
        let scale = (top - self.fraction.cast_signed()).max(self.lowest_scale());
        let mut kept = shift_half_even(value.significand, scale - value.scale);
        let mut exponent = scale - self.lowest_scale() + 1;
        if kept == 2 << self.fraction {
            kept >>= 1;
            exponent += 1;
        }
        if kept < 1 << self.fraction {
            return sign | kept;
        }
        match u64::try_from(exponent) {
            Ok(exponent) if exponent < self.all_ones() => {
                sign | exponent << self.fraction | kept & ((1 << self.fraction) - 1)
            }
            _ => self.infinity(value.negative),
        }
    }
}

/// Divides by 2^`places`, rounding half to even; a negative number of places multiplies.
fn shift_half_even(value: u128, places: i32) -> u64 {
    let kept = match u32::try_from(places) {
        Err(_) => value << places.unsigned_abs(),
        // The value is below half of the last place kept.
        Ok(places) if places >= 127 => 0,
        Ok(0) => value,
        Ok(places) => {
            let (quotient, rest, half) = (value >> places, value & ((1 << places) - 1), 1 << (places - 1));
            quotient + u128::from(rest > half || rest == half && quotient & 1 == 1)
        }
    };
    u64::try_from(kept).unwrap()
}

/// Adds exactly, except that an addend more than 2^66 times smaller than a last place stands for "a little more".
fn add(a: Finite, b: Finite) -> Finite {
    let (high, low) = if a.scale >= b.scale { (a, b) } else { (b, a) };
    let places = high.scale.abs_diff(low.scale);
    let (shift, low_significand) =
        if places <= 66 { (places, low.significand) } else { (66, u128::from(low.significand != 0)) };
    let signed = |negative: bool, significand: u128| {
        let value = significand.cast_signed();
        if negative { -value } else { value }
    };
    let total = signed(high.negative, high.significand << shift) + signed(low.negative, low_significand);
    Finite {
        // An exact zero is positive unless both addends were negative zeros.
        negative: if total == 0 { a.negative && b.negative } else { total < 0 },
        significand: total.unsigned_abs(),
        scale: high.scale - shift.cast_signed(),
    }
}
