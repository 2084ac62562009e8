//! Faults that can be put into a running NPU.
//!
//! A fault is something silicon does once in a while; each is arranged from outside, at the place named, and happens
//! once. The device has no random fault of its own.

use core::time::Duration;

use wire::{ErrorCode, Sqe, SqeFlags, Wqe};

/// Something that goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The next record of a notify of this NPU is lost on its way, whoever records it.
    DropNotify {
        /// Index into the notify bank.
        notify: u32,
    },
    /// The next transfer of this NPU arrives with a bit of its source token flipped.
    FlipToken,
    /// The NPU stops executing and says nothing.
    Stall,
    /// A queue pair of this NPU goes to its error state.
    BreakQueuePair {
        /// Queue of the queue pair.
        queue: u16,
    },
    /// Something goes wrong at a task.
    At(When, Mishap),
    /// The NPU dies now, AI CPU and all.
    Kill,
    /// NPU and AI CPU stand still from now on for a while.
    Pause(Duration),
    /// From now on every task takes that much longer.
    Slow(Duration),
    /// The link to another NPU is cut now, in both directions.
    CutLink {
        /// The other NPU.
        peer: u32,
    },
}

/// Where an operation stands on a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Its NPU has not been told of any task: no doorbell of the operation has reached it.
    BeforeDoorbell,
    /// Its NPU has been told of some, and has not come to the record of the done notify.
    InFlight,
    /// Everything is executed but that record, or that too, and the host has not collected it.
    Completing,
    /// The host has collected it: what follows is the next operation, or the end of the communicator.
    Teardown,
}

impl Phase {
    /// Every phase, in their order.
    pub const ALL: [Self; 4] = [Self::BeforeDoorbell, Self::InFlight, Self::Completing, Self::Teardown];

    /// Returns the name users type.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::BeforeDoorbell => "before-doorbell",
            Self::InFlight => "in-flight",
            Self::Completing => "completing",
            Self::Teardown => "teardown",
        }
    }
}

/// A task of an NPU. What is `None` matches every task that the [`Mishap`] can happen to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct When {
    /// Sequence of the operation.
    pub operation: Option<u32>,
    /// Step within the algorithm.
    pub step: Option<u16>,
    /// Number within the operation.
    pub task: Option<u32>,
    /// Peer.
    pub peer: Option<u16>,
    /// Where the operation stands when the task is struck.
    pub phase: Option<Phase>,
    /// How many tasks that match are spared first.
    pub spared: u32,
}

/// What goes wrong at a task, as it comes to the head of its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mishap {
    /// The NPU dies, AI CPU and all.
    Kill,
    /// NPU and AI CPU stand still for a while.
    Pause(Duration),
    /// From here on every task takes that much longer.
    Slow(Duration),
    /// The signal that the task sends is lost.
    LoseSignal,
    /// The signal that the task sends comes once more, that much later.
    RepeatSignal(Duration),
    /// The doorbell that announced the task is lost: the queue stays as it was until the next.
    LoseDoorbell,
    /// The task fails with this code.
    Fail(ErrorCode),
    /// A bit of the bytes that the task moves is wrong at the destination; modulo their number.
    FlipBit {
        /// Which.
        bit: u64,
        /// Whether the check code of the link shows it: a link has one, a copy engine has none.
        detected: bool,
    },
    /// The link to the task's peer is cut, in both directions.
    CutLink,
    /// The completion ring says something wrong of the task, which reports its completion.
    Completion(FalseCompletion),
    /// The head of the task's queue is published wrong, the next time or from then on.
    Head(FalseHead),
    /// A bit of the entry is wrong when the device reads it, modulo their number: a neighbour has written into its slot.
    Garble {
        /// Which.
        bit: u32,
    },
}

/// What is wrong with a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FalseCompletion {
    /// It never comes.
    Lost,
    /// It comes twice.
    Twice,
    /// Before it, one comes of the same task of the operation before.
    Old,
    /// Before it, one comes of a task that does not exist.
    Bogus,
}

/// What is wrong with a published head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FalseHead {
    /// It stays where it is until the queue is taken anew, or the NPU repaired.
    Frozen,
    /// Once, it is beyond every entry that there is.
    Beyond,
    /// Once, it is one behind what was published before.
    Back,
}

impl When {
    /// Returns whether a task is meant for a mishap, except for those to be spared.
    pub(crate) fn means(&self, mishap: &Mishap, task: &Sqe) -> bool {
        // CAST: the halves of a task id.
        #[expect(clippy::cast_possible_truncation, reason = "the low half is the task")]
        let (operation, number) = ((task.task >> 32) as u32, task.task as u32);
        let fits = |wanted: Option<u32>, found: u32| wanted.is_none_or(|wanted| wanted == found);
        fits(self.operation, operation)
            && fits(self.task, number)
            && fits(self.step.map(u32::from), u32::from(task.step))
            && fits(self.peer.map(u32::from), u32::from(task.peer))
            && self.phase.is_none_or(|phase| phase == mishap.phase_at(task))
    }
}

impl Mishap {
    /// Returns where the operation of a task stands when this strikes the task, which is not executed yet. A lost doorbell
    /// is one of a phase before: without that of its first task an NPU does not know of an operation.
    pub(crate) const fn phase_at(&self, task: &Sqe) -> Phase {
        const NUMBER: u64 = 0xffff_ffff;
        match self {
            Self::LoseDoorbell if task.task & NUMBER == 0 => Phase::BeforeDoorbell,
            _ if task.opcode == Sqe::RECORD_HOST => Phase::Completing,
            _ => Phase::InFlight,
        }
    }

    /// Returns whether this can happen to a task: a submission entry or a work request, whose labels, opcode and flags
    /// lie at the same places.
    pub(crate) fn can_happen_to(&self, task: &Sqe) -> bool {
        let moves = matches!(task.opcode, Sqe::COPY | Sqe::WRITE | Sqe::READ | Wqe::WRITE | Wqe::READ);
        let notifies = task.flags & SqeFlags::NOTIFY.bits() != 0;
        match self {
            Self::LoseSignal | Self::RepeatSignal(_) => match task.opcode {
                Sqe::RECORD | Sqe::RECORD_PEER | Wqe::RECORD => true,
                Sqe::WRITE | Wqe::WRITE => notifies,
                _ => false,
            },
            // A copy within the NPU goes over no link.
            Self::FlipBit { detected, .. } => moves && (task.opcode != Sqe::COPY || !detected),
            Self::CutLink => task.opcode != Sqe::WAIT && task.peer != Sqe::NO_PEER,
            // A work request has no doorbell of its own, and its ring is read by nobody else.
            Self::LoseDoorbell | Self::Head(_) | Self::Garble { .. } => task.opcode < Wqe::WRITE,
            Self::Completion(_) => task.opcode < Wqe::WRITE && task.flags & SqeFlags::COMPLETE.bits() != 0,
            Self::Kill | Self::Pause(_) | Self::Slow(_) | Self::Fail(_) => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use wire::{Sqe, SqeFlags, Wqe};

    use super::{Mishap, Phase, When};

    #[test]
    fn a_task_is_meant_when_everything_given_fits() {
        let task = Sqe { task: 7 << 32 | 9, step: 3, peer: 5, ..Sqe::default() };
        let exact =
            When { operation: Some(7), step: Some(3), task: Some(9), peer: Some(5), spared: 4, phase: None };
        let means = |when: When| when.means(&Mishap::Kill, &task);
        assert!(means(exact) && means(When::default()));
        for other in [
            When { operation: Some(9), ..exact },
            When { step: Some(2), ..exact },
            When { task: Some(7), ..exact },
            When { peer: Some(0), ..exact },
        ] {
            assert!(!means(other), "{other:?}");
        }
    }

    #[test]
    fn the_phase_of_a_task_is_that_of_its_operation_when_it_is_struck() {
        let task = |number: u64, opcode| Sqe { task: 7 << 32 | number, opcode, ..Sqe::default() };
        let first = task(0, Sqe::WAIT);
        assert_eq!(Mishap::LoseDoorbell.phase_at(&first), Phase::BeforeDoorbell);
        assert_eq!(Mishap::Kill.phase_at(&first), Phase::InFlight);
        assert_eq!(Mishap::LoseDoorbell.phase_at(&task(1, Sqe::COPY)), Phase::InFlight);
        let done = task(9, Sqe::RECORD_HOST);
        assert_eq!(Mishap::LoseDoorbell.phase_at(&done), Phase::Completing);
        let completing = When { phase: Some(Phase::Completing), ..When::default() };
        assert!(completing.means(&Mishap::Kill, &done) && !completing.means(&Mishap::Kill, &first));
    }

    #[test]
    fn a_mishap_happens_only_where_it_can() {
        let entry = |opcode, flags: SqeFlags| Sqe { opcode, flags: flags.bits(), peer: 1, ..Sqe::default() };
        let write = entry(Sqe::WRITE, SqeFlags::NOTIFY);
        let (plain, wait) = (entry(Sqe::WRITE, SqeFlags::empty()), entry(Sqe::WAIT, SqeFlags::empty()));
        let copy = entry(Sqe::COPY, SqeFlags::empty());
        assert!(Mishap::LoseSignal.can_happen_to(&write) && !Mishap::LoseSignal.can_happen_to(&plain));
        assert!(Mishap::CutLink.can_happen_to(&plain) && !Mishap::CutLink.can_happen_to(&wait));
        let flip = |detected| Mishap::FlipBit { bit: 0, detected };
        assert!(flip(true).can_happen_to(&write) && !flip(true).can_happen_to(&wait));
        assert!(flip(false).can_happen_to(&copy) && !flip(true).can_happen_to(&copy));
        let request = entry(Wqe::RECORD, SqeFlags::empty());
        assert!(Mishap::LoseSignal.can_happen_to(&request) && !Mishap::LoseDoorbell.can_happen_to(&request));
    }
}
