//! The public C interfaces that an AICPU kernel meets, as Rust declarations.
//!
//! [`hcomm`] is the data plane (copies, reductions, notifies, batches, the task cache), [`param`] what a runtime hands
//! to our entry. Both are bindgen's output for the headers in `include/`, which are written for this project from
//! interface facts; `cargo test -p aicpu-vendor-abi` makes them anew and compares. Nothing is called here, and what the
//! public descriptions leave open is marked in the headers.
#![no_std]

// UNSAFETY: declarations of C functions, which say nothing about themselves.
#[expect(unsafe_code, missing_docs, reason = "generated: the header says what each does")]
#[rustfmt::skip]
pub mod hcomm;
#[expect(
    missing_docs,
    clippy::allow_attributes,
    clippy::allow_attributes_without_reason,
    reason = "generated: docs/wire-format.md says what each field is"
)]
#[rustfmt::skip]
pub mod param;
