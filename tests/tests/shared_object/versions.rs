//! Kernels of two versions in one process: each serves its own launches, and refuses the other's.

use wire::launch::{Algorithm, CacheOutcome, OpKind};
use wire::{ErrorCode, LaunchArgs};
use zerocopy::IntoBytes;

use crate::rig::{CONTEXT, Case, Loaded, Rig, TIMEOUT_S};

/// The version that the other kernel is built for.
const NEXT: u16 = 2;

/// Checksum of launch arguments, after `docs/wire-format.md` section 5.
fn checksum(args: &LaunchArgs) -> u32 {
    let bytes = LaunchArgs { checksum: 0, ..*args };
    let words = bytes.as_bytes().chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("8")));
    let hash = words.fold(0xcbf2_9ce4_8422_2325_u64, |hash, word| {
        (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
    });
    u32::try_from(hash & 0xffff_ffff).expect("32 bits") ^ u32::try_from(hash >> 32).expect("32 bits")
}

/// CRC-32C: reflected, polynomial 0x1edc6f41.
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| crc >> 1 ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 })
    })
}

/// The same launch as a host of the next version writes it.
fn next(mut rig: Rig) -> (Rig, LaunchArgs) {
    rig.param.abi = NEXT;
    let mut args = rig.args.sealed();
    assert_eq!(args.checksum, checksum(&args), "the function above is right");
    args.abi = NEXT;
    args.checksum = checksum(&args);
    // In the context's header: the version at byte 8, the checksum of the 208 bytes at byte 16.
    let mut header = rig.bytes(CONTEXT, 208).to_vec();
    header[8..10].copy_from_slice(&NEXT.to_le_bytes());
    header[16..20].fill(0);
    let crc = crc32c(&header);
    header[16..20].copy_from_slice(&crc.to_le_bytes());
    rig.write(CONTEXT, &header);
    (rig, args)
}

#[test]
fn kernels_of_two_versions_serve_their_own_launches_and_refuse_the_others() {
    let (Some(one), Some(two)) = (Loaded::kernel(), Loaded::open("libaicpu_ts_next.so")) else { return };
    let case = || Case::new(OpKind::AllReduce, Algorithm::MeshTwoShot, 4);
    // The rig that is made last is what the plane knows; both have the same handles.
    let mut old = Rig::new(case());
    let (mut new, new_args) = next(Rig::new(case()));
    let old_args = old.args.sealed();
    for outcome in [CacheOutcome::Miss, CacheOutcome::Hit] {
        let (status, lines) = old.launch_raw(&one, &old_args);
        assert_eq!((status.code, status.cache), (0, outcome as u8));
        assert_eq!(lines, old.expected(TIMEOUT_S));
        let (status, lines) = new.launch_raw(&two, &new_args);
        assert_eq!((status.code, status.cache), (0, outcome as u8));
        assert_eq!(lines, new.expected(TIMEOUT_S));
        // The param of the other version, then a param of the right one before arguments and context of the other.
        for (kernel, rig, args, own) in [(&two, &mut old, &old_args, NEXT), (&one, &mut new, &new_args, 1)] {
            let (status, lines) = rig.launch_raw(kernel, args);
            assert_eq!((ErrorCode(status.code), lines.len()), (ErrorCode::PARAM_VERSION, 0));
            let abi = core::mem::replace(&mut rig.param.abi, own);
            let (status, lines) = rig.launch_raw(kernel, args);
            assert_eq!((ErrorCode(status.code), lines.len()), (ErrorCode::LAUNCH_VERSION, 0));
            let mut relabelled = LaunchArgs { abi: own, ..*args };
            relabelled.checksum = checksum(&relabelled);
            let (status, lines) = rig.launch_raw(kernel, &relabelled);
            assert_eq!((ErrorCode(status.code), lines.len()), (ErrorCode::CONTEXT_VERSION, 0));
            rig.param.abi = abi;
        }
    }
}
