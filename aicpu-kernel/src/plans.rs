//! The plans of one context: a step that repeats is planned once.

use heapless::Vec;
use task_cache::{Key, SlotId};
use templates::{Plan, Shape, SizeClass};
use wire::launch::Launch;

/// Plans kept per context: the operations of a training step that alternate on it.
const KEPT: usize = 8;

/// What an operation touches of its peers' user buffers, bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reach {
    /// Of input and output.
    pub(crate) bytes: [u64; 2],
    /// The one rank that this is about; `None` for all.
    pub(crate) only: Option<u32>,
}

/// Where the graph of a plan was found, or kept, last.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub(crate) key: Key,
    /// What was around the operation: a part of the key that is not of the plan.
    pub(crate) features: u32,
    pub(crate) entry: SlotId,
}

/// A plan, and what follows from it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Planned {
    /// The shape that was asked for, before anybody looked whether the buffers are in place.
    pub(crate) asked: Shape,
    pub(crate) plan: Plan,
    /// As [`Plan::chunks`].
    pub(crate) chunks: u64,
    /// As [`Plan::unit_bytes`].
    pub(crate) unit: u64,
    /// As [`Plan::size_class`].
    pub(crate) class: Option<SizeClass>,
    /// Bytes of this rank's input and output.
    pub(crate) own: [u64; 2],
    pub(crate) reach: Reach,
    pub(crate) found: Option<Found>,
}

impl Planned {
    /// Returns whether a launch on this context asks for the same shape.
    fn is_for(&self, launch: &Launch) -> bool {
        // The rest of a shape follows from these and the context.
        let Shape { op, algorithm, levels, staging, root, count, dtype, reduce, chunk, piece, .. } =
            self.asked;
        (op, algorithm, staging, dtype, reduce, levels)
            == (launch.op, launch.algorithm, launch.staging, launch.dtype, launch.reduce, launch.levels)
            && (root, count, chunk, piece) == (launch.root, launch.count, launch.chunk, launch.piece)
    }
}

/// The plans made last, and the one in use.
#[derive(Debug)]
pub(crate) struct Plans {
    list: Vec<Planned, KEPT>,
    current: usize,
    /// The one that gives way next.
    next: usize,
}

impl Plans {
    pub(crate) const fn new() -> Self {
        Self { list: Vec::new(), current: 0, next: 0 }
    }

    pub(crate) fn clear(&mut self) {
        self.list.clear();
        (self.current, self.next) = (0, 0);
    }

    /// Returns the plan in use: the last that was [taken](Self::take).
    pub(crate) fn current(&self) -> Option<&Planned> {
        self.get(self.current)
    }

    /// Notes where the graph of the plan in use is.
    pub(crate) fn note(&mut self, found: Found) {
        if let Some(planned) = self.list.get_mut(self.current) {
            planned.found = Some(found);
        }
    }

    pub(crate) fn get(&self, at: usize) -> Option<&Planned> {
        self.list.get(at)
    }

    /// Takes a plan into use.
    pub(crate) fn take(&mut self, at: usize) -> Option<&Planned> {
        self.current = at;
        self.current()
    }

    /// Returns where the plan of a launch is; `None` when it is not known. What is attached to the launch is not looked at.
    pub(crate) fn find(&self, launch: &Launch) -> Option<usize> {
        // Most often it is the same as before, or one behind it.
        let mut order = (self.current..self.list.len()).chain(0..self.current);
        order.find(|&at| self.get(at).is_some_and(|planned| planned.is_for(launch)))
    }

    /// Keeps a plan, in the place of the one that was known of the launch where there was one; returns where it is.
    pub(crate) fn keep(&mut self, planned: Planned, known: Option<usize>) -> usize {
        let free = if self.list.is_full() { self.next } else { self.list.len() };
        let at = known.unwrap_or(free);
        match self.list.get_mut(at) {
            Some(place) => *place = planned,
            // There is room.
            None => drop(self.list.push(planned)),
        }
        self.next = (at + 1) % KEPT;
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use templates::Tables;
    use wire::launch::{Algorithm, OpKind, Staging};
    use wire::{DataType, LaunchArgs, ReduceOp};

    fn launch(count: u64) -> Launch {
        let args = LaunchArgs {
            blocks: 1,
            op: OpKind::AllReduce as u8,
            dtype: DataType::Fp32 as u8,
            algorithm: Algorithm::Ring as u8,
            count,
            timeout_ms: 1,
            ..LaunchArgs::default()
        };
        Launch::parse(&args.sealed()).expect("a launch")
    }

    /// Keeps the plan of a count.
    fn keep(plans: &mut Plans, count: u64, in_place: bool) -> usize {
        let launch = launch(count);
        let asked = Shape {
            op: launch.op,
            algorithm: launch.algorithm,
            levels: launch.levels,
            staging: launch.staging,
            rank: 0,
            ranks: 4,
            root: launch.root,
            count,
            dtype: launch.dtype,
            reduce: launch.reduce,
            scratch_len: 1 << 20,
            threads: 2,
            inline_reduce: true,
            in_place: false,
            chunk: launch.chunk,
            piece: launch.piece,
        };
        let plan = Plan::new(&Shape { in_place, ..asked }, &Tables::default()).expect("a plan");
        let (chunks, unit) = (plan.chunks(), plan.unit_bytes());
        let (own, reach) = ([4 * count; 2], Reach::default());
        let planned = Planned { asked, plan, chunks, unit, class: None, own, reach, found: None };
        plans.keep(planned, plans.find(&launch))
    }

    #[test]
    fn the_last_eight_are_found_each_by_its_own_shape() {
        let mut plans = Plans::new();
        for count in 1..=10 {
            let at = keep(&mut plans, count, false);
            assert_eq!(plans.take(at).map(|planned| planned.own), Some([4 * count; 2]));
        }
        for count in 1..=10 {
            let found = plans.find(&launch(count)).and_then(|at| plans.get(at));
            assert_eq!(found.map(|planned| planned.plan.shape().count), (count > 2).then_some(count));
        }
        plans.clear();
        assert_eq!(plans.find(&launch(10)), None);
    }

    #[test]
    fn a_shape_that_turns_out_to_be_in_place_takes_the_place_of_the_other() {
        let mut plans = Plans::new();
        let apart = keep(&mut plans, 7, false);
        let other = keep(&mut plans, 8, false);
        let in_place = keep(&mut plans, 7, true);
        assert_eq!((apart, plans.find(&launch(8))), (in_place, Some(other)));
        assert_eq!(plans.take(in_place).map(|planned| planned.plan.shape().in_place), Some(true));
    }

    #[test]
    fn a_launch_that_differs_in_anything_that_a_shape_has_is_another() {
        let mut plans = Plans::new();
        keep(&mut plans, 7, false);
        let same = launch(7);
        assert!(plans.find(&Launch { timeout_ms: 9, sequence: 3, ..same }).is_some());
        let others = [
            Launch { op: OpKind::AllGather, ..same },
            Launch { dtype: DataType::Int32, ..same },
            Launch { reduce: ReduceOp::Max, ..same },
            Launch { algorithm: Algorithm::Nhr, ..same },
            Launch { staging: Staging::Direct, ..same },
            Launch { levels: [Some(Algorithm::Ring), None, None, None], ..same },
            Launch { root: 1, ..same },
            Launch { count: 8, ..same },
            Launch { chunk: 1, ..same },
            Launch { piece: 1, ..same },
        ];
        assert!(others.iter().all(|other| plans.find(other).is_none()));
    }
}
