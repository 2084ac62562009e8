//! Tests of the wire format as its users see it: bytes in, values out.
//!
//! `golden` pins the bytes, `descriptors`, `refusals` and `launch` go through values and faults, `context_*` do the same for the
//! resource context, `trace` for the flight recorder, `document` keeps `docs/wire-format.md` true. `samples` holds what they share.

mod context_cases;
mod context_mutations;
mod descriptors;
mod document;
mod golden;
mod launch;
mod param;
mod program;
mod refusals;
mod samples;
mod script;
mod trace;
