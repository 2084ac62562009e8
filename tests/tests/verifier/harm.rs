//! What a graph does to bytes: the reference executor's word on whether a mistake does harm.
//!
//! The operation is carried out twice. In between and behind, the user of each rank takes the output away, fills the
//! input anew and spoils the output, as users do. Reductions are neither commutative nor associative, so that another
//! order is another result.

use aicpu_tests::reference::{Aliases, Stopped, World};
use graph_verifier::{Goal, Labelled, RankTasks};
use task_graph::{RegionId, RegionKind, Span, Task, ThreadId};
use wire::{Phase, Reduction};

use crate::mutants::ELEMENT;

/// An operation of all ranks between plain buffers.
#[derive(Clone, Debug)]
pub(crate) struct Stage {
    goal: Goal,
    scratch: u64,
    in_place: bool,
    expected: Vec<Vec<u8>>,
}

/// dst = dst · src, different for every reduction.
pub(crate) fn combine(reduction: Reduction, dst: &mut [u8], src: &[u8]) {
    for (dst, src) in dst.chunks_exact_mut(8).zip(src.chunks_exact(8)) {
        let (a, b) = (word(dst), word(src));
        let mixed =
            a.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(b).wrapping_add(reduction.op as u64 * 12_345);
        dst.copy_from_slice(&mixed.to_le_bytes());
    }
}

fn word(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("8 bytes"))
}

impl Stage {
    /// Makes the stage of a sound operation, whose results are those of `ranks`.
    pub(crate) fn new(goal: &Goal, scratch: u64, in_place: bool, ranks: &[RankTasks]) -> Self {
        let mut stage = Self { goal: goal.clone(), scratch, in_place, expected: Vec::new() };
        let mut world = stage.world(ranks);
        world.run(0, &combine).expect("a sound operation ends");
        stage.expected = stage.results(&world);
        stage
    }

    /// Whether a task is harm by itself: reaches outside, overlaps itself, writes an input, names what is not there.
    pub(crate) fn is_illegal(
        &self,
        rank: u32,
        threads: u16,
        notifies: [u16; 2],
        labelled: &Labelled,
    ) -> bool {
        let ranks = u32::try_from(self.expected.len()).expect("few ranks");
        let outside = |span: Span| {
            let owner = span.region.peer().unwrap_or(rank);
            let [input, output] = self.goal.buffers(owner);
            let len = [input, output, self.scratch][span.region.kind() as usize];
            owner >= ranks || span.offset + span.len > len || span.len == 0
        };
        let place = |span: Span| match (self.goal.in_place(rank), span.region.kind()) {
            (Some([input, _]), RegionKind::Input) => (RegionKind::Output, input + span.offset),
            (Some([_, output]), RegionKind::Output) => (RegionKind::Output, output + span.offset),
            (_, kind) => (kind, span.offset),
        };
        let of_thread = |thread: ThreadId| notifies[usize::from(thread != ThreadId::MAIN)];
        match labelled.task {
            Task::LocalCopy { dst, src } | Task::LocalReduce { dst, src, .. } => {
                let ((one, a), (other, b)) = (place(dst), place(src));
                let overlap = one == other && a < b + src.len && b < a + dst.len;
                overlap || outside(dst) || outside(src) || dst.region.kind() == RegionKind::Input
            }
            Task::Write { dst, src, .. } | Task::Read { dst, src, .. } => {
                outside(dst) || outside(src) || dst.region.kind() == RegionKind::Input
            }
            Task::ThreadRecord { thread, index } => {
                thread.0 >= threads || index >= of_thread(thread) || thread == labelled.thread
            }
            Task::ThreadWait { index } => index >= of_thread(labelled.thread),
            _ => false,
        }
    }

    /// Returns what goes wrong in the order that `seed` draws, if anything.
    pub(crate) fn run(&self, ranks: &[RankTasks], seed: u64) -> Option<String> {
        let mut world = self.world(ranks);
        match world.run(seed, &combine) {
            Err(stopped) => Some(format!("{stopped:?}")),
            Ok(()) => (self.results(&world) != self.expected).then(|| "wrong bytes".to_owned()),
        }
    }

    /// Returns what goes wrong in any order at all, and how many states there are.
    pub(crate) fn run_every_way(&self, ranks: &[RankTasks], most: usize) -> Result<usize, String> {
        let mut wrong = false;
        let states = self
            .world(ranks)
            .run_every_way(most, &combine, |world| wrong |= self.results(world) != self.expected)
            .map_err(|stopped: Stopped| format!("{stopped:?}"))?;
        if wrong { Err("wrong bytes".to_owned()) } else { Ok(states) }
    }

    /// Scratch of a rank, and behind it: two outputs taken away, a second input, spoilt bytes.
    fn behind(&self, rank: u32) -> [u64; 5] {
        let [input, output] = self.goal.buffers(rank);
        let first = self.scratch;
        [first, first + output, first + 2 * output, first + 2 * output + input, first + 3 * output + input]
    }

    fn world(&self, ranks: &[RankTasks]) -> World {
        let fill = |rank: u32, salt: u64, len: u64| -> Vec<u8> {
            let element = |index: u64| (salt + (u64::from(rank) + 1) * 1_000_003 + index * 97).to_le_bytes();
            (0..len / ELEMENT).flat_map(element).collect()
        };
        let (mut buffers, mut all) = (Vec::new(), Vec::new());
        for (rank, tasks) in (0..).zip(ranks) {
            let [input, output] = self.goal.buffers(rank);
            let [_, _, second, spoilt, end] = self.behind(rank);
            let mut scratch = vec![0xa5; usize::try_from(second).expect("small")];
            scratch.extend(fill(rank, 777, input));
            scratch.resize(usize::try_from(end).expect("small"), 0x5a);
            assert!(spoilt <= end);
            buffers.push([
                fill(rank, 0, input),
                vec![0xdb; usize::try_from(output).expect("small")],
                scratch,
            ]);
            let mut composed = Vec::new();
            for turn in 0..2 {
                composed.extend_from_slice(&tasks.tasks);
                composed.extend(self.user(rank, turn));
            }
            all.push(composed);
        }
        World::new(&buffers, &all, if self.in_place { Aliases::InPlace } else { Aliases::Apart })
    }

    /// What the user of a rank does after the operation.
    fn user(&self, rank: u32, turn: usize) -> impl Iterator<Item = Labelled> {
        let [input, output] = self.goal.buffers(rank);
        let behind = self.behind(rank);
        let own = |kind, offset, len| Span { region: RegionId::own(kind), offset, len };
        let taken = own(RegionKind::Scratch, behind[turn], output);
        let results = own(RegionKind::Output, 0, output);
        let spoilt = own(RegionKind::Scratch, behind[3], output);
        let (to, from) = (own(RegionKind::Input, 0, input), own(RegionKind::Scratch, behind[2], input));
        let tasks = [(taken, results), (results, spoilt), (to, from)];
        tasks.into_iter().filter(|(dst, _)| dst.len > 0).map(|(dst, src)| Labelled {
            thread: ThreadId::MAIN,
            phase: Phase::Finish,
            step: 0,
            task: Task::LocalCopy { dst, src },
        })
    }

    /// The outputs that the users took away.
    fn results(&self, world: &World) -> Vec<Vec<u8>> {
        let taken = |rank: usize| {
            let [first, _, end, ..] = self.behind(u32::try_from(rank).expect("few ranks"));
            let range = usize::try_from(first).expect("small")..usize::try_from(end).expect("small");
            world.buffer(rank, RegionKind::Scratch)[range].to_vec()
        };
        (0..self.goal_ranks()).map(taken).collect()
    }

    fn goal_ranks(&self) -> usize {
        self.goal.ranks() as usize
    }
}
