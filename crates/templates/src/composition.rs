//! Two and three levels: what a level does is a pass of its own algorithm within its groups.
//!
//! Reduce-scatter goes from the innermost level outwards, all-gather back inwards; an all-reduce is both. Outer levels
//! so carry only the slice that a rank holds after the inner ones: an N-th of the data crosses servers, not all of it.
//! A broadcast scatters the root's data outwards in the root's groups, and gathers back inwards.

use core::num::NonZero;

use task_graph::{TaskSink, ThreadId};
use wire::ErrorCode;
use wire::launch::{Algorithm, OpKind};

use crate::division::Division;
use crate::levels::{Level, is_mesh};
use crate::schedule::{Pass, Schedule};
use crate::skeleton::Emitter;
use crate::slices::Slices;
use crate::steps::Lane;

/// Passes of one level on the way out and on the way back.
type Passes = [Option<Pass>; 2];

impl<'a, S: TaskSink> Emitter<'a, S> {
    /// Emits all steps of a composition; returns their number.
    pub(crate) fn run_composition(&mut self) -> Result<u16, ErrorCode> {
        match self.plan.shape().algorithm {
            Algorithm::Ahc => self.servers_of_any_size(),
            Algorithm::Pipeline => self.pipeline(),
            Algorithm::MultiRing => self.rings(),
            _ => self.levels(),
        }
    }

    fn levels(&mut self) -> Result<u16, ErrorCode> {
        let (out, back): (Passes, Passes) = match self.plan.shape().op {
            OpKind::AllReduce => (
                [Some(Pass::FoldIn), Some(Pass::ReduceScatter)],
                [Some(Pass::AllGather), Some(Pass::FoldOut)],
            ),
            OpKind::ReduceScatter | OpKind::ReduceScatterV => ([Some(Pass::ReduceScatter), None], [None; 2]),
            OpKind::Broadcast => ([Some(Pass::Scatter), None], [Some(Pass::AllGather), None]),
            _ => ([None; 2], [Some(Pass::AllGather), None]),
        };
        let levels = self.plan.levels().list;
        let mut step = 0;
        for (index, level) in levels.iter().enumerate() {
            for pass in out.into_iter().flatten() {
                step = self.level(index, level, pass, step)?;
            }
        }
        for (index, level) in levels.iter().enumerate().rev() {
            for pass in back.into_iter().flatten() {
                step = self.level(index, level, pass, step)?;
            }
        }
        Ok(step)
    }

    fn level(&mut self, index: usize, level: &Level, pass: Pass, step: u16) -> Result<u16, ErrorCode> {
        let folding = matches!(pass, Pass::FoldIn | Pass::FoldOut);
        if level.members.get() == 1 || (folding && level.core == level.members) {
            return Ok(step);
        }
        let (shape, levels) = (self.plan.shape(), self.plan.levels());
        let digits = levels.digits(shape.rank, shape.root);
        let mut others = digits.iter().zip(&levels.list).enumerate();
        let takes_part = others.all(|(other, (&digit, level))| match pass {
            // Only what stands in line with the root has anything.
            Pass::Scatter => other <= index || digit == 0,
            // Those folded in further inside have nothing any more.
            _ => other >= index || digit < level.core.get(),
        });
        let group = levels.group(index, shape.rank, shape.root);
        let lane = Lane {
            thread: ThreadId::MAIN,
            group,
            division: self.nested(index, digits),
            work: self.blocks_of_work(),
            landing: self.blocks_of_landing(),
        };
        if !takes_part {
            return Ok(step + steps(level.algorithm, pass, level.members));
        }
        self.group_pass(&lane, level.algorithm, pass, step)
    }

    /// Emits one pass of a group, by mesh or step by step.
    pub(crate) fn group_pass(
        &mut self,
        lane: &Lane<'a>,
        algorithm: Algorithm,
        pass: Pass,
        step: u16,
    ) -> Result<u16, ErrorCode> {
        if is_mesh(algorithm) {
            self.mesh_pass(lane, pass, step)?;
            return Ok(step + 1);
        }
        let member = lane.group.member(self.plan.shape().rank);
        let schedule = Schedule::new(algorithm, pass, member, lane.group.members());
        self.run_pass(lane, schedule, (pass.reduces(), None), step)
    }

    /// The blocks of the work area: parts of what is the same at all ranks, or one block per rank.
    pub(crate) fn blocks_of_work(&self) -> Slices<'a> {
        self.slices(if self.has_blocks() { self.plan.ranks() } else { self.plan.cuts() })
    }

    pub(crate) fn blocks_of_landing(&self) -> Slices<'a> {
        self.landing(if self.has_blocks() { self.plan.ranks() } else { self.plan.cuts() })
    }

    /// The slices of the group of a level: of what the levels further inside have left to this rank.
    pub(crate) fn nested(&self, index: usize, digits: [u32; 3]) -> Division {
        let list = &self.plan.levels().list;
        let in_order = self.has_blocks() && !self.plan.packs();
        let distance = |level: &Level| if in_order { level.stride.get() } else { level.width };
        let first = list.iter().zip(digits).take(index).map(|(level, digit)| distance(level) * digit).sum();
        let level = list.get(index).copied().unwrap_or(Level::ALONE);
        Division::Strided {
            first,
            slice_stride: distance(&level),
            block_stride: if in_order { level.stride.get() * level.members.get() } else { 1 },
            width: level.width,
            slices: level.core,
        }
    }
}

/// Returns the steps of a pass of a group.
fn steps(algorithm: Algorithm, pass: Pass, members: NonZero<u32>) -> u16 {
    let steps = if is_mesh(algorithm) { 1 } else { Schedule::new(algorithm, pass, 0, members).steps() };
    // A ring's are at most as many as ranks.
    u16::try_from(steps).unwrap_or(u16::MAX)
}
