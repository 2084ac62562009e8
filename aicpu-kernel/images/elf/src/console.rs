//! The serial console, for the little that is said before there is a window and after a core has stopped.
//!
//! A PL011 at its place on the `virt` machine, written to by polling. Numbers are printed without the formatting
//! machinery, which would be most of the image.

use core::num::NonZeroU64;

use platform_aarch64::cpu;
use spin::mutex::SpinMutex;

use crate::device::{Device, register};

const DATA: usize = 0;
const FLAGS: usize = 0x18;
const TRANSMIT_FULL: u32 = 1 << 5;

// A divisor that cannot be zero, so that no division can panic.
const TEN: NonZeroU64 = NonZeroU64::new(10).unwrap();
const SIXTEEN: NonZeroU64 = NonZeroU64::new(16).unwrap();

/// Waits for the lock as every wait of the image does.
struct Yield;

impl spin::RelaxStrategy for Yield {
    fn relax() {
        cpu::relax();
    }
}

/// Held for a line, so that lines of two cores do not mix.
static LINE: SpinMutex<(), Yield> = SpinMutex::new(());

/// A piece of a line.
pub(crate) enum Piece<'a> {
    /// Text as it is.
    Text(&'a [u8]),
    /// A decimal number.
    Decimal(u64),
    /// A hexadecimal number, after `0x`.
    Hex(u64),
}

/// Prints a line. Translation must be on, because of the lock.
pub(crate) fn line(pieces: &[Piece<'_>]) {
    let _line = LINE.lock();
    for piece in pieces {
        match piece {
            Piece::Text(text) => text.iter().for_each(|byte| put(*byte)),
            Piece::Decimal(number) => digits(*number, TEN),
            Piece::Hex(number) => {
                b"0x".iter().for_each(|byte| put(*byte));
                digits(*number, SIXTEEN);
            }
        }
    }
    put(b'\n');
}

fn digits(mut number: u64, base: NonZeroU64) {
    let mut text = [0; 20];
    let mut used = 0;
    for cell in text.iter_mut().rev() {
        #[expect(clippy::cast_possible_truncation, reason = "a digit is below 16")]
        let digit = (number % base) as u8;
        *cell = if digit < 10 { b'0' + digit } else { b'a' + digit - 10 };
        number /= base;
        used += 1;
        if number == 0 {
            break;
        }
    }
    text.iter().skip(text.len() - used).for_each(|byte| put(*byte));
}

fn put(byte: u8) {
    while register(Device::Uart, FLAGS).read() & TRANSMIT_FULL != 0 {
        cpu::relax();
    }
    register(Device::Uart, DATA).write(u32::from(byte));
}
