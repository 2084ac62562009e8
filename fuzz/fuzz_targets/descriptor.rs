//! Submission and work-queue entries: parsing never panics, and what parses emits to the same bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::{Command, Descriptor, WorkRequest};
use zerocopy::FromBytes;

fuzz_target!(|data: &[u8]| {
    let Ok((descriptor, _)) = Descriptor::read_from_prefix(data) else { return };
    match Command::parse(&descriptor.into()) {
        Ok((command, labels)) => assert_eq!(Descriptor::from(command.emit(labels)), descriptor),
        Err(code) => assert!(code.info().is_some()),
    }
    match WorkRequest::parse(&descriptor.into()) {
        Ok((request, labels)) => assert_eq!(Descriptor::from(request.emit(labels)), descriptor),
        Err(code) => assert!(code.info().is_some()),
    }
});
