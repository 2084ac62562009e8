//! The kinds of faults there are, and what to expect of each.

use core::time::Duration;

use device_model::fault::{FalseCompletion, FalseHead, Phase};
use serde::{Serialize, Serializer};
use wire::ErrorCode;

use super::{Argument, Kind};

/// What users are told of a kind.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct KindInfo {
    /// Name.
    pub name: &'static str,
    /// What it can be told besides `rank`, with the default.
    pub settings: &'static str,
    /// Whether it happens at a task, which `@…` chooses.
    pub at_task: bool,
    /// In which phases of an operation it can strike.
    #[serde(serialize_with = "names")]
    pub phases: &'static [Phase],
    /// What happens.
    pub what: &'static str,
    /// How it is noticed.
    pub noticed: &'static str,
}

fn names<S: Serializer>(phases: &&[Phase], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(phases.iter().map(|phase| phase.name()))
}

/// All kinds.
pub const KINDS: &[KindInfo] = &[
    KindInfo {
        name: "kill",
        settings: "",
        at_task: true,
        phases: &Phase::ALL,
        what: "the NPU of the rank dies, AI CPU and all",
        noticed: "at the deadline: the rank does not execute",
    },
    KindInfo {
        name: "pause",
        settings: "us=100000",
        at_task: true,
        phases: &Phase::ALL,
        what: "NPU and AI CPU of the rank stand still for that many microseconds",
        noticed: "not at all, unless it lasts beyond the deadline",
    },
    KindInfo {
        name: "slow",
        settings: "us=100",
        at_task: true,
        phases: &Phase::ALL,
        what: "from the task on, every task of the rank takes that many microseconds more",
        noticed: "not at all, unless the operation lasts beyond the deadline: then as slow, not as dead",
    },
    KindInfo {
        name: "drop-notify",
        settings: "",
        at_task: true,
        phases: &[Phase::InFlight],
        what: "a signal that the rank sends is lost",
        noticed: "at the deadline: sent and not got",
    },
    KindInfo {
        name: "duplicate-notify",
        settings: "us=10",
        at_task: true,
        phases: &[Phase::InFlight],
        what: "a signal that the rank sends comes a second time, that many microseconds later",
        noticed: "by a signal that nobody has waited for, or as one recorded twice",
    },
    KindInfo {
        name: "lose-doorbell",
        settings: "",
        at_task: true,
        phases: &[Phase::BeforeDoorbell, Phase::InFlight, Phase::Completing],
        what: "the doorbell that announced the task is lost",
        noticed: "not at all: it is rung again after 1 s or half the deadline; lost twice, at the deadline",
    },
    KindInfo {
        name: "fail",
        settings: "code=5203",
        at_task: true,
        phases: &[Phase::InFlight, Phase::Completing],
        what: "the task fails with that code",
        noticed: "at once, by its completion",
    },
    KindInfo {
        name: "flip-bit",
        settings: "bit=0,silent=0",
        at_task: true,
        phases: &[Phase::InFlight],
        what: "a bit is wrong where the task has moved bytes to; silent: behind the check code of the link",
        noticed: "at once, by the check code of the link; silent: by nobody but who compares the result",
    },
    KindInfo {
        name: "cut-link",
        settings: "",
        at_task: true,
        phases: &Phase::ALL,
        what: "the link to the task's peer is cut, in both directions",
        noticed: "at once, by the completion of the next task that needs it",
    },
    KindInfo {
        name: "completion",
        settings: "what=lost",
        at_task: true,
        phases: &[Phase::Completing],
        what: "the completion that the task reports is lost, comes twice, or behind one that is old or bogus",
        noticed: "not at all: nothing waits for a completion, and one that nobody has asked for is counted and left",
    },
    KindInfo {
        name: "head",
        settings: "what=frozen",
        at_task: true,
        phases: &[Phase::InFlight, Phase::Completing],
        what: "the head of the task's queue stays frozen, or is once published beyond all entries or going back",
        noticed: "once the kernel needs the room: frozen, at the deadline; beyond or back, at once",
    },
    KindInfo {
        name: "garble",
        settings: "bit=320",
        at_task: true,
        phases: &[Phase::InFlight, Phase::Completing],
        what: "that bit of the task's ring entry is wrong, as if a neighbour had written there (320 to 383: its tokens)",
        noticed: "at once where the entry means nothing then, or names no memory; else as what it means",
    },
    KindInfo {
        name: "mismatch",
        settings: "what=count",
        at_task: false,
        phases: &[Phase::BeforeDoorbell],
        what: "the rank launches with another count, dtype or reduce than the others",
        noticed: "when the operation is done, or at the deadline: ranks differ",
    },
    KindInfo {
        name: "absent",
        settings: "",
        at_task: false,
        phases: &[Phase::BeforeDoorbell],
        what: "the rank does not launch the operation",
        noticed: "at the deadline: not started",
    },
    KindInfo {
        name: "abort",
        settings: "us=10",
        at_task: false,
        phases: &Phase::ALL,
        what: "the host aborts the communicator, that many microseconds after the launches; the rank does not matter",
        noticed: "by every rank, at once",
    },
    KindInfo {
        name: "suspend",
        settings: "us=10",
        at_task: false,
        phases: &Phase::ALL,
        what: "the host suspends the communicator, that many microseconds after the launches, resumes it and repeats",
        noticed: "not at all",
    },
    KindInfo {
        name: "exhaust",
        settings: "nth=1",
        at_task: false,
        phases: &[Phase::BeforeDoorbell],
        what: "the driver of the rank finds no memory at the n-th request",
        noticed: "at once, by the call that needs it; nothing stays taken",
    },
];

impl Kind {
    /// Returns the name users type.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kill => "kill",
            Self::Pause(_) => "pause",
            Self::Slow(_) => "slow",
            Self::DropNotify => "drop-notify",
            Self::DuplicateNotify(_) => "duplicate-notify",
            Self::LoseDoorbell => "lose-doorbell",
            Self::Fail(_) => "fail",
            Self::FlipBit { .. } => "flip-bit",
            Self::CutLink => "cut-link",
            Self::Completion(_) => "completion",
            Self::Head(_) => "head",
            Self::Garble(_) => "garble",
            Self::Mismatch(_) => "mismatch",
            Self::Absent => "absent",
            Self::Abort(_) => "abort",
            Self::Suspend(_) => "suspend",
            Self::Exhaust(_) => "exhaust",
        }
    }

    /// Returns what users are told of it.
    #[must_use]
    pub fn info(self) -> Option<&'static KindInfo> {
        KINDS.iter().find(|info| info.name == self.name())
    }

    /// Returns the kind of that name with the settings that [`KINDS`] gives as default.
    pub(super) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "kill" => Self::Kill,
            "pause" => Self::Pause(Duration::from_millis(100)),
            "slow" => Self::Slow(Duration::from_micros(100)),
            "drop-notify" => Self::DropNotify,
            "duplicate-notify" => Self::DuplicateNotify(Duration::from_micros(10)),
            "lose-doorbell" => Self::LoseDoorbell,
            "fail" => Self::Fail(ErrorCode::DMA_TOKEN),
            "flip-bit" => Self::FlipBit { bit: 0, silent: false },
            "cut-link" => Self::CutLink,
            "completion" => Self::Completion(FalseCompletion::Lost),
            "head" => Self::Head(FalseHead::Frozen),
            "garble" => Self::Garble(320),
            "mismatch" => Self::Mismatch(Argument::Count),
            "absent" => Self::Absent,
            "abort" => Self::Abort(Duration::from_micros(10)),
            "suspend" => Self::Suspend(Duration::from_micros(10)),
            "exhaust" => Self::Exhaust(1),
            _ => return None,
        })
    }
}
