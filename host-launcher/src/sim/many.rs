//! Many seeds, and the shortest command for one that fails.

use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::thread;
use std::time::Instant;

use serde::Serialize;

use super::play::play;
use super::scenario::{Limits, Scenario};
use super::verdict::{Blame, Played, Verdict};
use crate::faults::Moment;

/// What became of many seeds.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Totals {
    /// Seeds played.
    pub seeds: u64,
    /// Scenarios in which every byte was right.
    pub right: u64,
    /// Scenarios in which a call failed as it must, by code.
    pub reported: BTreeMap<u16, u64>,
    /// Scenarios in which only a comparison of bytes could show the fault.
    pub undetectable: u64,
    /// Scenarios that ended as none may: the sum of the next four.
    pub failures: u64,
    /// Calls that did not return within their deadline.
    pub hangs: u64,
    /// Calls that reported success with wrong bytes.
    pub silent_corruptions: u64,
    /// Scenarios after which something stayed taken, or no new communicator worked.
    pub unrecovered: u64,
    /// Panics.
    pub panics: u64,
    /// Scenarios with one fault in which a call failed with a report.
    pub blamed: u64,
    /// Those of them whose report names the rank of the fault.
    pub blamed_right: u64,
    /// Scenarios with several faults in which a call failed with a report.
    pub blamed_several: u64,
    /// Those of them whose report names the rank of one of the faults.
    pub blamed_one_of_several: u64,
    /// Scenarios in which a slow rank was said to have stopped.
    pub false_deaths: u64,
    /// Sum of the digests of all scenarios, as they come: the same for the same seeds.
    pub digest: u64,
    /// Faults put in, by kind.
    pub faults: BTreeMap<&'static str, u64>,
    /// Scenarios in which a fault struck an operation in a phase, by [`Cell`](crate::faults::Cell).
    pub cells: BTreeMap<String, u64>,
    /// What the cache of a kernel did, by name, for each launch that was carried out.
    pub cache: BTreeMap<&'static str, u64>,
    /// Digests of the outputs of one life: of each operation one, whatever the schedule. At most ten.
    pub outputs: BTreeSet<(usize, u64)>,
    /// Longest time from the start of a failed call to its report, virtual seconds.
    pub slowest_notice_s: f64,
    /// Time it took, seconds.
    pub elapsed_s: f64,
    /// Seeds per second and thread.
    pub seeds_per_second: f64,
    /// The one that failed of the first seed of which one did.
    #[serde(skip)]
    pub first_failed: Option<Scenario>,
    /// The first seeds that failed, with what happened, at most ten.
    pub first_failures: Vec<(u64, String)>,
    /// The first seeds whose report blames a rank wrongly, at most ten.
    pub first_misblamed: Vec<(u64, String)>,
}

/// Most seeds kept of each kind of trouble.
const KEPT: usize = 10;

impl Totals {
    fn count(&mut self, scenario: &Scenario, played: &Played) {
        self.seeds += 1;
        // 53 bits, so that every reader of JSON gets them whole.
        self.digest = self.digest.wrapping_add(played.digest) & ((1 << 53) - 1);
        for fault in &scenario.faults {
            *self.faults.entry(fault.kind.name()).or_default() += 1;
        }
        for cell in &played.course.cells {
            *self.cells.entry(cell.to_string()).or_default() += 1;
        }
        for (outcome, count) in &played.course.cache {
            *self.cache.entry(outcome).or_default() += count;
        }
        if scenario.given.life.is_some() {
            self.outputs.extend(played.course.outputs.iter().copied());
        }
        match &played.verdict {
            Verdict::Right => self.right += 1,
            Verdict::Reported(code) => *self.reported.entry(code.0).or_default() += 1,
            Verdict::Undetectable => self.undetectable += 1,
            Verdict::Hang(_) => self.hangs += 1,
            Verdict::Silent(_) => self.silent_corruptions += 1,
            Verdict::Unrecovered(_) => self.unrecovered += 1,
            Verdict::Panic(_) => self.panics += 1,
        }
        if played.verdict.is_failure() {
            self.failures += 1;
            let text = format!("{}: {}", played.verdict.name(), played.verdict.detail());
            self.first_failures.push((scenario.seed, text));
            self.keep_failed(Some(scenario.clone()));
        }
        self.false_deaths += u64::from(played.blame == Blame::FalseDeath);
        if played.blame != Blame::None {
            let right = u64::from(played.blame == Blame::Right);
            if scenario.faults.len() == 1 {
                self.blamed += 1;
                self.blamed_right += right;
            } else {
                self.blamed_several += 1;
                self.blamed_one_of_several += right;
            }
            self.slowest_notice_s = self.slowest_notice_s.max(played.course.noticed.as_secs_f64());
        }
        if matches!(played.blame, Blame::Wrong | Blame::FalseDeath) {
            self.first_misblamed.push((scenario.seed, format!("{scenario}\n{}", played.report)));
        }
        self.trim();
    }

    fn add(&mut self, other: Self) {
        for (ours, theirs) in [
            (&mut self.seeds, other.seeds),
            (&mut self.right, other.right),
            (&mut self.undetectable, other.undetectable),
            (&mut self.failures, other.failures),
            (&mut self.hangs, other.hangs),
            (&mut self.silent_corruptions, other.silent_corruptions),
            (&mut self.unrecovered, other.unrecovered),
            (&mut self.panics, other.panics),
            (&mut self.blamed, other.blamed),
            (&mut self.blamed_right, other.blamed_right),
            (&mut self.blamed_several, other.blamed_several),
            (&mut self.blamed_one_of_several, other.blamed_one_of_several),
            (&mut self.false_deaths, other.false_deaths),
        ] {
            *ours += theirs;
        }
        self.digest = self.digest.wrapping_add(other.digest) & ((1 << 53) - 1);
        for (code, count) in other.reported {
            *self.reported.entry(code).or_default() += count;
        }
        for (kind, count) in other.faults {
            *self.faults.entry(kind).or_default() += count;
        }
        for (cell, count) in other.cells {
            *self.cells.entry(cell).or_default() += count;
        }
        for (outcome, count) in other.cache {
            *self.cache.entry(outcome).or_default() += count;
        }
        self.outputs.extend(other.outputs);
        self.slowest_notice_s = self.slowest_notice_s.max(other.slowest_notice_s);
        self.keep_failed(other.first_failed);
        self.first_failures.extend(other.first_failures);
        self.first_misblamed.extend(other.first_misblamed);
        self.trim();
    }

    fn keep_failed(&mut self, other: Option<Scenario>) {
        let own = self.first_failed.take();
        self.first_failed = own.into_iter().chain(other).min_by_key(|scenario| scenario.seed);
    }

    fn trim(&mut self) {
        for list in [&mut self.first_failures, &mut self.first_misblamed] {
            if list.len() > KEPT {
                list.sort();
                list.truncate(KEPT);
            }
        }
        while self.outputs.len() > KEPT {
            self.outputs.pop_last();
        }
    }
}

/// Plays the scenarios of a range of seeds on some threads, at least one; `progress` is told how many are done, now and
/// then. Stops early, after the seeds under way, when `enough` time has passed.
pub fn many(
    seeds: Range<u64>,
    limits: &Limits,
    threads: usize,
    enough: Option<Duration>,
    progress: &(dyn Fn(u64) + Sync),
) -> Totals {
    const AT_A_TIME: u64 = 16;
    let started = Instant::now();
    let next = AtomicU64::new(seeds.start);
    let totals = Mutex::new(Totals::default());
    let work = || {
        let mut own = Totals::default();
        loop {
            let first = next.fetch_add(AT_A_TIME, Ordering::Relaxed);
            if first >= seeds.end || enough.is_some_and(|enough| started.elapsed() > enough) {
                break;
            }
            for seed in first..seeds.end.min(first.saturating_add(AT_A_TIME)) {
                let scenario = Scenario::new(seed, limits);
                own.count(&scenario, &play(&scenario));
            }
            progress(first - seeds.start);
        }
        if let Ok(mut totals) = totals.lock() {
            totals.add(own);
        }
    };
    let threads = threads.max(1);
    thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(work);
        }
        work();
    });
    finish(totals.into_inner().unwrap_or_default(), started, threads)
}

/// Plays a range of seeds with the fault at event 1, 2, 3 and so on of the operation, as long as it has events.
pub fn at_each_event(seeds: Range<u64>, limits: &Limits, threads: usize) -> Totals {
    let started = Instant::now();
    let totals = Mutex::new(Totals::default());
    let threads = threads.max(1);
    for seed in seeds {
        let (next, ended) = (AtomicU64::new(1), AtomicBool::new(false));
        let work = || {
            let mut own = Totals::default();
            while !ended.load(Ordering::Relaxed) {
                let event = next.fetch_add(1, Ordering::Relaxed);
                let mut scenario = Scenario::new(seed, limits);
                scenario.faults.iter_mut().for_each(|fault| fault.at = Some(Moment::Event(event)));
                let played = play(&scenario);
                if played.course.cells.is_empty() {
                    ended.store(true, Ordering::Relaxed);
                } else {
                    own.count(&scenario, &played);
                }
            }
            if let Ok(mut totals) = totals.lock() {
                totals.add(own);
            }
        };
        thread::scope(|scope| {
            (1..threads).for_each(|_| {
                scope.spawn(work);
            });
            work();
        });
    }
    finish(totals.into_inner().unwrap_or_default(), started, threads)
}

fn finish(mut totals: Totals, started: Instant, threads: usize) -> Totals {
    totals.elapsed_s = started.elapsed().as_secs_f64();
    totals.seeds_per_second = totals.seeds as f64 / totals.elapsed_s.max(1e-9) / threads as f64;
    totals.first_failures.sort();
    totals.first_misblamed.sort();
    totals
}

/// Returns the smallest scenario found that fails in the same way: fewer faults, operations, elements, ranks.
#[must_use]
pub fn minimized(scenario: &Scenario) -> Scenario {
    let kind = play(scenario).verdict.name();
    let mut best = scenario.clone();
    loop {
        let smaller = smaller(&best).into_iter().find(|smaller| play(smaller).verdict.name() == kind);
        match smaller {
            Some(smaller) => best = smaller,
            None => return best,
        }
    }
}

/// Scenarios that are smaller in one respect, the greatest steps first.
fn smaller(scenario: &Scenario) -> Vec<Scenario> {
    let mut list = Vec::new();
    for index in 0..scenario.faults.len() {
        let mut faults = scenario.faults.clone();
        faults.remove(index);
        list.push(Scenario { faults, ..scenario.clone() });
    }
    let limited = |limits: &Limits| {
        let Scenario { parts, ranks, devices_per_server, .. } = Scenario::new(scenario.seed, limits);
        Scenario { parts, ranks, devices_per_server, ..scenario.clone() }
    };
    let count = scenario.parts.iter().map(|part| part.operation.count).max().unwrap_or(0);
    let given = scenario.given;
    let limits = Limits { ranks: Some(scenario.ranks), count: Some(count), given, ..Limits::default() };
    let operations = scenario.parts.len();
    let limits = Limits { operations: Some(operations), ..limits };
    if operations > 1 {
        list.push(limited(&Limits { operations: Some(operations - 1), ..limits.clone() }));
    }
    if count > 1 {
        list.push(limited(&Limits { count: Some(count / 2), ..limits.clone() }));
    }
    if scenario.ranks > 2 {
        list.push(limited(&Limits { ranks: Some(scenario.ranks - 1), ..limits }));
    }
    list
}
