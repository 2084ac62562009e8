//! The bytes of a run: filled in, poisoned, read back and compared.

use wire::{DeviceAddr, ErrorCode};

use super::Run;
use crate::buffer::{SharedBuffer, driver};
use crate::error::{Error, Result};
use crate::oracle;

/// Byte that outputs are filled with before each step.
const POISON: u8 = oracle::UNTOUCHED;

impl Run<'_> {
    /// Fills the inputs and poisons the outputs.
    pub(super) fn fill(&self) -> Result<()> {
        let (first, second) = &self.buffers[self.turn];
        for (rank, input) in (0..).zip(&self.inputs) {
            let npu = self.cluster.npu(rank);
            let poison = |buffer: &SharedBuffer| {
                let addr = buffer.addr(rank);
                let offset = npu.window().offset(addr, buffer.len()).unwrap_or(0);
                npu.window().fill(offset, buffer.len(), POISON);
            };
            poison(first);
            poison(second);
            let at = first.addr(rank).0 + self.places(rank).0;
            npu.write(DeviceAddr(at), input).map_err(driver)?;
        }
        Ok(())
    }

    /// Returns a digest of what all ranks have got.
    ///
    /// # Errors
    /// Those of the driver.
    pub(crate) fn outputs(&self) -> Result<u64> {
        let mut digest = wire::digest::START;
        for (rank, expected) in (0..).zip(&self.expected) {
            for bytes in self.output(rank, expected.len())?.chunks(size_of::<u64>()) {
                let mut word = [0; size_of::<u64>()];
                word[..bytes.len()].copy_from_slice(bytes);
                digest = wire::digest::with(digest, u64::from_le_bytes(word));
            }
        }
        Ok(digest)
    }

    /// Reads what a rank has got.
    fn output(&self, rank: u32, bytes: usize) -> Result<Vec<u8>> {
        let (first, second) = &self.buffers[self.turn];
        let buffer = if self.in_place { first } else { second };
        let at = buffer.addr(rank).0 + self.places(rank).1;
        let mut got = vec![0; bytes];
        self.cluster.npu(rank).read(DeviceAddr(at), &mut got).map_err(driver)?;
        Ok(got)
    }

    /// Compares every byte of every rank that was called with what it must be.
    pub(super) fn check(&self) -> Result<()> {
        let size = usize::try_from(self.operation.dtype.size_bytes()).unwrap_or(1);
        // A rank that did not call was told nothing.
        let called = |(rank, _): &(u32, &Vec<u8>)| !self.conduct.absent.contains(rank);
        for (rank, expected) in (0..).zip(&self.expected).filter(called) {
            let got = self.output(rank, expected.len())?;
            if let Some(byte) = got.iter().zip(expected).position(|(got, expected)| got != expected) {
                let first = byte / size * size;
                let message = format!(
                    "rank {rank}, element {}: got {:02x?}, expected {:02x?}",
                    first / size,
                    &got[first..(first + size).min(got.len())],
                    &expected[first..(first + size).min(got.len())],
                );
                return Err(Error::new(ErrorCode::RESULT_WRONG, message));
            }
        }
        Ok(())
    }
}
