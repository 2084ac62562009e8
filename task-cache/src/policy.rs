//! Policies: which operations may be recorded, with every reason why not.
//!
//! [`Policy::Hccl`] reproduces the decisions of the field's device-side cache from what is publicly known of it, as a
//! yardstick. A policy only judges; whether there is room is the directory's business.

use wire::launch::OpKind;
use wire::{DataType, ReduceOp};

use crate::reason::{Reason, Reasons};

/// Generation of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Product {
    /// Atlas A2: Ascend 910B.
    A2,
    /// Atlas A3: Ascend 910C.
    A3,
    /// Ascend 950.
    A5,
    /// Any other.
    Other,
}

/// How the operation was handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// By itself, on a stream.
    Eager,
    /// On a stream that is being captured.
    Captured,
    /// As part of an offloaded graph.
    Offloaded,
    /// Fused with a computation (MC2).
    Fused,
}

/// What a channel speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Protocol {
    /// HCCS links within a server.
    Hccs,
    /// `PCIe`.
    Pcie,
    /// RDMA over Ethernet.
    Roce,
    /// Unified bus, compact transport.
    UbCtp,
    /// Unified bus, transport.
    UbTp,
    /// Unified bus over Ethernet.
    Uboe,
    /// Unified bus memory semantics.
    UbMem,
}

/// A set of protocols.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Protocols(u8);

impl Protocols {
    /// None: a single rank.
    pub const NONE: Self = Self(0);

    /// Returns the set with `protocol` added.
    #[must_use]
    pub const fn with(self, protocol: Protocol) -> Self {
        Self(self.0 | 1 << protocol as u8)
    }

    /// Returns whether all of these are also in `other`.
    #[must_use]
    pub const fn is_within(self, other: Self) -> bool {
        self.0 & !other.0 == 0
    }
}

/// Everything a policy may ask about an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Operation.
    pub op: OpKind,
    /// Element type.
    pub dtype: DataType,
    /// Reduction; ignored where the operation has none.
    pub reduce: ReduceOp,
    /// Whether input and output are the same memory.
    pub in_place: bool,
    /// How it was handed over.
    pub mode: Mode,
    /// What its channels speak.
    pub protocols: Protocols,
    /// Generation of the device.
    pub product: Product,
    /// Version of the toolkit: major, minor, patch.
    pub toolkit: [u16; 3],
    /// Whether the user switched the cache off.
    pub disabled: bool,
    /// Bytes of input and of output.
    pub sizes: [u64; 2],
    /// Whether the input or the output has address 0.
    pub null_address: bool,
    /// Chunks it is cut into.
    pub chunks: u64,
}

/// Who decides what is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Everything that is one chunk.
    Ours,
    /// What the field's cache records.
    Hccl,
}

impl Policy {
    /// Returns every reason why the operation may not be recorded.
    #[must_use]
    pub fn judge(self, request: &Request) -> Reasons {
        let common = Reasons::NONE.with(Reason::Disabled, request.disabled);
        match self {
            Self::Ours => common.with(Reason::Chunks, request.chunks > 1),
            Self::Hccl => field_reasons(request, common),
        }
    }
}

/// Bytes of graphs that the field's cache keeps, of all communicators together. It looks before it inserts, so that the
/// last may reach beyond; nothing ever gives way.
pub const FIELD_CAPACITY: u64 = 10 << 20;

/// Returns the bytes that the field's cache counts for a graph: 112 for a submission entry, 144 for a work request.
#[must_use]
pub fn field_bytes(sqes: u32, wqes: u32) -> u64 {
    112 * u64::from(sqes) + 144 * u64::from(wqes)
}

/// The field's conditions, all of which must hold. Chunks are no matter: its recording is of the whole operation.
fn field_reasons(request: &Request, common: Reasons) -> Reasons {
    const RECORDED: Protocols = Protocols::NONE.with(Protocol::UbCtp).with(Protocol::Uboe);
    let op = request.op;
    let wide = matches!(request.dtype, DataType::Int64 | DataType::Uint64 | DataType::Fp64);
    common
        .with(Reason::Product, request.product != Product::A5)
        .with(Reason::Version, request.toolkit < [9, 1, 0])
        .with(Reason::Operation, matches!(op, OpKind::Gather | OpKind::Barrier))
        .with(Reason::CountVector, op.has_vector() && !op.is_point_to_point())
        .with(Reason::PointToPoint, op.is_point_to_point())
        .with(Reason::WideType, op.reduces() && wide)
        .with(Reason::Prod, op.reduces() && request.reduce == ReduceOp::Prod)
        // A broadcast has one buffer, which is both.
        .with(Reason::InPlace, request.in_place && op != OpKind::Broadcast)
        .with(Reason::Protocol, !request.protocols.is_within(RECORDED))
        .with(Reason::Captured, request.mode == Mode::Captured)
        .with(Reason::Offloaded, request.mode == Mode::Offloaded)
        .with(Reason::Fused, request.mode == Mode::Fused)
        .with(Reason::Empty, request.sizes == [0, 0])
        .with(Reason::NullAddress, request.null_address)
}
