//! Trace events: what happened when, in 32 bytes, written without allocation by kernel and device.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::ErrorCode;
use crate::dtype::wire_enum;

wire_enum! {
    /// Where in the template skeleton a task belongs; tasks carry it so that messages can name it.
    Phase, SQE_FIELD {
        Start = 0 "start", PreSync = 1 "pre-sync", PreCopy = 2 "pre-copy", Run = 3 "run",
        PostSync = 4 "post-sync", PostCopy = 5 "post-copy", Finish = 6 "finish",
    }
}

wire_enum! {
    /// What a trace event reports.
    TraceKind, SQE_FIELD {
        LaunchTaken = 1 "launch taken", ContextDecoded = 2 "context decoded", Expanded = 3 "expanded",
        Doorbell = 4 "doorbell", Submitted = 5 "submitted", Refused = 6 "refused", Completed = 7 "completed",
    }
}

/// One event. `kind` is a [`TraceKind`] number; what the two values mean depends on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(32))]
pub struct TraceEvent {
    /// Clock of the writer, nanoseconds.
    pub time_ns: u64,
    /// Sequence number of the operation it belongs to.
    pub sequence: u32,
    /// A [`TraceKind`] number.
    pub kind: u8,
    /// Zero.
    pub reserved: u8,
    /// Queue it concerns, 0 where none.
    pub queue: u16,
    /// First value: descriptors expanded or announced, bytes decoded, error code.
    pub first: u64,
    /// Second value: nanoseconds taken, tail announced, error detail.
    pub second: u64,
}
const _: () = assert!(size_of::<TraceEvent>() == 32);
