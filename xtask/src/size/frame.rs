//! Reads the size of a stack frame out of a function's instructions.
//!
//! Compiled code moves the stack pointer down only by constants. All such moves of a function are added, also those
//! on alternative paths: the sum is an upper bound. Encodings: Arm ARM C6.2 `SUB`, `STP`, `STR`.

/// What the instructions seen so far say about the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Frame {
    /// At most so many bytes.
    Fixed(u64),
    /// The same, within a loop that moves the stack pointer page by page to an end already counted.
    Probing(u64),
    /// The stack pointer was moved by a register.
    Variable,
}

impl Frame {
    /// Returns the frame after one more instruction.
    pub(super) fn after(self, instruction: u32) -> Self {
        match (self, moves(instruction)) {
            (Self::Variable, _) | (_, Move::ByRegister) => Self::Variable,
            (_, Move::None) => self,
            (Self::Fixed(bytes), Move::Down(more)) => Self::Fixed(bytes + more),
            (Self::Fixed(bytes) | Self::Probing(bytes), Move::ProbesTo(more)) => Self::Probing(bytes + more),
            // The step of the loop.
            (Self::Probing(bytes), Move::Down(_)) => Self::Fixed(bytes),
        }
    }

    /// Returns the bytes, unless they vary.
    pub(super) fn bytes(self) -> Option<u64> {
        match self {
            Self::Fixed(bytes) | Self::Probing(bytes) => Some(bytes),
            Self::Variable => None,
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Move {
    None,
    Down(u64),
    ProbesTo(u64),
    ByRegister,
}

const SP: u32 = 31;

fn moves(instruction: u32) -> Move {
    let (to, from) = (instruction & 31, instruction >> 5 & 31);
    if from != SP {
        return Move::None;
    }
    match instruction {
        // sub sp, sp, #imm{, lsl #12}; a probe loop first computes its end as sub xN, sp, #imm.
        i if i >> 23 == 0b1_1010_0010 => {
            let imm = u64::from(i >> 10 & 0xfff);
            let down = if i >> 22 & 1 == 1 { imm << 12 } else { imm };
            // Of a computed address only a probe loop's end (a multiple of the page) can be a frame.
            match to {
                SP => Move::Down(down),
                9 if i >> 22 & 1 == 1 => Move::ProbesTo(down),
                _ => Move::None,
            }
        }
        // sub sp, sp, xN
        i if i >> 21 == 0b110_0101_1001 && to == SP => Move::ByRegister,
        // stp xA, xB, [sp, #-imm]! and its form for vector registers
        i if i >> 22 == 0b10_1010_0110 => pre_index(i >> 15 & 0x7f, 7, 8),
        i if i >> 22 == 0b01_1011_0110 => pre_index(i >> 15 & 0x7f, 7, 8),
        i if i >> 22 == 0b10_1011_0110 => pre_index(i >> 15 & 0x7f, 7, 16),
        // str xA, [sp, #-imm]! and its form for vector registers
        i if i & 0xffe0_0c00 == 0xf800_0c00 || i & 0xffe0_0c00 == 0xfc00_0c00 => {
            pre_index(i >> 12 & 0x1ff, 9, 1)
        }
        _ => Move::None,
    }
}

/// Returns the move of a pre-indexed store whose offset is a signed field of `bits` bits.
fn pre_index(field: u32, bits: u32, scale: u64) -> Move {
    let sign = 1 << (bits - 1);
    if field & sign == 0 { Move::None } else { Move::Down(u64::from((1 << bits) - field) * scale) }
}

#[cfg(test)]
mod tests {
    use super::{Frame, Move, moves};

    #[test]
    fn every_way_to_move_the_stack_pointer_is_read() {
        assert_eq!(moves(0xd101_03ff), Move::Down(0x40), "sub sp, sp, #0x40");
        assert_eq!(moves(0xd140_07ff), Move::Down(0x1000), "sub sp, sp, #1, lsl #12");
        assert_eq!(moves(0xd140_43e9), Move::ProbesTo(0x1_0000), "sub x9, sp, #0x10, lsl #12");
        assert_eq!(moves(0xd100_83a0), Move::None, "sub x0, x29, #0x20");
        assert_eq!(moves(0xa9be_7bfd), Move::Down(0x20), "stp x29, x30, [sp, #-0x20]!");
        assert_eq!(moves(0x6dbc_23e9), Move::Down(0x40), "stp d9, d8, [sp, #-0x40]!");
        assert_eq!(moves(0xf81f_0ffe), Move::Down(0x10), "str x30, [sp, #-0x10]!");
        assert_eq!(moves(0xfc19_0fe8), Move::Down(0x70), "str d8, [sp, #-0x70]!");
        assert_eq!(moves(0xa901_7bfd), Move::None, "stp x29, x30, [sp, #0x10]");
        assert_eq!(moves(0x9101_03ff), Move::None, "add sp, sp, #0x40");
        assert_eq!(moves(0xcb28_63ff), Move::ByRegister, "sub sp, sp, x8");
    }

    #[test]
    fn a_probe_loop_counts_once() {
        // sub x9, sp, #0x10, lsl #12; 1: sub sp, sp, #1, lsl #12; cmp sp, x9; b.ne 1b; sub sp, sp, #0x40
        let probe = [0xd140_43e9, 0xd140_07ff, 0xeb29_63ff, 0x54ff_ffc1, 0xd101_03ff];
        let frame = probe.into_iter().fold(Frame::Fixed(0), Frame::after);
        assert_eq!(frame, Frame::Fixed(0x1_0040));
    }

    #[test]
    fn moves_add_up() {
        let frame = [0xa9be_7bfd, 0xd101_03ff].into_iter().fold(Frame::Fixed(0), Frame::after);
        assert_eq!(frame, Frame::Fixed(0x60));
        assert_eq!(frame.after(0xcb28_63ff), Frame::Variable);
    }
}
