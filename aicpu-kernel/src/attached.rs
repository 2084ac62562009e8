//! What is attached to a launch besides its buffers, copied out of shared memory once: rows of a vector, or a script.

use hal::SharedMemory;
use templates::Tables;
use wire::ErrorCode;
use wire::launch::{Launch, VectorRow};
use zerocopy::IntoBytes;

use crate::context::MAX_RANKS;
use crate::kernel::Fault;
use crate::script::LoadedScript;

/// The vector and the script of one launch; most have neither.
#[derive(Debug)]
pub(crate) struct Attached {
    vector: LoadedVector,
    script: LoadedScript,
}

impl Attached {
    pub(crate) const fn new() -> Self {
        Self { vector: LoadedVector::new(), script: LoadedScript::new() }
    }

    /// Copies what a launch names.
    ///
    /// # Errors
    /// Those of the two.
    pub(crate) fn load<M: SharedMemory>(
        &mut self,
        memory: &M,
        launch: &Launch,
        ranks: usize,
    ) -> Result<(), Fault> {
        self.vector.load(memory, launch, ranks)?;
        self.script.load(memory, launch)
    }

    /// Returns what was copied for a launch.
    pub(crate) fn tables(&self, launch: &Launch) -> Tables<'_> {
        Tables { vector: self.vector.rows(), script: self.script.of(launch), ..Tables::default() }
    }
}

/// The vector of one launch, copied out of shared memory once.
#[derive(Debug)]
struct LoadedVector {
    rows: [VectorRow; MAX_RANKS],
    len: usize,
}

impl LoadedVector {
    const fn new() -> Self {
        Self { rows: zerocopy::transmute!([0_u8; MAX_RANKS * size_of::<VectorRow>()]), len: 0 }
    }

    /// Copies the rows that a launch names; none where it has no vector.
    ///
    /// # Errors
    /// `CONTEXT_ADDRESS` when they lie outside the window.
    fn load<M: SharedMemory>(&mut self, memory: &M, launch: &Launch, ranks: usize) -> Result<(), Fault> {
        self.len = 0;
        if launch.op.has_vector() {
            let rows = self.rows.get_mut(..ranks).ok_or(ErrorCode::CONTEXT_CAPACITY)?;
            memory.read(launch.vector, rows.as_mut_bytes())?;
            self.len = ranks;
        }
        Ok(())
    }

    /// Returns the rows.
    fn rows(&self) -> &[VectorRow] {
        self.rows.get(..self.len).unwrap_or_default()
    }
}
