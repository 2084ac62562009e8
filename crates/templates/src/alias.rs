//! In place: how input and output of a rank may lie in the same memory.

use wire::ErrorCode;
use wire::launch::{OpKind, VectorRow};

use crate::plan::Shape;

impl Shape {
    /// Returns whether input and output, address and bytes of each that the operation touches, are in place: a share lies at
    /// its place in the whole. `vector` has the rows of this rank's operation.
    ///
    /// # Errors
    /// `LAUNCH_OVERLAP` where they share memory otherwise, or an operation that does not work in place is to.
    #[inline]
    pub fn lies_in_place(
        &self,
        vector: &[VectorRow],
        (input, input_len): (u64, u64),
        (output, output_len): (u64, u64),
    ) -> Result<bool, ErrorCode> {
        let (input_end, output_end) = (input.saturating_add(input_len), output.saturating_add(output_len));
        if input >= output_end || output >= input_end || input_len.min(output_len) == 0 {
            return Ok(false);
        }
        let row =
            usize::try_from(self.rank).ok().and_then(|rank| vector.get(rank)).copied().unwrap_or_default();
        let place = |elements: u64| elements.saturating_mul(self.dtype.size_bytes());
        let share = || place(u64::from(self.rank).saturating_mul(self.count));
        let (in_input, in_output) = match self.op {
            OpKind::AllGather | OpKind::Gather => (0, share()),
            OpKind::ReduceScatter | OpKind::Scatter => (share(), 0),
            OpKind::AllGatherV => (0, place(row.receive.first)),
            OpKind::ReduceScatterV => (place(row.send.first), 0),
            _ => (0, 0),
        };
        let aligned = input.checked_add(in_input) == output.checked_add(in_output);
        if aligned && self.stays(vector) { Ok(true) } else { Err(ErrorCode::LAUNCH_OVERLAP) }
    }

    /// Returns whether every block stays where it is, so that none is overwritten before it is sent.
    #[must_use]
    pub fn stays(&self, vector: &[VectorRow]) -> bool {
        match self.op {
            OpKind::SendReceive => false,
            OpKind::AllToAllV => vector.iter().all(|row| row.send == row.receive),
            _ => true,
        }
    }
}
