//! Keys and short forms for tests.

use task_cache::{Alias, Determinism, Directory, Facts, Form, Key, KeyHash, Limits, Refusal, SlotId};
use wire::launch::{Algorithm, OpKind, Staging};
use wire::{DataType, ReduceOp};

/// Communicator instances A and B.
pub(crate) const A: [u64; 2] = [0xa, 1];
pub(crate) const B: [u64; 2] = [0xb, 1];

/// An all-reduce of A.
pub(crate) const FACTS: Facts = Facts {
    instance: A,
    epoch: 1,
    op: OpKind::AllReduce,
    dtype: DataType::Fp32,
    reduce: ReduceOp::Sum,
    algorithm: Algorithm::Ring,
    staging: Staging::Scratch,
    alias: Alias::Disjoint,
    form: Form::Exact(1 << 20),
    rank: 3,
    ranks: 8,
    root: 0,
    levels: [0; 4],
    chunk: 0,
    piece: 0,
    scratch_len: 200 << 20,
    topology: 0x5bd1_e995,
    context: 0x4000,
    threads: 8,
    determinism: Determinism::On,
    features: 3,
};

/// The key of a communicator's all-reduce of `count` elements.
pub(crate) fn key(instance: [u64; 2], epoch: u32, count: u64) -> Key {
    Key::new(&Facts { instance, epoch, form: Form::Exact(count), ..FACTS })
}

/// Limits that allow this many units, and any communicator all of them.
pub(crate) fn open(units: u64) -> Limits {
    Limits { units, quota_units: units, quota_slots: u64::MAX, evict: true }
}

/// For calls that must not release anything.
pub(crate) fn nothing<P>(_: P) {
    panic!("nothing is to be released here");
}

/// Records: begin, verify, publish.
pub(crate) fn record<P: Copy, const SLOTS: usize, H: KeyHash>(
    directory: &mut Directory<P, SLOTS, H>,
    key: &Key,
    units: u32,
    payload: P,
    release: &mut impl FnMut(P),
) -> Result<SlotId, Refusal> {
    let id = directory.begin(key, units, release)?;
    directory.verify(id).expect("it is being built");
    directory.publish(id, payload).expect("it is verified");
    Ok(id)
}

/// One step of a training loop: a hit, or a recording of one unit. Returns whether it hit.
pub(crate) fn step<const SLOTS: usize, H: KeyHash>(
    directory: &mut Directory<u32, SLOTS, H>,
    key: &Key,
) -> bool {
    let hit = directory.lookup(key).is_some();
    if !hit {
        // A refusal is no failure: the operation runs uncached.
        let _ = record(directory, key, 1, 0, &mut |_| ());
    }
    hit
}

/// An empty directory that may hold all that it has slots for.
pub(crate) fn directory<const SLOTS: usize, H: KeyHash>() -> Directory<u32, SLOTS, H> {
    let mut directory = Directory::new();
    directory.set_limits(open(1 << 20));
    directory
}
