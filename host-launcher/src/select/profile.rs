//! Profiles: what a machine is taken to need for a task, every constant with its source.
//!
//! A profile is a JSON document. Three are built in; `software-npu` is what this program runs on, the others are
//! products it models. Times are nanoseconds and rates gigabytes (10⁹ bytes) per second in the document, and
//! femtoseconds in the model, so that costs of bytes add up without rounding.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};
use wire::ErrorCode;
use wire::npu::Protocol;

use crate::error::{Error, Result, quote_path};

/// Femtoseconds.
pub type Time = u64;

/// The documents of the built-in profiles; the first is the default.
const BUILT_IN: [(&str, &str); 3] = [
    ("software-npu", include_str!("../../profiles/software-npu.json")),
    ("atlas-a2", include_str!("../../profiles/atlas-a2.json")),
    ("atlas-a3", include_str!("../../profiles/atlas-a3.json")),
];

/// A profile as it is written.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// Name, for messages.
    pub name: String,
    /// What it describes, and how far to trust it.
    pub about: String,
    /// Links between ranks.
    pub links: Links,
    /// Work within a device.
    pub local: Local,
    /// What carries tasks out.
    pub engine: Engine,
}

/// A number and where it comes from.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Constant {
    /// The number; the name of its field has the unit.
    pub value: f64,
    /// A public document, a measurement, or "presumed" and why.
    pub source: String,
}

/// The link classes.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Links {
    /// Within a server.
    pub hccs: Link,
    /// Between servers, RDMA over Ethernet.
    pub roce: Link,
    /// Between servers, unified bus.
    pub ub: Link,
}

/// One link class.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// From the last byte leaving to the data, and a notify that goes with it, being there.
    pub latency_ns: Constant,
    /// From a bare notify being set to its being seen.
    pub signal_ns: Constant,
    /// Of a transfer, beside its bytes and what every task takes.
    pub task_ns: Constant,
    /// Of one link.
    pub gigabytes_per_second: Constant,
    /// What shares that rate.
    pub shared_by: Sharing,
}

/// What shares the rate of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sharing {
    /// Each pair of ranks has links of its own.
    Pair,
    /// All links of a rank go through one port.
    Port,
}

/// Work within a device.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Local {
    /// Copies.
    pub copy_gigabytes_per_second: Constant,
    /// Reductions by an engine.
    pub reduce_gigabytes_per_second: Constant,
    /// The same of what a link moves, beside its moving.
    pub link_reduce_gigabytes_per_second: Constant,
    /// Reductions that only the processor can do.
    pub processor_reduce_gigabytes_per_second: Constant,
}

/// What carries tasks out.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Engine {
    /// Of a copy, reduction or transfer, beside its bytes.
    pub task_ns: Constant,
    /// The least that a copy, reduction or transfer takes.
    pub least_task_ns: Constant,
    /// Of setting a notify, or of seeing one.
    pub notify_ns: Constant,
    /// Tasks of all ranks together that run at once; 0 where every thread has an engine of its own.
    pub workers: Constant,
}

/// A profile in the units of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// By [`link_index`].
    pub(crate) links: [LinkCosts; 3],
    pub(crate) copy: Time,
    pub(crate) reduce: Time,
    pub(crate) link_reduce: Time,
    pub(crate) processor_reduce: Time,
    pub(crate) task: Time,
    pub(crate) least_task: Time,
    pub(crate) notify: Time,
    pub(crate) workers: u32,
}

/// A link in the units of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkCosts {
    pub(crate) latency: Time,
    pub(crate) signal: Time,
    pub(crate) task: Time,
    /// Per byte.
    pub(crate) byte: Time,
    pub(crate) port: bool,
}

impl Default for Profile {
    fn default() -> Self {
        let [(name, text), ..] = BUILT_IN;
        Self::parse(text, name).expect("a built-in profile is checked by a test")
    }
}

impl Profile {
    /// Returns the names of the built-in profiles, the default first.
    #[must_use]
    pub fn names() -> Vec<&'static str> {
        BUILT_IN.iter().map(|(name, _)| *name).collect()
    }

    /// Returns a built-in profile, or reads the file of that name.
    ///
    /// # Errors
    /// `PROFILE` for a file that cannot be read, and those of [`parse`](Self::parse).
    pub fn named(name: &str) -> Result<Self> {
        if let Some((_, text)) = BUILT_IN.iter().find(|(known, _)| *known == name) {
            return Self::parse(text, name);
        }
        let path = Path::new(name);
        let text = fs::read_to_string(path).map_err(|error| {
            let message = format!("no profile {}: {error}", quote_path(path));
            let remedy = format!("name a file, or one of: {}", Self::names().join(", "));
            Error::new(ErrorCode::PROFILE, message).remedy(remedy)
        })?;
        Self::parse(&text, &quote_path(path))
    }

    /// Parses a document; `place` is how messages call it.
    ///
    /// # Errors
    /// `PROFILE` for what is no JSON, has a key too many or too few, or a number out of range.
    pub fn parse(text: &str, place: &str) -> Result<Self> {
        let profile: Self = serde_json::from_str(text)
            .map_err(|error| Error::new(ErrorCode::PROFILE, error.to_string()).at(place))?;
        profile.check().map_err(|message| Error::new(ErrorCode::PROFILE, message).at(place))?;
        Ok(profile)
    }

    fn check(&self) -> Result<(), String> {
        let rates = [
            ("links.hccs.gigabytes_per_second", &self.links.hccs.gigabytes_per_second),
            ("links.roce.gigabytes_per_second", &self.links.roce.gigabytes_per_second),
            ("links.ub.gigabytes_per_second", &self.links.ub.gigabytes_per_second),
            ("local.copy_gigabytes_per_second", &self.local.copy_gigabytes_per_second),
            ("local.reduce_gigabytes_per_second", &self.local.reduce_gigabytes_per_second),
            ("local.link_reduce_gigabytes_per_second", &self.local.link_reduce_gigabytes_per_second),
            (
                "local.processor_reduce_gigabytes_per_second",
                &self.local.processor_reduce_gigabytes_per_second,
            ),
        ];
        let times = [
            ("links.hccs.latency_ns", &self.links.hccs.latency_ns),
            ("links.hccs.signal_ns", &self.links.hccs.signal_ns),
            ("links.hccs.task_ns", &self.links.hccs.task_ns),
            ("links.roce.latency_ns", &self.links.roce.latency_ns),
            ("links.roce.signal_ns", &self.links.roce.signal_ns),
            ("links.roce.task_ns", &self.links.roce.task_ns),
            ("links.ub.latency_ns", &self.links.ub.latency_ns),
            ("links.ub.signal_ns", &self.links.ub.signal_ns),
            ("links.ub.task_ns", &self.links.ub.task_ns),
            ("engine.task_ns", &self.engine.task_ns),
            ("engine.least_task_ns", &self.engine.least_task_ns),
            ("engine.notify_ns", &self.engine.notify_ns),
        ];
        let workers = [("engine.workers", &self.engine.workers)];
        // A byte takes at least a femtosecond and at most a microsecond, a latency at most a second.
        let all = rates.into_iter().map(|(name, constant)| (name, constant, 1e-3..=1e6));
        let all = all.chain(times.into_iter().map(|(name, constant)| (name, constant, 0.0..=1e9)));
        let all = all.chain(workers.into_iter().map(|(name, constant)| (name, constant, 0.0..=1e4)));
        for (name, Constant { value, source }, range) in all {
            if !range.contains(value) {
                return Err(format!("{name} is {value}, outside {} to {}", range.start(), range.end()));
            }
            if source.trim().is_empty() {
                return Err(format!("{name} has no source"));
            }
        }
        Ok(())
    }

    /// Returns the constants in the units of the model.
    #[must_use]
    pub fn costs(&self) -> Costs {
        let link = |link: &Link| LinkCosts {
            latency: time(&link.latency_ns),
            signal: time(&link.signal_ns),
            task: time(&link.task_ns),
            byte: byte(&link.gigabytes_per_second),
            port: link.shared_by == Sharing::Port,
        };
        Costs {
            links: [link(&self.links.hccs), link(&self.links.roce), link(&self.links.ub)],
            copy: byte(&self.local.copy_gigabytes_per_second),
            reduce: byte(&self.local.reduce_gigabytes_per_second),
            link_reduce: byte(&self.local.link_reduce_gigabytes_per_second),
            processor_reduce: byte(&self.local.processor_reduce_gigabytes_per_second),
            task: time(&self.engine.task_ns),
            least_task: time(&self.engine.least_task_ns),
            notify: time(&self.engine.notify_ns),
            workers: whole(self.engine.workers.value).try_into().unwrap_or(u32::MAX),
        }
    }
}

/// The place of a link class in tables of them.
pub(crate) fn link_index(protocol: Protocol) -> usize {
    match protocol {
        Protocol::Hccs => 0,
        Protocol::Roce => 1,
        Protocol::Ub => 2,
    }
}

fn time(nanoseconds: &Constant) -> Time {
    whole(nanoseconds.value * 1e6)
}

/// The time of one byte: a gigabyte per second is a nanosecond a byte.
fn byte(gigabytes_per_second: &Constant) -> Time {
    whole(1e6 / gigabytes_per_second.value)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "checked values are within the range"
)]
fn whole(value: f64) -> u64 {
    // CAST: no checked value is negative or above 10^15.
    value.round() as u64
}
