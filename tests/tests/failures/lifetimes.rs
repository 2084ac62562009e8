//! What changes or goes while an operation is under way, at many moments of simulated lives: a context's bytes, a
//! registration, what lies behind an address; and two communicators in one life.

use core::time::Duration;

use aicpu_tests::bench::{Bench, Case};
use aicpu_tests::scene::case;
use aicpu_tests::world::{self, Place};
use device_model::fault::{Fault, Mishap, When};
use host_launcher::cluster::Cluster;
use host_launcher::communicator::Config;
use host_launcher::{Error, Result};
use wire::launch::{Algorithm, Staging};
use wire::npu::{Access, LAUNCH_SLOTS, LAUNCH_TAIL, LAUNCHES};
use wire::{DeviceAddr, ErrorCode, LaunchArgs};
use zerocopy::{FromZeros, IntoBytes};

const RANKS: u32 = 3;

fn life(seed: u64) -> Cluster {
    Cluster::simulate(world::topology(RANKS, Place::OneServer), 24 << 20, seed).unwrap()
}

fn config(seed: u64) -> Config {
    let timeout = Duration::from_millis(500);
    Config { queue_depth: 4 << (seed % 5), timeout, warn_after: Vec::new(), ..Config::default() }
}

fn direct() -> Case {
    let mut case = case(Algorithm::MeshTwoShot);
    case.operation.staging = Staging::Direct;
    case
}

/// Lets some virtual time pass.
fn pass(cluster: &Cluster, micros: u64) {
    let until = cluster.clock().now().checked_add(Duration::from_micros(micros));
    cluster.machine().run_until(|| false, until);
}

/// What became of a meddled operation: bytes that are right (the bench has compared them), or an error.
fn meddled(bench: &mut Bench<'_>, case: &Case, meddle: impl FnOnce(&mut Bench<'_>)) -> Option<Error> {
    let launch = |bench: &mut Bench<'_>| -> Result<()> {
        bench.launch(case)?;
        meddle(bench);
        Ok(())
    };
    bench.run_with(case, launch).err()
}

/// A new communicator on the same cluster works.
fn goes_on(cluster: &Cluster, seed: u64) {
    let mut bench = Bench::new(cluster, config(seed), 64 << 10).unwrap();
    bench.run(&Case { seed, ..case(Algorithm::Nhr) }).unwrap();
    bench.finish().unwrap();
}

/// F30: the bytes of a context change after the launch. A kernel that has decoded it works with its own copy; one that
/// has not refuses it.
#[test]
fn a_context_that_changes_after_the_launch() {
    let (mut refused, mut unnoticed) = (0, 0);
    for seed in 0..48 {
        let (cluster, rank, is_decoded) = (life(seed), u32::try_from(seed % 3).unwrap(), seed % 2 == 1);
        let mut bench = Bench::new(&cluster, config(seed), 64 << 10).unwrap();
        if is_decoded {
            bench.run(&case(Algorithm::Ring)).unwrap();
        }
        let error = meddled(&mut bench, &case(Algorithm::Ring), |_| {
            pass(&cluster, seed / 4);
            let window = cluster.npu(rank).window();
            let tail = window.word(LAUNCH_TAIL).load(core::sync::atomic::Ordering::Acquire);
            let mut args = LaunchArgs::new_zeroed();
            let slot = (tail - 1) % LAUNCH_SLOTS;
            window.read(LAUNCHES + slot * size_of::<LaunchArgs>() as u64, args.as_mut_bytes());
            let at = DeviceAddr(args.context.0 + seed * 37 % u64::from(args.context_len));
            let mut byte = [0];
            cluster.npu(rank).read(at, &mut byte).unwrap();
            cluster.npu(rank).write(at, &[byte[0] ^ 0x40]).unwrap();
        });
        match error {
            None => unnoticed += 1,
            Some(error) => {
                assert!(!is_decoded, "seed {seed}: {error}");
                assert!((2001..2100).contains(&error.code().0), "seed {seed}: {error}");
                assert_eq!(error.diagnosis().unwrap().culprit_rank, Some(rank), "seed {seed}: {error}");
                refused += 1;
            }
        }
        bench.abandon().unwrap();
        goes_on(&cluster, seed);
    }
    assert!(refused > 0 && unnoticed >= 24, "{refused} {unnoticed}");
}

/// F31 and F32: a registration goes while it is in use, or is replaced by another of the same address. What was recorded
/// with the old token is refused, and what is done was right; the new registration is not reached by the old token.
#[test]
fn a_registration_that_goes_while_it_is_in_use() {
    let (mut refused, mut done) = (0, 0);
    for seed in 0..60 {
        let (cluster, rank, is_replaced) = (life(seed), u32::try_from(seed % 3).unwrap(), seed % 2 == 1);
        let mut bench = Bench::new(&cluster, config(seed), 64 << 10).unwrap();
        let case = if seed % 4 < 2 { direct() } else { case(Algorithm::Ring) };
        bench.run(&case).unwrap();
        let meddle = |bench: &mut Bench<'_>| {
            pass(&cluster, seed);
            let (npu, input) = (cluster.npu(rank), bench.input());
            npu.deregister(input.token(rank)).unwrap();
            if is_replaced {
                let again = npu.register(input.addr(rank), input.len(), Access::all()).unwrap();
                assert_ne!(again.token, input.token(rank), "a token never comes again");
            }
        };
        match meddled(&mut bench, &case, meddle) {
            None => {
                done += 1;
                // It was done before; the next one names the old token.
                let error = bench.run(&case).unwrap_err();
                assert_stale(&error, rank, seed);
            }
            Some(error) => {
                refused += 1;
                assert_stale(&error, rank, seed);
            }
        }
        bench.abandon().unwrap();
        goes_on(&cluster, seed);
    }
    assert!(refused > 0 && done > 0, "{refused} {done}");
}

/// A token that is not valid any more: memory that is not registered is its own rank's affair, an old token of one that
/// is registered anew that of whoever holds it. Either way the rank is named.
fn assert_stale(error: &Error, rank: u32, seed: u64) {
    let report = error.diagnosis().unwrap();
    match error.code() {
        ErrorCode::DMA_UNREGISTERED => assert_eq!(report.culprit_rank, Some(rank), "seed {seed}: {error}"),
        ErrorCode::DMA_TOKEN => {
            assert!([report.culprit_rank, report.peer].contains(&Some(rank)), "seed {seed}: {error}");
        }
        _ => panic!("seed {seed}: {error}"),
    }
}

/// F44: two communicators in one life. Launched in the same order, or with rings that take a whole operation, none starves
/// the other; what strikes one is reported by it, and the other's bytes are right. Launched in crossing orders on rings
/// that are too short for either, they hold each other's kernels, and that is what is said.
#[test]
fn two_communicators_in_one_life() {
    let (mut struck, mut held) = (0, 0);
    for seed in 0..72 {
        let cluster = life(seed);
        let (is_struck, crosses) = (seed % 2 == 1, seed % 3 == 0);
        let depth = if seed % 6 < 3 { 4 << (seed / 6 % 3) } else { 64 };
        let config = || Config { queue_depth: depth, ..config(seed) };
        let mut one = Bench::new(&cluster, config(), 64 << 10).unwrap();
        let mut other = Bench::new(&cluster, config(), 64 << 10).unwrap();
        let cases = [Case { seed, ..case(Algorithm::Ring) }, Case { seed: !seed, ..direct() }];
        one.run(&cases[0]).unwrap();
        other.run(&cases[1]).unwrap();
        if is_struck {
            let when = When { spared: u32::try_from(seed / 2).unwrap(), ..When::default() };
            cluster.machine().inject(u32::try_from(seed % 3).unwrap(), Fault::At(when, Mishap::LoseSignal));
        }
        let mut first = None;
        let both = |bench: &mut Bench<'_>| {
            let before = if crosses { 1 } else { RANKS };
            (0..before).try_for_each(|rank| bench.launch_on(rank, &cases[0]))?;
            let inner = |other: &mut Bench<'_>| {
                (0..RANKS).try_for_each(|rank| other.launch_on(rank, &cases[1]))?;
                (before..RANKS).rev().try_for_each(|rank| bench.launch_on(rank, &cases[0]))
            };
            first = Some(other.run_with(&cases[1], inner).err());
            Ok(())
        };
        let second = one.run_with(&cases[0], both).err();
        let failures: Vec<Error> = [first.flatten(), second].into_iter().flatten().collect();
        let is_held = |error: &Error| {
            error.code() == ErrorCode::COMM_ORDER
                || error.code() == ErrorCode::PEER_NOT_STARTED && error.to_string().contains(" is behind ")
        };
        if crosses && depth < 64 && failures.iter().any(is_held) {
            held += 1;
        } else {
            assert!(failures.is_empty() || is_struck, "seed {seed}: {failures:?}");
            struck += usize::from(!failures.is_empty());
            // Whoever waits behind the one that was struck is held by it.
            for error in failures.iter().filter(|error| !is_held(error)) {
                assert_eq!(error.code(), ErrorCode::NOTIFY_TIMEOUT, "seed {seed}: {error}");
                let culprit = error.diagnosis().unwrap().culprit_rank;
                assert_eq!(culprit, Some(u32::try_from(seed % 3).unwrap()), "seed {seed}: {error}");
            }
        }
        one.abandon().unwrap();
        other.abandon().unwrap();
        (0..RANKS).for_each(|rank| cluster.repair(rank).unwrap());
        goes_on(&cluster, seed);
    }
    assert!(struck >= 8 && held >= 5, "{struck} {held}");
}
