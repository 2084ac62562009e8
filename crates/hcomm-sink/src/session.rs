//! What must come in pairs: acquiring and releasing a communicator, the start and end of a batch.

use core::ffi::CStr;

use vendor_abi::hcomm::HCOMM_E_AGAIN;
use wire::ErrorCode;

use crate::call::{Call, DataPlane};
use crate::result::Failure;

/// The tag of a batch that nobody names: temporary.
const TEMPORARY: &CStr = c"";

/// A communicator that has been acquired, with a batch open: both end when this goes, whatever happened.
pub struct Session<'a, P: DataPlane> {
    plane: &'a mut P,
    comm: &'a CStr,
    open: bool,
}

impl<'a, P: DataPlane> Session<'a, P> {
    /// Acquires a communicator and starts a batch. While it is in use it is asked for again until `wait` returns
    /// false.
    ///
    /// # Errors
    /// `PLANE_BUSY` when it stayed in use, else what a call failed with. Nothing is held then.
    pub fn open(plane: &'a mut P, comm: &'a CStr, mut wait: impl FnMut() -> bool) -> Result<Self, Failure> {
        const AGAIN: i32 = HCOMM_E_AGAIN.cast_signed();
        let acquire = Call::Acquire(comm);
        loop {
            match plane.call(&acquire) {
                0 => break,
                AGAIN if wait() => {}
                result => {
                    let failure = Failure::new(result, acquire.number(), 0, 0);
                    let busy = Failure { code: ErrorCode::PLANE_BUSY, ..failure };
                    return Err(if result == AGAIN { busy } else { failure });
                }
            }
        }
        let mut session = Self { plane, comm, open: false };
        session.call(&Call::BatchStart(TEMPORARY))?;
        session.open = true;
        Ok(session)
    }

    /// Returns the data plane, for the calls of the batch.
    pub fn plane(&mut self) -> &mut P {
        self.plane
    }

    // Always inlined: a call whose kind is known becomes the C call alone.
    #[inline(always)]
    fn call(&mut self, call: &Call<'_>) -> Result<(), Failure> {
        match self.plane.call(call) {
            0 => Ok(()),
            result => Err(Failure::new(result, call.number(), 0, 0)),
        }
    }

    /// Ends the batch, so that the device sees its tasks, and releases the communicator.
    ///
    /// # Errors
    /// What either call failed with; the communicator has been released all the same.
    pub fn close(mut self) -> Result<(), Failure> {
        let ended = self.end_batch();
        let released = self.release();
        ended.and(released)
    }

    fn end_batch(&mut self) -> Result<(), Failure> {
        if !core::mem::take(&mut self.open) {
            return Ok(());
        }
        self.call(&Call::BatchEnd(TEMPORARY))
    }

    fn release(self) -> Result<(), Failure> {
        let mut released = core::mem::ManuallyDrop::new(self);
        let comm = released.comm;
        released.call(&Call::Release(comm))
    }
}

impl<P: DataPlane> Drop for Session<'_, P> {
    fn drop(&mut self) {
        // Whatever led here is reported; what these two return is not.
        let _ = self.end_batch();
        let comm = self.comm;
        let _ = self.call(&Call::Release(comm));
    }
}
