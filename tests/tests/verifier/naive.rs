//! The verifier once more, as plainly as can be: every pair of tasks, every element, no cleverness.
//!
//! One schedule gives the pairs of records and waits; which task is ordered before which is a matrix, filled by walking
//! from each task; every pair of accesses is looked at; every element is a text. Both must say the same of any graph.

use std::collections::HashMap;

use graph_verifier::{Goal, Labelled, RankTasks};
use host_launcher::prove::Case;
use task_graph::{ChannelNotify, RegionKind, Span, Task, ThreadId};

use crate::mutants::{ELEMENT, Mistake, Random};
use crate::mutation::{Subject, subjects};
use crate::shapes::{case, proof};

/// A task of a rank in one of two turns; `None` is the user behind it.
#[derive(Clone, Copy)]
struct Item {
    rank: usize,
    turn: usize,
    task: Option<Labelled>,
}

/// An element of a memory: rank, memory, index.
type Element = (usize, usize, u64);

/// What an item touches.
struct Touched {
    reads: Vec<Element>,
    writes: Vec<Element>,
}

/// A graph that is carried out twice.
struct Graph<'a> {
    goal: &'a Goal,
    items: Vec<Item>,
    /// Items of each thread, in order.
    queues: Vec<Vec<usize>>,
    /// The record that each wait takes.
    edges: Vec<(usize, usize)>,
    /// For each notify, its records and waits in the order they came.
    signals: HashMap<String, (Vec<usize>, Vec<usize>)>,
    /// All items in the order of the schedule.
    schedule: Vec<usize>,
}

/// Which notify a task sets or waits for.
fn signal(rank: usize, labelled: &Labelled) -> (Option<String>, Option<String>) {
    let channel =
        |owner: usize, from: usize, notify: ChannelNotify| format!("{owner} from {from} {notify:?}");
    let local = |thread: ThreadId, index: u16| format!("{rank} thread {} {index}", thread.0);
    match labelled.task {
        Task::ChannelRecord { peer, notify } | Task::Write { peer, notify: Some(notify), .. } => {
            (Some(channel(peer as usize, rank, notify)), None)
        }
        Task::ChannelWait { peer, notify } => (None, Some(channel(rank, peer as usize, notify))),
        Task::ThreadRecord { thread, index } => (Some(local(thread, index)), None),
        Task::ThreadWait { index } => (None, Some(local(labelled.thread, index))),
        _ => (None, None),
    }
}

impl<'a> Graph<'a> {
    fn new(goal: &'a Goal, ranks: &[RankTasks], threads: usize) -> Self {
        let mut items = Vec::new();
        let mut queues = vec![Vec::new(); ranks.len() * threads];
        for (rank, tasks) in ranks.iter().enumerate() {
            for turn in 0..2 {
                for task in &tasks.tasks {
                    queues[rank * threads + usize::from(task.thread.0)].push(items.len());
                    items.push(Item { rank, turn, task: Some(*task) });
                }
                queues[rank * threads].push(items.len());
                items.push(Item { rank, turn, task: None });
            }
        }
        Self { goal, items, queues, edges: Vec::new(), signals: HashMap::new(), schedule: Vec::new() }
    }

    /// Carries out one task of one thread after the other, always of the first that can.
    fn run(&mut self) -> Result<(), String> {
        let mut at = vec![0; self.queues.len()];
        let mut set: HashMap<String, usize> = HashMap::new();
        loop {
            let mut moved = false;
            for (queue, place) in at.iter_mut().enumerate() {
                let Some(&item) = self.queues[queue].get(*place) else { continue };
                let names = self.items[item].task.as_ref().map(|task| signal(self.items[item].rank, task));
                let (sets, waits) = names.unwrap_or_default();
                if let Some(name) = waits {
                    let Some(record) = set.remove(&name) else { continue };
                    self.edges.push((record, item));
                    self.signals.entry(name).or_default().1.push(item);
                }
                if let Some(name) = sets {
                    if set.insert(name.clone(), item).is_some() {
                        return Err(format!("{name} is set twice"));
                    }
                    self.signals.entry(name).or_default().0.push(item);
                }
                self.schedule.push(item);
                *place += 1;
                moved = true;
            }
            if !moved {
                break;
            }
        }
        if self.schedule.len() < self.items.len() {
            return Err("stuck".to_owned());
        }
        if set.is_empty() { Ok(()) } else { Err(format!("left over: {set:?}")) }
    }

    /// For each item, which others come after it in every schedule.
    fn order(&self) -> Vec<Vec<bool>> {
        let mut next = vec![Vec::new(); self.items.len()];
        for queue in &self.queues {
            for two in queue.windows(2) {
                next[two[0]].push(two[1]);
            }
        }
        for (record, wait) in &self.edges {
            next[*record].push(*wait);
        }
        let from = |start: usize| {
            let mut after = vec![false; self.items.len()];
            let mut open = vec![start];
            while let Some(item) = open.pop() {
                for &following in &next[item] {
                    if !after[following] {
                        after[following] = true;
                        open.push(following);
                    }
                }
            }
            after
        };
        (0..self.items.len()).map(from).collect()
    }

    fn elements(&self, rank: usize, span: Span) -> Vec<Element> {
        let owner = span.region.peer().map_or(rank, |peer| peer as usize);
        let places = self.goal.in_place(u32::try_from(owner).expect("few ranks"));
        let (memory, base) = match (span.region.kind(), places) {
            (RegionKind::Scratch, _) => (2, 0),
            (RegionKind::Input, Some([input, _])) => (0, input),
            (RegionKind::Input, None) => (1, 0),
            (RegionKind::Output, places) => (0, places.map_or(0, |[_, output]| output)),
        };
        (0..span.len / ELEMENT).map(|index| (owner, memory, (base + span.offset) / ELEMENT + index)).collect()
    }

    /// The user's buffers of a rank: input and output.
    fn user(&self, rank: usize) -> [Vec<Element>; 2] {
        let [input, output] = self.goal.buffers(u32::try_from(rank).expect("few ranks"));
        let of =
            |kind, len| self.elements(rank, Span { region: task_graph::RegionId::own(kind), offset: 0, len });
        [of(RegionKind::Input, input), of(RegionKind::Output, output)]
    }

    fn touched(&self, item: usize) -> Touched {
        let Item { rank, task, .. } = self.items[item];
        let Some(labelled) = task else {
            let [input, output] = self.user(rank);
            return Touched { reads: Vec::new(), writes: [input, output].concat() };
        };
        let (dst, src, reduces) = match labelled.task {
            Task::LocalCopy { dst, src } => (dst, src, false),
            Task::LocalReduce { dst, src, .. } => (dst, src, true),
            Task::Write { dst, src, reduction, .. } | Task::Read { dst, src, reduction, .. } => {
                (dst, src, reduction.is_some())
            }
            _ => return Touched { reads: Vec::new(), writes: Vec::new() },
        };
        let (mut reads, writes) = (self.elements(rank, src), self.elements(rank, dst));
        if reduces {
            reads.extend(&writes);
        }
        Touched { reads, writes }
    }

    fn check_order(&self) -> Result<(), String> {
        let after = self.order();
        for (name, (records, waits)) in &self.signals {
            for (wait, record) in waits.iter().zip(&records[1..]) {
                if !after[*wait][*record] {
                    return Err(format!("{name} may be set twice"));
                }
            }
            for two in waits.windows(2) {
                let queue = self.queues.iter().find(|queue| queue.contains(&two[1])).expect("has a thread");
                let place = queue.iter().position(|item| *item == two[1]).expect("is in it");
                let before = place.checked_sub(1).map(|place| queue[place]);
                if before.is_none_or(|before| before != two[0] && !after[two[0]][before]) {
                    return Err(format!("{name} may be taken by either of two"));
                }
            }
        }
        let touched: Vec<Touched> = (0..self.items.len()).map(|item| self.touched(item)).collect();
        for one in 0..self.items.len() {
            for other in 0..one {
                if after[one][other] || after[other][one] {
                    continue;
                }
                let hits = |a: &[Element], b: &[Element]| a.iter().any(|element| b.contains(element));
                let (a, b) = (&touched[one], &touched[other]);
                if hits(&a.writes, &b.writes) || hits(&a.writes, &b.reads) || hits(&a.reads, &b.writes) {
                    return Err("two tasks race".to_owned());
                }
            }
        }
        Ok(())
    }

    /// The outputs that users find, as texts.
    fn contents(&self) -> Result<Vec<String>, String> {
        let mut held: HashMap<Element, (usize, String)> = HashMap::new();
        let mut found = vec![String::new(); self.items.len()];
        let give = |held: &mut HashMap<Element, (usize, String)>, rank: usize, turn: usize| {
            let [input, output] = self.user(rank);
            for element in output {
                held.remove(&element);
            }
            for (index, element) in input.into_iter().enumerate() {
                held.insert(element, (turn, format!("{rank}:{index}")));
            }
        };
        for rank in 0..self.goal.ranks() as usize {
            give(&mut held, rank, 0);
        }
        for &item in &self.schedule {
            let Item { rank, turn, task } = self.items[item];
            let get = |held: &HashMap<Element, (usize, String)>, element: &Element| match held.get(element) {
                Some((of, text)) if *of == turn => Ok(text.clone()),
                _ => Err("something undefined is read".to_owned()),
            };
            let Some(labelled) = task else {
                let [_, output] = self.user(rank);
                let texts: Result<Vec<_>, _> = output.iter().map(|element| get(&held, element)).collect();
                found[item] = texts?.join(",");
                give(&mut held, rank, turn + 1);
                continue;
            };
            let (dst, src, reduction) = match labelled.task {
                Task::LocalCopy { dst, src } => (dst, src, None),
                Task::LocalReduce { dst, src, reduction } => (dst, src, Some(reduction)),
                Task::Write { dst, src, reduction, .. } | Task::Read { dst, src, reduction, .. } => {
                    (dst, src, reduction)
                }
                _ => continue,
            };
            for (to, from) in self.elements(rank, dst).iter().zip(self.elements(rank, src)) {
                let mut text = get(&held, &from)?;
                if let Some(reduction) = reduction {
                    text = format!("({} {} {text})", get(&held, to)?, reduction.op);
                }
                held.insert(*to, (turn, text));
            }
        }
        let users = (0..self.items.len()).filter(|item| self.items[*item].task.is_none());
        Ok(users.map(|item| found[item].clone()).collect())
    }
}

/// What the outputs must hold, from a sound graph.
fn expected(subject: &Subject) -> Vec<String> {
    let threads = usize::from(subject.machine.threads);
    let mut graph = Graph::new(&subject.graph.goal, &subject.graph.ranks, threads);
    graph.run().expect("sound");
    graph.check_order().expect("sound");
    graph.contents().expect("sound")
}

fn verdict(subject: &Subject, ranks: &[RankTasks], expected: &[String]) -> Result<(), String> {
    let mut graph = Graph::new(&subject.graph.goal, ranks, usize::from(subject.machine.threads));
    graph.run()?;
    graph.check_order()?;
    if graph.contents()? == expected { Ok(()) } else { Err("wrong contents".to_owned()) }
}

/// Compares both on random graphs: up to four mistakes in a sound one. Returns how many were proved and refuted.
fn agree(graphs: u32, seed: u64) -> [u32; 2] {
    use wire::launch::{Algorithm, OpKind, Staging};
    let mut random = Random(seed);
    let tiny = |op, algorithm, staging, ranks| case(op, algorithm, staging, ranks, 2);
    let mut cases = vec![
        tiny(OpKind::AllReduce, Algorithm::Ring, Staging::Scratch, 2),
        tiny(OpKind::AllReduce, Algorithm::MeshTwoShot, Staging::Direct, 2),
        tiny(OpKind::AllReduce, Algorithm::MeshOneShot, Staging::Scratch, 2),
        tiny(OpKind::AllGather, Algorithm::Nhr, Staging::Scratch, 3),
        tiny(OpKind::AllReduce, Algorithm::MeshTwoShot, Staging::Scratch, 3),
    ];
    // Gaps between the blocks of a vector have no text.
    let whole = |case: &Case| case.ranks == 3 && !case.operation.op.has_vector();
    cases.extend(subjects().into_iter().filter(whole));
    let subjects: Vec<_> = cases.iter().map(Subject::new).collect();
    let expected: Vec<_> = subjects.iter().map(expected).collect();
    let mut counts = [0; 2];
    for _ in 0..graphs {
        let index = random.below(subjects.len());
        let seed = random.0;
        let subject = &subjects[index];
        let mut mutant = subject.graph.clone();
        for _ in 0..random.below(5) {
            let mistake = Mistake::ALL[random.below(Mistake::ALL.len())];
            mistake.make(&mut mutant.ranks, subject.machine.threads, &mut random);
        }
        let proved = proof(&subject.machine, &mutant);
        let naive = if subject.is_illegal(&mutant) {
            Err("illegal".to_owned())
        } else {
            verdict(subject, &mutant.ranks, &expected[index])
        };
        assert_eq!(proved.is_ok(), naive.is_ok(), "{:?} seed {seed:#x}\n{proved:?}\n{naive:?}", cases[index]);
        counts[usize::from(proved.is_err())] += 1;
    }
    counts
}

#[test]
fn both_say_the_same_of_random_graphs() {
    let [proved, refuted] = agree(3000, 1);
    assert!(proved > 600 && refuted > 1500, "{proved} proved, {refuted} refuted");
}

/// The same at length, for as many as [`asked_for`](crate::asked_for) or 100,000.
#[test]
#[ignore = "minutes; run with --release"]
fn both_say_the_same_of_as_many_random_graphs_as_asked_for() {
    let [proved, refuted] = agree(crate::asked_for(100_000), 2);
    println!("{proved} proved, {refuted} refuted");
}
