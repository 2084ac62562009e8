//! Launch arguments: parsing never panics, and accepted values keep their limits.
//!
//! Each input is tried as it is and sealed.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::LaunchArgs;
use wire::launch::Launch;
use wire::npu::{HOST_NOTIFIES, MAX_NOTIFIES};
use zerocopy::FromBytes;

fn check(args: &LaunchArgs) {
    match Launch::parse(args) {
        Ok(launch) => {
            assert!(u64::from(launch.start_notify) < MAX_NOTIFIES);
            assert!(u64::from(launch.done_notify) < HOST_NOTIFIES);
            assert!(launch.timeout_ms > 0);
            for buffer in [launch.input, launch.output] {
                assert!(buffer.addr.checked_add(buffer.len).is_some());
                assert!(buffer.addr.0.is_multiple_of(launch.dtype.size_bytes()));
            }
            let numbers = [launch.op as u8, launch.dtype as u8, launch.reduce as u8, launch.algorithm as u8];
            assert_eq!(numbers, [args.op, args.dtype, args.reduce, args.algorithm]);
        }
        Err(code) => assert!(code.info().is_some()),
    }
}

fuzz_target!(|data: &[u8]| {
    let Ok((args, _)) = LaunchArgs::read_from_prefix(data) else { return };
    check(&args);
    check(&args.sealed());
});
