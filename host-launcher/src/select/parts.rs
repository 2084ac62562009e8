//! A modelled time and what it is made of.

use core::ops::{Add, Mul};

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use super::profile::Time;

/// How many parts there are.
const PARTS: usize = 9;

/// One part of a time: a stage that may limit an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Part {
    /// Waiting for what is under way inside a server.
    HccsLatency = 0,
    /// Waiting for what is under way between servers.
    RoceLatency = 1,
    /// The same over the unified bus.
    UbLatency = 2,
    /// Bytes inside a server.
    HccsBytes = 3,
    /// Bytes between servers.
    RoceBytes = 4,
    /// The same over the unified bus.
    UbBytes = 5,
    /// Copies within devices.
    Copies = 6,
    /// Reductions.
    Reductions = 7,
    /// Tasks, beside their bytes.
    Tasks = 8,
}

impl Part {
    /// Every part.
    pub const ALL: [Self; PARTS] = [
        Self::HccsLatency,
        Self::RoceLatency,
        Self::UbLatency,
        Self::HccsBytes,
        Self::RoceBytes,
        Self::UbBytes,
        Self::Copies,
        Self::Reductions,
        Self::Tasks,
    ];

    /// Returns the name users read.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::HccsLatency => "latency inside servers (HCCS)",
            Self::RoceLatency => "latency between servers (RoCE)",
            Self::UbLatency => "latency between servers (UB)",
            Self::HccsBytes => "bytes inside servers (HCCS)",
            Self::RoceBytes => "bytes between servers (RoCE)",
            Self::UbBytes => "bytes between servers (UB)",
            Self::Copies => "copies within devices",
            Self::Reductions => "reductions",
            Self::Tasks => "handling of tasks",
        }
    }

    /// The latency of a link class.
    pub(crate) const fn latency(link: u8) -> Self {
        match link {
            0 => Self::HccsLatency,
            1 => Self::RoceLatency,
            _ => Self::UbLatency,
        }
    }

    /// The bytes of a link class.
    pub(crate) const fn bytes(link: u8) -> Self {
        match link {
            0 => Self::HccsBytes,
            1 => Self::RoceBytes,
            _ => Self::UbBytes,
        }
    }
}

/// A time as the sum of its parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parts([Time; PARTS]);

impl Parts {
    /// Returns one part.
    #[must_use]
    pub const fn of(&self, part: Part) -> Time {
        self.0[part as usize]
    }

    /// Returns these parts and some more of one.
    #[must_use]
    pub fn with(mut self, part: Part, time: Time) -> Self {
        let place = &mut self.0[part as usize];
        *place = place.saturating_add(time);
        self
    }

    /// Returns the sum.
    #[must_use]
    pub fn total(&self) -> Time {
        self.0.iter().fold(0, |sum, part| sum.saturating_add(*part))
    }

    /// Returns the part that does not depend on the number of bytes.
    #[must_use]
    pub fn latency(&self) -> Time {
        let [hccs, roce, ub, _, _, _, _, _, tasks] = self.0;
        [hccs, roce, ub, tasks].into_iter().fold(0, Time::saturating_add)
    }

    /// Returns the part in which bytes are moved.
    #[must_use]
    pub fn bandwidth(&self) -> Time {
        let [_, _, _, hccs, roce, ub, copies, _, _] = self.0;
        [hccs, roce, ub, copies].into_iter().fold(0, Time::saturating_add)
    }

    /// Returns the part in which bytes are reduced.
    #[must_use]
    pub const fn reduce(&self) -> Time {
        self.of(Part::Reductions)
    }

    /// Returns the largest part: the stage that limits; `None` of no time at all.
    #[must_use]
    pub fn limit(&self) -> Option<Part> {
        Part::ALL.into_iter().rev().max_by_key(|part| self.of(*part)).filter(|part| self.of(*part) > 0)
    }
}

impl Add for Parts {
    type Output = Self;

    fn add(mut self, other: Self) -> Self {
        for (own, more) in self.0.iter_mut().zip(other.0) {
            *own = own.saturating_add(more);
        }
        self
    }
}

impl Mul<u64> for Parts {
    type Output = Self;

    fn mul(mut self, times: u64) -> Self {
        self.0.iter_mut().for_each(|part| *part = part.saturating_mul(times));
        self
    }
}

/// Microseconds by name, parts of no time left out.
impl Serialize for Parts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for part in Part::ALL.into_iter().filter(|part| self.of(*part) > 0) {
            map.serialize_entry(part.name(), &micros(self.of(part)))?;
        }
        map.end()
    }
}

/// Returns a time in microseconds.
#[must_use]
pub fn micros(time: Time) -> f64 {
    // Both halves are exact; what is lost is below a femtosecond.
    let (whole, rest) = (time / 1_000_000_000, time % 1_000_000_000);
    let exact = |part: u64| f64::from(u32::try_from(part).unwrap_or(u32::MAX));
    exact(whole) + exact(rest) / 1e9
}
