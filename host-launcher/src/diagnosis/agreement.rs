//! Whether all ranks were asked for the same: which field differs, and at which ranks.
//!
//! Kernels record a signature of every launch before they submit anything of it; comparing those finds a difference.
//! What differs is read from the launch arguments themselves, which lie in the mailboxes.

use std::collections::BTreeMap;

use wire::launch::{Algorithm, OpKind, Staging};
use wire::program::ProgramEntry;
use wire::{DataType, LaunchArgs, Recorded, ReduceOp, Signature, TraceEvent};

use super::snapshot::Snapshot;
use super::waits::list;

/// Something that differs between ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mismatch {
    /// Sequence of the operation.
    pub(super) sequence: u32,
    /// What differs.
    pub(super) field: String,
    /// Its values, each with the ranks that have it; the fewest ranks first.
    pub(super) values: Vec<(String, Vec<u32>)>,
}

impl Mismatch {
    /// Returns the rank to look at first: one of the fewest.
    pub(super) fn culprit(&self) -> u32 {
        self.values.first().and_then(|(_, ranks)| ranks.first()).copied().unwrap_or(0)
    }

    /// Returns whether the ranks are at different operations altogether, not only at differing arguments of one.
    pub(super) fn is_other_operation(&self) -> bool {
        self.field.ends_with(OPERATION) || self.field == OPERATIONS
    }

    /// Says what differs: `count is 999 at rank 1, but 1000 at ranks 0, 2, 3`.
    pub(super) fn sentence(&self) -> String {
        let at = |(value, ranks): &(String, Vec<u32>)| {
            let noun = if ranks.len() == 1 { "rank" } else { "ranks" };
            format!("{value} at {noun} {}", list(ranks))
        };
        let values: Vec<_> = self.values.iter().map(at).collect();
        format!("{} is {}", self.field, values.join(", but "))
    }
}

const OPERATION: &str = "operation";
const OPERATIONS: &str = "number of operations";

/// Name and value of everything that must be the same on all ranks.
type Terms = Vec<(String, String)>;

/// The numbers that both launch arguments and entries of programs have.
struct Numbers {
    kinds: [u8; 5],
    sizes: [u64; 3],
    root: u32,
    levels: [u8; 4],
}

impl From<&LaunchArgs> for Numbers {
    fn from(args: &LaunchArgs) -> Self {
        let &LaunchArgs { op, dtype, reduce, algorithm, staging, root, levels, .. } = args;
        let sizes = [args.count, args.chunk, args.piece];
        Self { kinds: [op, dtype, reduce, algorithm, staging], sizes, root, levels }
    }
}

impl From<&ProgramEntry> for Numbers {
    fn from(entry: &ProgramEntry) -> Self {
        let &ProgramEntry { op, dtype, reduce, algorithm, staging, root, levels, .. } = entry;
        let sizes = [entry.count, entry.chunk, entry.piece];
        Self { kinds: [op, dtype, reduce, algorithm, staging], sizes, root, levels }
    }
}

impl Numbers {
    fn terms(&self, prefix: &str) -> Terms {
        let [op, dtype, reduce, algorithm, staging] = self.kinds;
        let named = |name: Option<&'static str>, number: u8| name.map_or(number.to_string(), str::to_owned);
        let algorithm_name =
            |number: u8| named(Algorithm::try_from(number).ok().map(Algorithm::name), number);
        let level = |number: u8| if number == 0 { "own choice".to_owned() } else { algorithm_name(number) };
        let levels = self.levels.map(level);
        let [count, chunk, piece] = self.sizes;
        let terms = [
            (OPERATION, named(OpKind::try_from(op).ok().map(OpKind::name), op)),
            ("data type", named(DataType::try_from(dtype).ok().map(DataType::name), dtype)),
            ("reduction", named(ReduceOp::try_from(reduce).ok().map(ReduceOp::name), reduce)),
            ("root", self.root.to_string()),
            ("count", count.to_string()),
            ("algorithm", algorithm_name(algorithm)),
            ("levels", levels.join(", ")),
            ("staging", named(Staging::try_from(staging).ok().map(Staging::name), staging)),
            ("chunk", chunk.to_string()),
            ("piece", piece.to_string()),
        ];
        terms.into_iter().map(|(name, value)| (format!("{prefix}{name}"), value)).collect()
    }
}

/// Returns what a rank was asked for by the launch with this sequence, if it is still in the mailbox.
fn terms(rank: &Snapshot, sequence: u32) -> Option<Terms> {
    let args = rank.launch(sequence)?;
    if args.kind != LaunchArgs::REPLAY {
        let mut terms = Numbers::from(&args).terms("");
        let own = rank.host.in_flight.iter().find(|own| own.sequence == sequence);
        let tables = own.map_or(0, |own| own.tables);
        terms.push((
            "vector of counts, or algorithm file,".to_owned(),
            format!("…{:08x}", tables & u64::from(u32::MAX)),
        ));
        return Some(terms);
    }
    let program = rank.programs.iter().find(|program| program.sequence == sequence)?;
    let count = program.entries.len();
    if let [only] = &*program.entries {
        // One operation is the same whether it was captured or not.
        let mut terms = Numbers::from(only).terms("");
        terms.push(("vector of counts, or algorithm file,".to_owned(), "…00000000".to_owned()));
        return Some(terms);
    }
    let mut terms = vec![(OPERATIONS.to_owned(), format!("{count} (a captured program)"))];
    for (number, entry) in (1..).zip(&program.entries) {
        terms.extend(Numbers::from(entry).terms(&format!("{number:02}: ")));
    }
    Some(terms)
}

/// Finds the oldest operation in flight that ranks disagree about.
pub(super) fn mismatch(ranks: &[Snapshot]) -> Option<Mismatch> {
    let mut sequences: Vec<u32> =
        ranks.iter().flat_map(|rank| &rank.host.in_flight).map(|launched| launched.sequence).collect();
    sequences.sort_unstable();
    sequences.dedup();
    sequences.into_iter().find_map(|sequence| differing(ranks, sequence))
}

fn differing(ranks: &[Snapshot], sequence: u32) -> Option<Mismatch> {
    let in_flight = |rank: &&Snapshot| rank.host.in_flight.iter().any(|own| own.sequence == sequence);
    let asked: Vec<(u32, Terms)> = ranks
        .iter()
        .filter(in_flight)
        .filter_map(|rank| Some((rank.host.rank, terms(rank, sequence)?)))
        .collect();
    let (_, reference) = asked.first()?;
    // A captured program of several operations beside one operation has no field in common with it.
    let one = |terms: &Terms| terms.first().is_some_and(|(name, _)| name != OPERATIONS);
    if asked.iter().any(|(_, terms)| one(terms) != one(reference)) {
        let count = |terms: &Terms| if one(terms) { "1".to_owned() } else { terms[0].1.clone() };
        return Some(grouped(sequence, OPERATIONS, asked.iter().map(|(rank, terms)| (*rank, count(terms)))));
    }
    let other = asked.iter().find(|(_, terms)| terms != reference)?;
    let index = reference.iter().zip(&other.1).position(|(a, b)| a != b)?;
    let value = |(rank, terms): &(u32, Terms)| (*rank, terms[index].1.clone());
    Some(grouped(sequence, &reference[index].0, asked.iter().map(value)))
}

/// Groups ranks by their value, the fewest first; of groups of one size the one without the lowest rank.
fn grouped(sequence: u32, field: &str, values: impl Iterator<Item = (u32, String)>) -> Mismatch {
    let mut groups: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    for (rank, value) in values {
        groups.entry(value).or_default().push(rank);
    }
    let mut values: Vec<_> = groups.into_iter().collect();
    values.sort_by_key(|(_, ranks)| (ranks.len(), core::cmp::Reverse(ranks[0])));
    Mismatch { sequence, field: field.trim_start_matches('0').to_owned(), values }
}

/// Returns the signature that a flight recorder has of a launch of a communicator.
pub(crate) fn signature(events: &[TraceEvent], instance: [u64; 2], sequence: u32) -> Option<Signature> {
    let own = instance[0] & u64::from(u32::MAX);
    events.iter().rev().find_map(|event| match event.recorded()? {
        Recorded::LaunchTaken { signature, comm }
            if u64::from(comm) == own && signature.sequence == sequence =>
        {
            Some(signature)
        }
        _ => None,
    })
}
