//! How the hosts of a run behave, and what strikes at moments that only they see.

use core::time::Duration;

use device_model::fault::Phase;
use fastrand::Rng;

use super::{Argument, Kind};
use crate::communicator::Operation;

/// When something strikes that needs no task to strike at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// That long after the launches.
    After(Duration),
    /// When the operation of its rank is there, or soon after.
    Phase(Phase),
    /// Behind that event of the operation, over all ranks, counted from 1.
    Event(u64),
}

/// Something that strikes at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strike {
    /// The rank.
    pub rank: u32,
    /// What strikes it.
    pub kind: Kind,
    /// When.
    pub moment: Moment,
    /// The rank at the other end of a link that is cut; without it the next one.
    pub peer: Option<u32>,
}

/// How the hosts of a run behave.
#[derive(Clone, Debug, Default)]
pub struct Conduct {
    /// Ranks that launch an operation of their own.
    pub mismatches: Vec<(u32, Argument)>,
    /// Ranks that do not launch.
    pub absent: Vec<u32>,
    /// What strikes at moments of the next steps.
    pub moments: Vec<Strike>,
    /// What has struck so far but at tasks, and where the operation of its rank stood.
    pub struck: Vec<(Kind, Phase)>,
    /// Chooses the order of the ranks and the time between their launches; without it they launch at once, by rank.
    pub dice: Option<Rng>,
}

impl Conduct {
    /// Returns the rank that has to be launched last: the one before whose doorbells the host does something.
    #[must_use]
    pub fn launched_last(&self) -> Option<u32> {
        let early = |strike: &&Strike| {
            strike.kind.is_of_the_host() && strike.moment == Moment::Phase(Phase::BeforeDoorbell)
        };
        self.moments.iter().find(early).map(|strike| strike.rank)
    }

    /// Returns what is wrong with what a rank launches.
    #[must_use]
    pub fn fault_of(&self, rank: u32) -> Option<Kind> {
        let wrong = || self.mismatches.iter().find(|(other, _)| *other == rank);
        let absent = self.absent.contains(&rank).then_some(Kind::Absent);
        absent.or_else(|| wrong().map(|(_, argument)| Kind::Mismatch(*argument)))
    }

    /// Returns what a rank launches where the others launch `operation`; `None` for nothing.
    #[must_use]
    pub fn of(&self, rank: u32, operation: &Operation) -> Option<Operation> {
        if self.absent.contains(&rank) {
            return None;
        }
        let wrong = self.mismatches.iter().find(|(other, _)| *other == rank);
        Some(wrong.map_or_else(|| operation.clone(), |(_, argument)| argument.mistaken(operation)))
    }
}
