//! Times equal the published formulas to the femtosecond: α is a signal and a transfer, β and γ cost a byte.

use host_launcher::select::machine::Machine;
use host_launcher::select::parts::{Part, Parts};
use host_launcher::select::{Candidate, Question, bound, operation};
use wire::launch::{Algorithm, OpKind, Staging};

use super::{profile, topology};

/// Femtoseconds: latency and signal, the signal alone, a byte over HCCS, a reduced byte, a copied byte.
const ALPHA: u64 = 1_500_000_000;
const SIGNAL: u64 = 500_000_000;
const BETA: u64 = 20_000;
const GAMMA: u64 = 2_000;
const COPY: u64 = 1_000;

/// What a formula says.
struct Formula {
    steps: u64,
    bytes: u64,
    reduced: u64,
    copied: u64,
}

fn time(op: OpKind, algorithm: Algorithm, staging: Staging, ranks: u32, count: u64) -> Parts {
    let topology = topology(1, ranks);
    let machine = Machine::new(&topology, &profile(|_| {}), 1 << 30);
    let question = Question { op, count, ..Question::default() };
    let candidate = Candidate { algorithm, levels: [None; 4], staging };
    machine.time(&operation(&question, ranks, candidate), false).unwrap()
}

#[track_caller]
fn assert_formula(parts: Parts, formula: &Formula) {
    let got = [Part::HccsLatency, Part::HccsBytes, Part::Reductions, Part::Copies].map(|part| parts.of(part));
    let Formula { steps, bytes, reduced, copied } = formula;
    assert_eq!(got, [steps * ALPHA, bytes * BETA, reduced * GAMMA, copied * COPY]);
    assert_eq!(parts.total(), got.into_iter().sum::<u64>());
}

fn log(ranks: u64) -> u64 {
    u64::from(ranks.next_power_of_two().ilog2())
}

#[test]
fn ring_all_reduce() {
    for ranks in [2_u32, 3, 5, 8, 16] {
        let p = u64::from(ranks);
        let n = p * 4096;
        for (staging, copied) in [(Staging::Direct, n), (Staging::Scratch, 2 * n)] {
            let got = time(OpKind::AllReduce, Algorithm::Ring, staging, ranks, n / 4);
            let (bytes, reduced) = (2 * (p - 1) * n / p, (p - 1) * n / p);
            assert_formula(got, &Formula { steps: 2 * (p - 1), bytes, reduced, copied });
        }
    }
}

#[test]
fn halving_doubling_and_nhr_all_reduce() {
    for ranks in [2_u32, 4, 8, 16, 32] {
        let p = u64::from(ranks);
        let n = p * 4096;
        let (bytes, reduced) = (2 * (p - 1) * n / p, (p - 1) * n / p);
        let formula = Formula { steps: 2 * log(p), bytes, reduced, copied: n };
        for algorithm in [Algorithm::HalvingDoubling, Algorithm::Nhr] {
            assert_formula(time(OpKind::AllReduce, algorithm, Staging::Direct, ranks, n / 4), &formula);
        }
    }
    // NHR keeps the formula for any number of ranks.
    for ranks in [3_u32, 6, 7, 12] {
        let p = u64::from(ranks);
        let n = p * 4096;
        let (bytes, reduced) = (2 * (p - 1) * n / p, (p - 1) * n / p);
        let got = time(OpKind::AllReduce, Algorithm::Nhr, Staging::Direct, ranks, n / 4);
        assert_formula(got, &Formula { steps: 2 * log(p), bytes, reduced, copied: n });
    }
}

/// T36: only what the last step brings is copied out after it, by both threads; the rest meanwhile.
#[test]
fn t36_copying_out_overlaps_the_last_step() {
    for ranks in [4_u32, 8, 16] {
        let p = u64::from(ranks);
        let n = p * 4096;
        let (bytes, reduced) = (2 * (p - 1) * n / p, (p - 1) * n / p);
        let got = time(OpKind::AllReduce, Algorithm::Nhr, Staging::Scratch, ranks, n / 4);
        // Half of it in by each thread, a quarter of it out, where it would be half.
        assert_formula(got, &Formula { steps: 2 * log(p), bytes, reduced, copied: n / 2 + n / 4 });
    }
    for algorithm in [Algorithm::Nhr, Algorithm::Nb] {
        for ranks in [4_u32, 8, 16] {
            let (p, block) = (u64::from(ranks), 4096);
            let got = time(OpKind::AllGather, algorithm, Staging::Scratch, ranks, block / 4);
            // One in, a quarter of all out by each thread, where it would be half of all.
            let copied = (1 + p / 4) * block;
            assert_formula(got, &Formula { steps: log(p), bytes: (p - 1) * block, reduced: 0, copied });
        }
    }
}

#[test]
fn ring_halves() {
    for ranks in [2_u32, 5, 8] {
        let (p, block) = (u64::from(ranks), 4096);
        let got = time(OpKind::AllGather, Algorithm::Ring, Staging::Direct, ranks, block / 4);
        let bytes = (p - 1) * block;
        assert_formula(got, &Formula { steps: p - 1, bytes, reduced: 0, copied: block });
        let got = time(OpKind::ReduceScatter, Algorithm::Ring, Staging::Scratch, ranks, block / 4);
        assert_formula(got, &Formula { steps: p - 1, bytes, reduced: bytes, copied: (p + 1) * block });
    }
}

#[test]
fn mesh_over_links_at_once() {
    for ranks in [2_u32, 4, 8] {
        let (p, block) = (u64::from(ranks), 8192);
        // α + n/p·β, each link; then (p−1)/p·nγ in rank order.
        let got = time(OpKind::ReduceScatter, Algorithm::MeshOneShot, Staging::Scratch, ranks, block / 4);
        let reduced = (p - 1) * block;
        assert_formula(got, &Formula { steps: 1, bytes: block, reduced, copied: 2 * block });
        // The copy of the own block is over before the others'; each is copied from its slot.
        let got = time(OpKind::AllGather, Algorithm::MeshOneShot, Staging::Scratch, ranks, block / 4);
        assert_formula(got, &Formula { steps: 1, bytes: block, reduced: 0, copied: 2 * block });
    }
}

#[test]
fn broadcast_as_scatter_and_all_gather() {
    for ranks in [2_u32, 4, 8, 16] {
        let p = u64::from(ranks);
        let n = p * 4096;
        let got = time(OpKind::Broadcast, Algorithm::Nhr, Staging::Direct, ranks, n / 4);
        let bytes = 2 * (p - 1) * n / p;
        assert_eq!(got.of(Part::HccsBytes), bytes * BETA, "{ranks} ranks");
        // Whoever waits in the tree has sent its signal long before; only the first is waited for.
        assert_eq!(
            got.of(Part::HccsLatency),
            SIGNAL + log(p) * (ALPHA - SIGNAL) + log(p) * ALPHA,
            "{ranks} ranks"
        );
        let got = time(OpKind::Broadcast, Algorithm::Tree, Staging::Direct, ranks, n / 4);
        assert_eq!(got.of(Part::HccsBytes), log(p) * n * BETA, "{ranks} ranks");
        assert_eq!(got.of(Part::HccsLatency), SIGNAL + log(p) * (ALPHA - SIGNAL), "{ranks} ranks");
    }
}

#[test]
fn chunks_come_one_after_the_other() {
    let topology = topology(1, 8);
    let machine = Machine::new(&topology, &profile(|_| {}), 64 << 10);
    let question = Question { count: 4 * (64 << 10) / 4, ..Question::default() };
    let candidate = Candidate { algorithm: Algorithm::Ring, levels: [None; 4], staging: Staging::Scratch };
    let parts = machine.time(&operation(&question, 8, candidate), false).unwrap();
    assert_eq!(parts.of(Part::HccsLatency), 4 * 14 * ALPHA);
    assert_eq!(parts.of(Part::HccsBytes), 4 * 14 * (8 << 10) * BETA);
}

#[test]
fn bounds_of_one_port_are_the_published_ones() {
    // Two ranks have one link each.
    let two = topology(1, 2);
    let n = 1 << 20;
    let step = 500_000_000;
    let bound = |op| bound::of(&Machine::new(&two, &profile(|_| {}), 1 << 20), op, n);
    let all_reduce = bound(OpKind::AllReduce);
    assert_eq!((all_reduce.latency, all_reduce.bandwidth), (step, n * BETA));
    assert_eq!(bound(OpKind::AllGather).bandwidth, n * BETA);
    assert_eq!(bound(OpKind::Broadcast).bandwidth, n * BETA);
    // A port of its own for each of 16 servers: ⌈log2 p⌉ α + 2(p−1)/p · nβ.
    let apart = topology(16, 1);
    let shared = profile(|profile| {
        profile.links.roce.shared_by = host_launcher::select::profile::Sharing::Port;
    });
    let ring = bound::of(&Machine::new(&apart, &shared, 1 << 20), OpKind::AllReduce, n);
    assert_eq!((ring.latency, ring.bandwidth), (4 * 2_000_000_000, 2 * 15 * n / 16 * 50_000));
}
