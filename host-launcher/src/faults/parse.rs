//! From `kill:rank=2@step=1` to a fault.

use core::str::FromStr;
use core::time::Duration;

use wire::ErrorCode;

use super::{Argument, COMPLETIONS, Fault, HEADS, KINDS, Kind, Moment};
use device_model::fault::{Phase, When};

impl Fault {
    /// Reads a fault: `KIND[:setting=value,…][@operation=…,step=…,task=…,peer=…,nth=…]`, or
    /// `[@phase=…]`, `[@event=…]` behind the settings.
    ///
    /// # Errors
    /// What is wrong, and what is possible.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (what, at) = text.split_once('@').map_or((text, None), |(what, at)| (what, Some(at)));
        let (name, settings) = what.split_once(':').map_or((what, None), |(name, rest)| (name, Some(rest)));
        let kind = Kind::named(name).ok_or_else(|| {
            let names: Vec<&str> = KINDS.iter().map(|kind| kind.name).collect();
            format!("no fault is named {name:?}; there are {}", names.join(", "))
        })?;
        let mut fault = Self { rank: None, kind, when: When::default(), at: None };
        for (key, value) in settings.into_iter().flat_map(pairs) {
            fault.set(key, value)?;
        }
        for (key, value) in at.into_iter().flat_map(pairs) {
            fault.set_place(key, value)?;
        }
        fault.check_place()?;
        Ok(fault)
    }

    /// Refuses a place where this kind never strikes.
    fn check_place(&self) -> Result<(), String> {
        let (name, info) = (self.kind.name(), self.kind.info());
        let peer = When { peer: self.when.peer, ..When::default() };
        let at_task = info.is_some_and(|info| info.at_task);
        match self.at {
            None if self.when != When::default() && !at_task => {
                Err(format!("{name} happens at no task, so it takes no such @"))
            }
            Some(Moment::Phase(phase)) if info.is_none_or(|info| !info.phases.contains(&phase)) => {
                Err(format!("{name} never strikes in the phase {}", phase.name()))
            }
            Some(Moment::Event(_)) if self.kind.is_of_the_host() || !self.kind.needs_no_task() => {
                Err(format!("{name} happens at no event"))
            }
            Some(_) if self.kind.needs_no_task() && self.when != peer => {
                Err(format!("{name}: a phase or an event is a moment, and needs no task"))
            }
            _ => Ok(()),
        }
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        let micros = || number(key, value).map(Duration::from_micros);
        match (key, &mut self.kind) {
            ("rank", _) => self.rank = Some(number(key, value)?),
            (
                "us",
                Kind::Pause(time)
                | Kind::Slow(time)
                | Kind::DuplicateNotify(time)
                | Kind::Abort(time)
                | Kind::Suspend(time),
            ) => *time = micros()?,
            ("code", Kind::Fail(code)) => {
                *code = ErrorCode(number(key, value)?);
                if code.info().is_none() {
                    return Err(format!("code={value}: there is no such code; docs/errors.md lists them"));
                }
            }
            ("bit", Kind::FlipBit { bit, .. }) => *bit = number(key, value)?,
            ("silent", Kind::FlipBit { silent, .. }) => *silent = number::<u8>(key, value)? != 0,
            ("nth", Kind::Exhaust(nth)) => *nth = number::<u64>(key, value)?.max(1),
            ("what", Kind::Mismatch(what)) => {
                let named = Argument::ALL.into_iter().find(|argument| argument.name() == value);
                *what = named.ok_or_else(|| format!("what={value}: expected count, dtype or reduce"))?;
            }
            ("bit", Kind::Garble(bit)) => *bit = number(key, value)?,
            ("what", Kind::Completion(what)) => *what = named(&COMPLETIONS, value)?,
            ("what", Kind::Head(what)) => *what = named(&HEADS, value)?,
            (_, kind) => return Err(format!("{} has no setting {key:?}", kind.name())),
        }
        Ok(())
    }

    fn set_place(&mut self, key: &str, value: &str) -> Result<(), String> {
        let when = &mut self.when;
        match key {
            "operation" => when.operation = Some(number(key, value)?),
            "step" => when.step = Some(number(key, value)?),
            "task" => when.task = Some(number(key, value)?),
            "peer" => when.peer = Some(number(key, value)?),
            "nth" => when.spared = number::<u32>(key, value)?.saturating_sub(1),
            "phase" => self.at = Some(Moment::Phase(phase(value)?)),
            "event" => self.at = Some(Moment::Event(number(key, value)?)),
            _ => return Err(format!("@{key}: expected operation, step, task, peer, nth, phase or event")),
        }
        Ok(())
    }
}

fn pairs(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.split(',').map(|pair| pair.split_once('=').unwrap_or((pair, "")))
}

fn named<T: Copy>(table: &[(&str, T)], value: &str) -> Result<T, String> {
    let named = table.iter().find(|(name, _)| *name == value);
    named.map(|(_, what)| *what).ok_or_else(|| {
        let names: Vec<&str> = table.iter().map(|(name, _)| *name).collect();
        format!("what={value}: expected {}", names.join(", "))
    })
}

fn phase(value: &str) -> Result<Phase, String> {
    let named = Phase::ALL.into_iter().find(|phase| phase.name() == value);
    named.ok_or_else(|| format!("phase={value}: expected {}", Phase::ALL.map(Phase::name).join(", ")))
}

fn number<T: FromStr>(key: &str, value: &str) -> Result<T, String> {
    value.parse().map_err(|_| format!("{key}={value}: expected a number that fits"))
}

#[cfg(test)]
mod tests {
    use super::{Fault, KINDS};

    #[test]
    fn what_is_printed_is_what_was_read() {
        for text in [
            "kill:rank=2@step=1",
            "pause:us=5",
            "slow:rank=0,us=1000@operation=3",
            "drop-notify:rank=1@step=0,peer=3,nth=4",
            "duplicate-notify:rank=1,us=77@task=12",
            "lose-doorbell:rank=1@nth=2",
            "fail:rank=3,code=5206",
            "flip-bit:rank=3,bit=12,silent=1",
            "flip-bit:rank=3,bit=0@step=2",
            "cut-link@peer=1",
            "completion:rank=1,what=old@nth=3",
            "head:rank=2,what=back@step=1",
            "garble:rank=0,bit=511@task=7",
            "mismatch:rank=1,what=dtype",
            "absent:rank=4294967295",
            "abort:rank=0,us=3",
            "suspend:rank=0,us=300",
            "exhaust:rank=0,nth=3",
            "kill:rank=0@phase=teardown",
            "cut-link:rank=0@peer=2,phase=completing",
            "fail:rank=0,code=5203@nth=2,phase=in-flight",
            "abort:rank=0,us=10@phase=before-doorbell",
            "pause:rank=0,us=7@event=33",
        ] {
            let text = text.replace("pause:us", "pause:rank=9,us");
            assert_eq!(Fault::parse(&text).unwrap().to_string(), text);
        }
        for kind in KINDS {
            let fault = Fault::parse(kind.name).unwrap();
            assert_eq!(Fault::parse(&fault.to_string()), Ok(fault));
            let defaults = kind.settings.split(',').filter(|setting| !setting.is_empty());
            for setting in defaults {
                assert_eq!(Fault::parse(&format!("{}:{setting}", kind.name)), Ok(fault), "{setting}");
            }
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_what_does() {
        for (text, says) in [
            ("", "there are kill, pause"),
            ("kil", "there are kill, pause"),
            ("kill:us=3", "kill has no setting \"us\""),
            ("kill:rank", "rank=: expected a number"),
            ("kill:rank=-1", "rank=-1: expected a number"),
            ("kill@when=3", "expected operation, step"),
            ("fail:code=1", "there is no such code"),
            ("fail:code=99999", "expected a number"),
            ("mismatch:what=root", "expected count, dtype or reduce"),
            ("head:what=lost", "expected frozen, beyond, back"),
            ("garble:bit=x", "expected a number"),
            ("absent@step=1", "takes no such @"),
            ("flip-bit@phase=completing", "flip-bit never strikes in the phase completing"),
            ("absent@phase=in-flight", "never strikes in the phase in-flight"),
            ("kill@phase=late", "expected before-doorbell, in-flight, completing, teardown"),
            ("kill@phase=teardown,nth=2", "needs no task"),
            ("fail@event=3", "fail happens at no event"),
            ("abort@event=3", "abort happens at no event"),
        ] {
            let error = Fault::parse(text).unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
