//! The aarch64 image writes the descriptors that the host build writes, byte for byte.
//!
//! Both builds get fabrics with the same addresses and the same sequence of calls, so they get the same resources.
//! Only tokens differ, which are random but for the slot in their low bits: those bits are compared.

use core::sync::atomic::Ordering;
use core::time::Duration;

use aicpu_tests::bench::{Bench, Case};
use aicpu_tests::world::{self, Place};
use host_launcher::cluster::{Aicpu, Cluster};
use host_launcher::communicator::{Completed, Config, Operation};
use wire::launch::{Algorithm, OpKind, Staging};
use wire::npu::{MAX_QUEUES, MAX_REGIONS, QUEUES, QueueSlot, TAILS};
use wire::{DataType, Descriptor, DeviceAddr, Lane, ReduceOp};
use zerocopy::{FromZeros, IntoBytes};

/// Every operation by every algorithm and staging that exists, with types for every engine, chunked and not.
fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let mut add = |op, algorithm, staging| {
        let turn = cases.len();
        // The links' own types first; the others are reduced by the AI CPU, which the direct meshes cannot have.
        let types = [DataType::Fp32, DataType::Int16, DataType::Fp64, DataType::Uint8];
        let mesh = matches!(algorithm, Algorithm::MeshOneShot | Algorithm::MeshTwoShot);
        let direct_mesh = mesh && staging == Staging::Direct;
        let dtype = if direct_mesh { DataType::Fp32 } else { types[turn % types.len()] };
        for (count, chunk) in [(1000, 0), (77, 20), (0, 0)] {
            let reduce = ReduceOp::Sum;
            let operation = Operation { op, count, dtype, reduce, algorithm, staging, chunk, piece: 0 };
            cases.push(Case { operation, in_place: chunk > 0 && !direct_mesh, shift: 0, seed: turn as u64 });
        }
    };
    for &staging in Staging::ALL {
        Algorithm::ALL.iter().for_each(|&algorithm| add(OpKind::AllReduce, algorithm, staging));
        [Algorithm::Ring, Algorithm::Nhr]
            .iter()
            .for_each(|&algorithm| add(OpKind::AllGather, algorithm, staging));
    }
    // A reduce-scatter has no buffer of its own in which it could collect what others send.
    add(OpKind::ReduceScatter, Algorithm::Ring, Staging::Scratch);
    add(OpKind::ReduceScatter, Algorithm::Nhr, Staging::Scratch);
    cases
}

/// A descriptor with its tokens reduced to the slots that they name.
fn without_random_bits(mut entry: Descriptor) -> Descriptor {
    let slot = MAX_REGIONS - 1;
    entry.lanes[Lane::Tokens as usize] &= slot << 32 | slot;
    entry
}

/// A queue, and what has been written to its ring.
type Written = (QueueSlot, u64, Vec<Descriptor>);

/// Every queue of an NPU with the entries below its tail.
fn written(cluster: &Cluster, rank: u32) -> Vec<Written> {
    let npu = cluster.npu(rank);
    let mut all = Vec::new();
    for queue in 0..MAX_QUEUES {
        let mut slot = QueueSlot::new_zeroed();
        npu.window().read(QUEUES + queue * size_of::<QueueSlot>() as u64, slot.as_mut_bytes());
        if slot.depth == 0 {
            continue;
        }
        let tail = npu.window().word(TAILS + 8 * queue).load(Ordering::Acquire);
        let count = usize::try_from(tail.min(u64::from(slot.depth))).unwrap();
        let mut entries = vec![Descriptor::new_zeroed(); count];
        if count > 0 {
            npu.read(DeviceAddr(slot.ring), entries.as_mut_bytes()).unwrap();
        }
        all.push((slot, tail, entries.into_iter().map(without_random_bits).collect()));
    }
    all
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
    let cases = cases();
    let skipped = |case: &&Case| {
        let mesh = matches!(case.operation.algorithm, Algorithm::MeshOneShot | Algorithm::MeshTwoShot);
        place == Place::TwoServers && mesh && case.operation.staging == Staging::Direct
    };
    for case in cases.iter().filter(|case| !skipped(case)) {
        let [one, other] = [on_host.run(case).unwrap(), on_guest.run(case).unwrap()];
        assert_eq!(answers(&one), answers(&other), "{case:?} on {ranks} ranks, {place:?}");
        compared += one.iter().map(|done| (done.status.sqes + done.status.wqes) as usize).sum::<usize>();
        for rank in 0..ranks {
            let [one, other] = [written(&host, rank), written(&guest, rank)];
            assert_eq!(one.len(), other.len());
            for (queue, (one, other)) in one.iter().zip(&other).enumerate() {
                assert_eq!((one.0, one.1), (other.0, other.1), "{case:?}, rank {rank}, queue {queue}");
                let differs = one.2.iter().zip(&other.2).position(|(one, other)| one != other);
                if let Some(at) = differs {
                    let (one, other) = (one.2[at], other.2[at]);
                    panic!("{case:?}, rank {rank}, queue {queue}, entry {at}: {one:x?} and {other:x?}");
                }
            }
        }
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
