//! The aarch64 image writes the descriptors that the host build writes, byte for byte.
//!
//! Both builds get fabrics with the same addresses and the same sequence of calls, so they get the same resources.

use core::time::Duration;

use aicpu_tests::bench::{Bench, Case};
use aicpu_tests::variants::Variant;
use aicpu_tests::world::{self, Place};
use aicpu_tests::written::{assert_same, without_random_bits};
use host_launcher::cluster::{Aicpu, Cluster};
use host_launcher::communicator::{Completed, Config, Operation};
use wire::{DataType, Descriptor, Lane};

/// Every operation by every algorithm and staging that exists, with types for every engine, chunked and not.
fn cases(ranks: u32) -> Vec<Case> {
    // The links' own types first; the others are reduced by the AI CPU, which the direct meshes cannot have.
    let types = [DataType::Fp32, DataType::Int16, DataType::Fp64, DataType::Uint8];
    let mut cases = Vec::new();
    for variant in Variant::all() {
        let turn = cases.len();
        let dtype = if variant.adds_on_the_way() { DataType::Fp32 } else { types[turn % types.len()] };
        for (count, chunk) in [(1000, 0), (77, 20), (0, 0)] {
            let operation = variant.operation(count, ranks, turn as u64);
            let operation = Operation { dtype, chunk, ..operation };
            let in_place = chunk > 0 && variant.runs(true, true);
            cases.push(Case { operation, in_place, shift: 0, seed: turn as u64 });
        }
    }
    cases
}

/// What a kernel answers, but for the times it took.
fn answers(completed: &[Completed]) -> Vec<Completed> {
    let timeless = |mut done: Completed| {
        (done.status.expand_ns, done.status.submit_ns) = (0, 0);
        done
    };
    completed.iter().copied().map(timeless).collect()
}

fn bench(cluster: &Cluster) -> Bench<'_> {
    let config = Config { timeout: Duration::from_secs(20), ..Config::default() };
    Bench::new(cluster, config, 8 * 8 * 1000).unwrap()
}

/// Runs every case on both builds; returns the number of descriptors compared.
fn compare(ranks: u32, place: Place, image: &Aicpu) -> usize {
    let start = |aicpu| Cluster::start(world::topology(ranks, place), 48 << 20, aicpu).unwrap();
    let (host, guest) = (start(&Aicpu::Thread), start(image));
    let (mut on_host, mut on_guest) = (bench(&host), bench(&guest));
    let mut compared = 0;
    let cases = cases(ranks);
    let skipped = |case: &&Case| {
        let Operation { op, algorithm, staging, .. } = case.operation;
        place == Place::TwoServers && Variant { op, algorithm, staging }.adds_on_the_way()
    };
    for case in cases.iter().filter(|case| !skipped(case)) {
        let [one, other] = [on_host.run(case).unwrap(), on_guest.run(case).unwrap()];
        assert_eq!(answers(&one), answers(&other), "{case:?} on {ranks} ranks, {place:?}");
        compared += one.iter().map(|done| (done.status.sqes + done.status.wqes) as usize).sum::<usize>();
        assert_same(&host, &guest, case);
    }
    compared
}

#[test]
fn both_builds_write_the_same_descriptors() {
    let Some(image) = world::image() else { return };
    let mut compared = 0;
    for place in [Place::OneServer, Place::TwoServers, Place::UnifiedBus] {
        for ranks in [2, 5, 8] {
            compared += compare(ranks, place, &image);
        }
    }
    println!("{compared} descriptors are the same");
    assert!(compared > 100_000, "{compared}");
}

/// A machine of its own for every NPU, whose core sleeps between two doorbells, is the same build.
#[test]
fn a_machine_for_each_npu_writes_the_same_descriptors() {
    let Some(Aicpu::Qemu { image, mut options }) = world::image() else { return };
    options.per_npu = true;
    assert!(compare(3, Place::TwoServers, &Aicpu::Qemu { image, options }) > 1000);
}

/// The comparison notices a bit in any lane, and forgives only what is random in a token.
#[test]
fn only_the_random_bits_of_tokens_are_forgiven() {
    let entry = Descriptor { lanes: [0x0123_4567_89ab_cdef; 8] };
    for lane in 0..8 {
        for bit in 0..64 {
            let mut changed = entry;
            changed.lanes[lane] ^= 1 << bit;
            let forgiven = lane == Lane::Tokens as usize && bit % 32 >= 10;
            let same = without_random_bits(changed) == without_random_bits(entry);
            assert_eq!(same, forgiven, "lane {lane}, bit {bit}");
        }
    }
}
