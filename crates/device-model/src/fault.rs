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
    /// Returns whether a task is meant, except for those to be spared.
    pub(crate) fn means(&self, task: &Sqe) -> bool {
        // CAST: the halves of a task id.
        #[expect(clippy::cast_possible_truncation, reason = "the low half is the task")]
        let (operation, number) = ((task.task >> 32) as u32, task.task as u32);
        let fits = |wanted: Option<u32>, found: u32| wanted.is_none_or(|wanted| wanted == found);
        fits(self.operation, operation)
            && fits(self.task, number)
            && fits(self.step.map(u32::from), u32::from(task.step))
            && fits(self.peer.map(u32::from), u32::from(task.peer))
    }
}

impl Mishap {
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

    use super::{Mishap, When};

    #[test]
    fn a_task_is_meant_when_everything_given_fits() {
        let task = Sqe { task: 7 << 32 | 9, step: 3, peer: 5, ..Sqe::default() };
        let exact = When { operation: Some(7), step: Some(3), task: Some(9), peer: Some(5), spared: 4 };
        assert!(exact.means(&task) && When::default().means(&task));
        for other in [
            When { operation: Some(9), ..exact },
            When { step: Some(2), ..exact },
            When { task: Some(7), ..exact },
            When { peer: Some(0), ..exact },
        ] {
            assert!(!other.means(&task), "{other:?}");
        }
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
