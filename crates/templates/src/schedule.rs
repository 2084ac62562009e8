//! Schedules of the step algorithms: who exchanges which slices with whom in each step.
//!
//! A schedule counts *members*: ranks of a group, numbered from the root on (see [`Group`](crate::group::Group)).
//! Facts: `features.md` T1…T10 and `algorithms.md` section 2 of the design documents; NHR's formulas were simulated
//! for 2 to 69 ranks there.

use core::num::NonZero;

use wire::launch::{Algorithm, OpKind};

use crate::slices::SliceSet;

/// What one member does with one other in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Leg {
    /// The other member.
    member: u32,
    /// What [`Schedule::set`] makes the slices from: the first of them, or the member they are counted from.
    first: u32,
}

/// One step of one member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// To whom it sends, and which slices.
    pub(crate) send: Option<(u32, SliceSet)>,
    /// From whom it receives.
    pub(crate) receive: Option<u32>,
}

/// The same with what the slices are made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Legs {
    send: Option<Leg>,
    receive: Option<Leg>,
}

/// A pass over the members: what holds afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pass {
    /// The members above the core, a power of two, have handed everything to the member `core` below.
    FoldIn,
    /// Member m holds slice m, reduced.
    ReduceScatter,
    /// Every member holds all slices, of which member m held slice m.
    AllGather,
    /// The members above the core have everything.
    FoldOut,
    /// Member 0 holds everything, reduced.
    Reduce,
    /// Every member holds everything, which member 0 held.
    Broadcast,
    /// Member m holds slice m, all of which member 0 held.
    Scatter,
    /// Member 0 holds all slices, of which member m held slice m.
    Gather,
}

impl Pass {
    /// Returns the passes of an operation. Those that work on slices come before those that spread them.
    pub(crate) fn of(op: OpKind, algorithm: Algorithm, folded: bool) -> &'static [Self] {
        let whole = algorithm == Algorithm::Tree;
        let chain = algorithm == Algorithm::Ring;
        match op {
            OpKind::AllReduce if whole => &[Self::Reduce, Self::Broadcast],
            OpKind::AllReduce if folded => {
                &[Self::FoldIn, Self::ReduceScatter, Self::AllGather, Self::FoldOut]
            }
            OpKind::AllReduce => &[Self::ReduceScatter, Self::AllGather],
            OpKind::ReduceScatter | OpKind::ReduceScatterV => &[Self::ReduceScatter],
            OpKind::Broadcast if whole || chain => &[Self::Broadcast],
            OpKind::Broadcast => &[Self::Scatter, Self::AllGather],
            OpKind::Reduce if whole || chain => &[Self::Reduce],
            OpKind::Reduce => &[Self::ReduceScatter, Self::Gather],
            OpKind::Scatter => &[Self::Scatter],
            OpKind::Gather => &[Self::Gather],
            _ => &[Self::AllGather],
        }
    }

    /// Returns whether what arrives is reduced into what is there.
    pub(crate) fn reduces(self) -> bool {
        matches!(self, Self::FoldIn | Self::ReduceScatter | Self::Reduce)
    }
}

/// One pass of one member.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schedule {
    algorithm: Algorithm,
    pass: Pass,
    member: u32,
    members: NonZero<u32>,
    /// Slices: the members, of halving-doubling the largest power of two among them.
    core: NonZero<u32>,
    /// Of NHR: slices lie in classes of members that agree in so many low bits, and where this member's is among them:
    /// these bits in reverse.
    class_bits: u32,
    class: u32,
    steps: u32,
}

impl Schedule {
    pub(crate) fn new(algorithm: Algorithm, pass: Pass, member: u32, members: NonZero<u32>) -> Self {
        let core = core(algorithm, members);
        let steps = match (pass, algorithm) {
            (Pass::FoldIn | Pass::FoldOut, _) => 1,
            (Pass::ReduceScatter | Pass::AllGather, Algorithm::Ring) => members.get() - 1,
            (Pass::Reduce | Pass::Broadcast, Algorithm::Ring) => core.get() + members.get() - 2,
            _ => ceil_log2(core),
        };
        Self { algorithm, pass, member, members, core, class_bits: 0, class: 0, steps }
    }

    /// As it is where what the slices are is free, as in an all-reduce: those that a step moves lie together. Of 2^a times
    /// an odd number of members, NHR's first a steps (the last a backwards) move the slices of members that agree in
    /// their low bits, which is what they begin with once these a bits are reversed and go before the others.
    pub(crate) fn of_free_slices(self) -> Self {
        let class_bits = self.members.trailing_zeros();
        let class = self.member.reverse_bits().checked_shr(u32::BITS - class_bits).unwrap_or(0);
        Self { class_bits, class, ..self }
    }

    /// Returns the number of steps.
    pub(crate) fn steps(self) -> u32 {
        self.steps
    }

    /// Returns step `step`.
    #[inline(always)]
    pub(crate) fn step(self, step: u32) -> Step {
        let Legs { send, receive } = self.legs(step);
        Step {
            send: send.map(|leg| (leg.member, self.set(step, leg))),
            receive: receive.map(|leg| leg.member),
        }
    }

    /// Returns the slices that come in step `step`.
    pub(crate) fn received(self, step: u32) -> Option<SliceSet> {
        self.legs(step).receive.map(|leg| self.set(step, leg))
    }

    #[inline(always)]
    fn legs(self, step: u32) -> Legs {
        match (self.pass, self.algorithm) {
            (Pass::ReduceScatter | Pass::AllGather, _) if self.member >= self.core.get() => {
                Legs { send: None, receive: None }
            }
            (Pass::AllGather, Algorithm::Ring | Algorithm::Nb) => self.all_gather(step),
            (Pass::ReduceScatter | Pass::AllGather, _) => self.reduce_scatter(step),
            (Pass::FoldIn, _) => self.fold(),
            (Pass::FoldOut, _) => self.fold().reversed(),
            (Pass::Broadcast, Algorithm::Ring) => self.chain(step, self.member),
            (Pass::Reduce, Algorithm::Ring) => self.chain(step, self.members.get() - 1 - self.member),
            (Pass::Scatter | Pass::Broadcast, _) => self.tree(1 << self.power(step)),
            (Pass::Gather | Pass::Reduce, _) => self.tree(1 << self.power(step)).reversed(),
        }
    }

    /// Returns the slices that a leg of step `step` moves.
    #[inline(always)]
    fn set(self, step: u32, leg: Leg) -> SliceSet {
        let (first, parts) = (leg.first, self.core);
        match (self.pass, self.algorithm) {
            (Pass::ReduceScatter | Pass::AllGather | Pass::Reduce | Pass::Broadcast, Algorithm::Ring) => {
                SliceSet::single(first)
            }
            (Pass::FoldIn | Pass::FoldOut | Pass::Reduce | Pass::Broadcast, _) => {
                SliceSet::Together { first: 0, count: parts.get() }
            }
            (Pass::Scatter | Pass::Gather, _) => {
                let count = (1 << self.power(step)).min(self.members.get() - first);
                SliceSet::Together { first, count }
            }
            (_, Algorithm::HalvingDoubling) => SliceSet::Together { first, count: 1 << self.power(step) },
            (Pass::AllGather, Algorithm::Nb) => {
                let distance = 1 << step;
                let count = (parts.get() - distance).min(distance);
                SliceSet::Stepped { base: 0, first, count, back: parts.get() - 1, parts }
            }
            (_, Algorithm::Nb) => {
                let back = parts.get().saturating_sub(2 << step);
                SliceSet::Stepped { base: 0, first, count: halves(step, parts), back, parts }
            }
            _ => self.spaced(first, self.power(step)),
        }
    }

    /// A reduce-scatter; backwards, an all-gather.
    #[inline(always)]
    fn reduce_scatter(self, step: u32) -> Legs {
        let (member, members) = (self.member, self.core);
        let distance = || 1 << self.power(step);
        let (send, receive) = match self.algorithm {
            Algorithm::Ring => {
                let one = |back| minus(member, back, members);
                ((plus(member, 1, members), one(step + 1)), (minus(member, 1, members), one(step + 2)))
            }
            // Halving: the distance descends from N/2, each time the half that holds the own slice is kept.
            Algorithm::HalvingDoubling => {
                let distance = distance();
                let keep = member & !(distance - 1);
                ((member ^ distance, keep ^ distance), (member ^ distance, keep))
            }
            // As NHR, around the circle the other way.
            Algorithm::Nb => {
                let distance = distance();
                let (to, from) = (plus(member, distance, members), minus(member, distance, members));
                ((to, to), (from, member))
            }
            _ => {
                let distance = distance();
                let (to, from) = (minus(member, distance, members), plus(member, distance, members));
                ((to, to), (from, member))
            }
        };
        if self.pass == Pass::AllGather { both(receive, send) } else { both(send, receive) }
    }

    #[inline(always)]
    fn all_gather(self, step: u32) -> Legs {
        let (member, members) = (self.member, self.core);
        match self.algorithm {
            Algorithm::Ring => {
                let one = |back| minus(member, back, members);
                both((plus(member, 1, members), one(step)), (minus(member, 1, members), one(step + 1)))
            }
            // Bruck: everything held so far goes `distance` back, as far as it is missing there.
            _ => {
                let distance = 1 << step;
                let from = plus(member, distance, members);
                both((minus(member, distance, members), member), (from, from))
            }
        }
    }

    /// The members from the core on hand everything they have to the member `core` below.
    fn fold(self) -> Legs {
        let (member, core) = (self.member, self.core.get());
        let above = member + core;
        Legs {
            send: (member >= core).then(|| Leg { member: member - core, first: 0 }),
            receive: (above < self.members.get()).then_some(Leg { member: above, first: 0 }),
        }
    }

    /// The slices that NHR moves over a distance of 2^`power`: every second one from `first` on in units of the distance. They
    /// lie by their members' low bits in reverse, and by the number above these: whole classes as long as twice the
    /// distance is one of the low bits, then slices of one class.
    #[inline(always)]
    fn spaced(self, first: u32, power: u32) -> SliceSet {
        let Self { member, members, class_bits, class, .. } = self;
        let width = NonZero::new(members.get() >> class_bits).unwrap_or(members);
        match class_bits.checked_sub(power + 1) {
            // Members that are the distance apart differ in the bit of the distance, and above it.
            Some(bits) => {
                let other = u32::from(first != member);
                let class = (class >> bits ^ other) << bits;
                SliceSet::Together { first: class * width.get(), count: width.get() << bits }
            }
            None => SliceSet::Stepped {
                base: class * width.get(),
                first: first >> class_bits,
                count: halves(power, members),
                back: 1 << (power + 1 - class_bits),
                parts: width,
            },
        }
    }

    /// Slice after slice along a chain of all members; `place` is this member's place in it, counted from the source.
    fn chain(self, step: u32, place: u32) -> Legs {
        let slices = self.core.get();
        let leg = |member: Option<u32>, slice: Option<u32>| {
            Some(Leg { member: member?, first: slice.filter(|&slice| slice < slices)? })
        };
        let reducing = self.pass == Pass::Reduce;
        let ahead = (place + 1 < self.members.get()).then_some(());
        let towards = |up: bool| match up != reducing {
            true => self.member.checked_add(1),
            false => self.member.checked_sub(1),
        };
        Legs {
            send: leg(ahead.and_then(|()| towards(true)), step.checked_sub(place)),
            receive: leg((place > 0).then(|| towards(false)).flatten(), (step + 1).checked_sub(place)),
        }
    }

    /// The binomial tree at some distance, away from member 0.
    fn tree(self, distance: u32) -> Legs {
        let (member, members) = (self.member, self.members.get());
        let place = member & (2 * distance - 1);
        let child = member + distance;
        Legs {
            send: (place == 0 && child < members).then_some(Leg { member: child, first: child }),
            receive: (place == distance).then(|| Leg { member: member - distance, first: member }),
        }
    }

    /// The binary logarithm of how far apart those are who exchange in a step, where that doubles or halves from one
    /// step to the next.
    #[inline(always)]
    fn power(self, step: u32) -> u32 {
        let halving = self.algorithm == Algorithm::HalvingDoubling;
        let descends = match self.pass {
            Pass::Scatter | Pass::Broadcast => true,
            Pass::AllGather => !halving,
            Pass::ReduceScatter => halving,
            _ => false,
        };
        if descends { self.steps - 1 - step } else { step }
    }
}

impl Legs {
    /// Returns the legs with what was received sent back.
    fn reversed(self) -> Self {
        Self { send: self.receive, receive: self.send }
    }
}

#[inline]
fn both((to, send): (u32, u32), (from, receive): (u32, u32)) -> Legs {
    Legs { send: Some(Leg { member: to, first: send }), receive: Some(Leg { member: from, first: receive }) }
}

/// Returns the slices that an algorithm works on: one per member, for halving-doubling one per member of its core, the
/// largest power of two.
pub(crate) fn core(algorithm: Algorithm, members: NonZero<u32>) -> NonZero<u32> {
    match algorithm {
        Algorithm::HalvingDoubling => NonZero::new(1 << members.ilog2()).unwrap_or(members),
        _ => members,
    }
}

/// How many slices the NHR step of distance 2^`step` moves: in units of twice the distance, rounded half up.
#[inline]
fn halves(step: u32, parts: NonZero<u32>) -> u32 {
    (parts.get() - 1 + (1 << step)) >> (step + 1)
}

/// The member `distance` (at most `members`) ahead, around the circle.
#[inline]
fn plus(member: u32, distance: u32, members: NonZero<u32>) -> u32 {
    wrapped(member + distance, members)
}

/// The member `distance` (at most `members`) behind, around the circle.
#[inline]
fn minus(member: u32, distance: u32, members: NonZero<u32>) -> u32 {
    wrapped(member + members.get() - distance, members)
}

/// A number below 2 · `members`, modulo `members`.
#[inline]
pub(crate) fn wrapped(number: u32, members: NonZero<u32>) -> u32 {
    number.checked_sub(members.get()).unwrap_or(number)
}

/// Returns ⌈log2 n⌉.
fn ceil_log2(n: NonZero<u32>) -> u32 {
    // One more than the place of the highest bit of n − 1.
    u32::BITS - (n.get() - 1).leading_zeros()
}
