//! What several fuzz targets share: reading an input piece by piece, worlds, graphs that are edited.

pub mod graph;
pub mod world;

/// The rest of an input. Whatever is asked for behind its end is zero.
pub struct Bytes<'a>(pub &'a [u8]);

impl<'a> Bytes<'a> {
    /// Returns whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes at most `count` bytes.
    pub fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        taken
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut array = [0; N];
        let taken = self.take(N);
        array[..taken.len()].copy_from_slice(taken);
        array
    }

    /// Takes a byte.
    pub fn byte(&mut self) -> u8 {
        u8::from_le_bytes(self.array())
    }

    /// Takes two bytes.
    pub fn half(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    /// Takes eight bytes.
    pub fn word(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    /// Takes a number below `limit`, which is not 0: a byte's worth, or two where one is not enough.
    pub fn below(&mut self, limit: u64) -> u64 {
        if limit > 256 { u64::from(self.half()) % limit } else { u64::from(self.byte()) % limit }
    }

    /// Takes one of a list.
    pub fn one_of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len() as u64) as usize]
    }
}
