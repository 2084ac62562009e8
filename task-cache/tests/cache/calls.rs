//! The five calls.

use task_cache::{CallError, Calls, Communicator, Constant, Key, KeyHash, Mixed, Refusal};
use wire::{DeviceAddr, ErrorCode};

use crate::support::{A, B, nothing, open};

both_hashes!(
    a_template_records_once_and_executes_ever_after,
    arguments_must_be_the_recordings,
    a_tag_is_recorded_by_one_at_a_time,
    a_failed_recording_is_cleared,
    a_recording_without_room_runs_uncached,
    lives_and_communicators_have_tags_of_their_own,
);

const OF: Communicator = Communicator { instance: A, epoch: 1 };
const TAG: &[u8] = b"1048576-0-4-0-0-0-group-1";
const ADDRS: [DeviceAddr; 2] = [DeviceAddr(0x1000), DeviceAddr(0x9000)];
const SIZES: [u64; 2] = [4096, 8192];

type Small<H> = Calls<u32, 8, 4, H>;

fn small<H: KeyHash>() -> Small<H> {
    let mut calls = Small::new();
    calls.directory_mut().set_limits(open(100));
    calls
}

fn recorded<H: KeyHash>() -> Small<H> {
    let mut calls = small::<H>();
    calls.start(&OF, TAG, &ADDRS, &SIZES, &mut nothing).expect("there is room");
    calls.end(&OF, TAG, 3, 55, &mut nothing).expect("there is room");
    calls
}

/// The error of an execution that must not run.
fn refused<H: KeyHash>(
    calls: &Small<H>,
    tag: &[u8],
    addrs: &[DeviceAddr],
    sizes: &[u64],
) -> (ErrorCode, u64) {
    let outcome =
        calls.execute(&OF, tag, addrs, sizes, |_, _, _| -> Result<(), CallError> { panic!("submitted") });
    let error = outcome.expect_err("refused");
    (error.code, error.detail)
}

fn a_template_records_once_and_executes_ever_after<H: KeyHash>() {
    let mut calls = small::<H>();
    assert_eq!(calls.lookup(&OF, TAG), Ok(false));
    calls.start(&OF, TAG, &ADDRS, &SIZES, &mut nothing).expect("there is room");
    assert_eq!(calls.lookup(&OF, TAG), Ok(false), "not before the end");
    calls.end(&OF, TAG, 3, 55, &mut nothing).expect("there is room");
    assert_eq!(calls.directory().used().units, 3);
    for step in 0..100 {
        assert_eq!(calls.lookup(&OF, TAG), Ok(true));
        let moved = ADDRS.map(|addr| DeviceAddr(addr.0 + step * 64));
        let ran = calls.execute(&OF, TAG, &moved, &SIZES, |payload, addrs, sizes| {
            assert_eq!((payload, addrs, sizes), (55, &moved[..], &SIZES[..]));
            Ok(step)
        });
        assert_eq!(ran, Ok(step));
    }
    assert_eq!((calls.directory().stats().hits, calls.directory().stats().misses), (100, 2));
    let failed = CallError { code: ErrorCode::BINDING_EXTENT, detail: 3 };
    assert_eq!(calls.execute::<()>(&OF, TAG, &ADDRS, &SIZES, |_, _, _| Err(failed)), Err(failed));
}

fn arguments_must_be_the_recordings<H: KeyHash>() {
    let mut calls = recorded::<H>();
    assert_eq!(refused(&calls, b"other", &ADDRS, &SIZES), (ErrorCode::CACHE_ABSENT, 0));
    assert_eq!(refused(&calls, TAG, &ADDRS[..1], &SIZES[..1]), (ErrorCode::CACHE_ARGUMENTS, 2));
    assert_eq!(refused(&calls, TAG, &[], &[]), (ErrorCode::CACHE_ARGUMENTS, 2));
    assert_eq!(refused(&calls, TAG, &ADDRS, &SIZES[..1]), (ErrorCode::CACHE_ARGUMENTS, 2));
    assert_eq!(refused(&calls, TAG, &ADDRS, &[4096, 8191]), (ErrorCode::CACHE_SIZES, 1));
    assert_eq!(refused(&calls, TAG, &ADDRS, &[4097, 8191]), (ErrorCode::CACHE_SIZES, 0));
    let high = [ADDRS[0], DeviceAddr(u64::MAX - 8190)];
    assert_eq!(refused(&calls, TAG, &high, &SIZES), (ErrorCode::LAUNCH_BUFFER, 1));
    let code = |outcome: Result<(), CallError>| outcome.map_err(|error| (error.code, error.detail));
    assert_eq!(
        code(calls.start(&OF, b"t", &ADDRS, &SIZES[..1], &mut nothing)),
        Err((ErrorCode::CACHE_ARGUMENTS, 2))
    );
    assert_eq!(
        code(calls.start(&OF, b"t", &[DeviceAddr(0); 5], &[1; 5], &mut nothing)),
        Err((ErrorCode::CACHE_BUFFERS, 4))
    );
    assert_eq!(code(calls.start(&OF, b"t", &high, &SIZES, &mut nothing)), Err((ErrorCode::LAUNCH_BUFFER, 1)));
    assert_eq!(code(calls.start(&OF, &[0; 256], &[], &[], &mut nothing)), Err((ErrorCode::CACHE_TAG, 255)));
    assert_eq!(calls.lookup(&OF, &[0; 256]).map_err(|error| error.code), Err(ErrorCode::CACHE_TAG));
    calls.start(&OF, &[0; 255], &[], &[], &mut nothing).expect("the longest tag, no buffers");
    calls.end(&OF, &[0; 255], 1, 1, &mut nothing).expect("there is room");
    assert_eq!(calls.lookup(&OF, &[0; 254]), Ok(false));
    assert_eq!(calls.execute(&OF, &[0; 255], &[], &[], |payload, _, _| Ok(payload)), Ok(1));
}

fn a_tag_is_recorded_by_one_at_a_time<H: KeyHash>() {
    let mut calls = small::<H>();
    let code = |outcome: Result<(), CallError>| outcome.map_err(|error| error.code);
    assert_eq!(code(calls.end(&OF, TAG, 1, 1, &mut nothing)), Err(ErrorCode::CACHE_STATE), "never started");
    calls.start(&OF, TAG, &ADDRS, &SIZES, &mut nothing).expect("there is room");
    assert_eq!(code(calls.start(&OF, TAG, &ADDRS, &SIZES, &mut nothing)), Err(ErrorCode::CACHE_BUSY));
    calls.start(&OF, b"another at the same time", &[], &[], &mut nothing).expect("there is room");
    calls.end(&OF, TAG, 1, 1, &mut nothing).expect("there is room");
    assert_eq!(code(calls.end(&OF, TAG, 1, 1, &mut nothing)), Err(ErrorCode::CACHE_STATE), "ended");
    assert_eq!(code(calls.start(&OF, TAG, &ADDRS, &SIZES, &mut nothing)), Err(ErrorCode::CACHE_PRESENT));
}

fn a_failed_recording_is_cleared<H: KeyHash>() {
    let mut calls = small::<H>();
    calls.start(&OF, TAG, &ADDRS, &SIZES, &mut nothing).expect("there is room");
    calls.clear(&OF, TAG, &mut nothing).expect("the tag is short");
    assert_eq!(calls.lookup(&OF, TAG), Ok(false));
    assert_eq!(calls.directory().used().slots, 0);
    let mut calls = recorded::<H>();
    let mut released = Vec::new();
    calls.clear(&OF, TAG, &mut |payload| released.push(payload)).expect("the tag is short");
    assert_eq!((released, calls.lookup(&OF, TAG)), (vec![55], Ok(false)));
    calls.clear(&OF, TAG, &mut nothing).expect("clearing what is absent succeeds");
}

fn a_recording_without_room_runs_uncached<H: KeyHash>() {
    let mut calls = recorded::<H>();
    calls.directory_mut().set_limits(open(3));
    calls.start(&OF, b"large", &[], &[], &mut nothing).expect("its size is not known yet");
    let error = calls.end(&OF, b"large", 4, 66, &mut nothing).expect_err("4 of 3");
    assert_eq!(error.code, ErrorCode::CACHE_TOO_LARGE);
    assert_eq!(calls.lookup(&OF, b"large"), Ok(false));
    assert_eq!(calls.lookup(&OF, TAG), Ok(true), "which did not have to give way");
    assert_eq!(
        (calls.directory().stats().full(), calls.directory().stats().refused_by(Refusal::TooLarge)),
        (1, 1)
    );
    assert_eq!(calls.directory().used().slots, 1);
}

fn lives_and_communicators_have_tags_of_their_own<H: KeyHash>() {
    let mut calls = recorded::<H>();
    for other in [Communicator { epoch: 2, ..OF }, Communicator { instance: B, ..OF }] {
        assert_eq!(calls.lookup(&other, TAG), Ok(false));
        calls.clear(&other, TAG, &mut nothing).expect("another's");
    }
    assert_eq!(calls.lookup(&OF, TAG), Ok(true));
    calls.directory_mut().clear(A, &mut |_| ());
    assert_eq!(calls.lookup(&OF, TAG), Ok(false));
    assert_eq!(refused(&calls, TAG, &ADDRS, &SIZES), (ErrorCode::CACHE_ABSENT, 0));
}

/// Every tag has the same digest.
struct SameDigest;

impl KeyHash for SameDigest {
    fn hash(key: &Key) -> u64 {
        Mixed::hash(key)
    }

    fn digest(_: &[u8]) -> [u64; 2] {
        [7, 7]
    }
}

#[test]
fn tags_are_compared_in_full() {
    let mut calls = recorded::<SameDigest>();
    let twin: Vec<u8> = TAG.iter().map(|byte| byte ^ 1).collect();
    assert_eq!(calls.lookup(&OF, &twin), Ok(false));
    assert_eq!(refused(&calls, &twin, &ADDRS, &SIZES), (ErrorCode::CACHE_ABSENT, 0));
    let error = calls.start(&OF, &twin, &ADDRS, &SIZES, &mut nothing).expect_err("not both");
    assert_eq!(error.code, ErrorCode::CACHE_COLLISION);
    calls.clear(&OF, &twin, &mut nothing).expect("nothing to clear");
    assert_eq!(calls.lookup(&OF, TAG), Ok(true));
}

#[test]
fn digests_of_like_tags_differ() {
    let mut digests: Vec<[u64; 2]> = (0..10_000_u32)
        .flat_map(|number| {
            [format!("{number}-group"), format!("group-{number}"), "0".repeat(1 + number as usize % 255)]
        })
        .map(|tag| Constant::digest(tag.as_bytes()))
        .collect();
    digests.sort_unstable();
    digests.dedup();
    assert_eq!(digests.len(), 20_000 + 255);
}
