//! What the arguments of `run` and `verify` ask for, in one form.

use host_launcher::traffic::Traffic;
use wire::launch::{Algorithm, Staging};
use wire::{DataType, ReduceOp};

use crate::args::{RunArgs, VerifyArgs};

/// An operation as it is asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct What {
    pub(crate) op: Traffic,
    pub(crate) bytes: u64,
    pub(crate) count: Option<u64>,
    pub(crate) root: u32,
    pub(crate) dtype: DataType,
    pub(crate) reduce: ReduceOp,
    pub(crate) algo: Option<Algorithm>,
    pub(crate) staging: Option<Staging>,
    pub(crate) in_place: bool,
    pub(crate) seed: u64,
}

impl From<&RunArgs> for What {
    fn from(args: &RunArgs) -> Self {
        let RunArgs { op, bytes, count, root, dtype, reduce, algo, staging, in_place, seed, .. } = *args;
        Self { op, bytes, count, root, dtype, reduce, algo, staging, in_place, seed }
    }
}

impl From<&VerifyArgs> for What {
    fn from(args: &VerifyArgs) -> Self {
        let VerifyArgs { op, bytes, count, root, dtype, reduce, algo, staging, in_place, seed, .. } = *args;
        Self { op, bytes, count, root, dtype, reduce, algo, staging, in_place, seed }
    }
}
