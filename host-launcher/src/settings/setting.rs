//! One setting: the text asked for, the value in force, where it came from and why the two differ.

use std::ffi::OsStr;

use core::fmt;

use wire::ErrorCode;

use super::values::{Fault, Parsed};
use crate::error::{Error, Result};
use crate::quote::quote;

/// Where a value in force came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Nobody asked for anything.
    Default,
    /// The environment variable of the setting's name.
    Environment,
    /// This argument of the command line, such as `--exec-timeout`.
    Argument(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Default => "default",
            Self::Environment => "environment",
            Self::Argument(flag) => flag,
        })
    }
}

impl Origin {
    fn place(self, name: &str) -> String {
        match self {
            Self::Argument(flag) => format!("argument {flag}"),
            Self::Default | Self::Environment => format!("environment variable {name}"),
        }
    }
}

/// One setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting<T> {
    name: &'static str,
    requested: Option<String>,
    value: T,
    origin: Origin,
    reason: Option<String>,
}

impl<T> Setting<T> {
    pub(super) fn new(name: &'static str, value: T) -> Self {
        Self { name, requested: None, value, origin: Origin::Default, reason: None }
    }

    /// Returns the value in force.
    #[must_use]
    pub fn value(&self) -> &T {
        &self.value
    }

    /// Returns the text that was asked for, `None` for the default.
    #[must_use]
    pub fn requested(&self) -> Option<&str> {
        self.requested.as_deref()
    }

    /// Returns where the value came from.
    #[must_use]
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// Returns why the value in force differs from what was asked for, or whom it outranks.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }

    pub(super) fn assign(
        &mut self,
        text: &OsStr,
        origin: Origin,
        parse: fn(&str) -> Parsed<T>,
    ) -> Result<()> {
        let text = utf8(self.name, text, origin)?;
        let (value, reason) = parse(text).map_err(|fault| refusal(self.name, text, origin, fault))?;
        self.replace(text.to_owned(), value, origin, reason);
        Ok(())
    }

    pub(super) fn replace(&mut self, text: String, value: T, origin: Origin, reason: Option<&'static str>) {
        let outranked = self.requested.as_ref().filter(|before| **before != text);
        let outranked = outranked
            .map(|before| format!("outranks {}={} of the {}", self.name, quote(before), self.origin));
        let reasons: Vec<_> = reason.map(str::to_owned).into_iter().chain(outranked).collect();
        self.reason = (!reasons.is_empty()).then(|| reasons.join("; "));
        self.requested = Some(text);
        self.value = value;
        self.origin = origin;
    }

    pub(super) fn row(&self, show: impl Fn(&T) -> String) -> Row {
        Row {
            name: self.name.to_owned(),
            requested: self.requested.clone(),
            effective: show(&self.value),
            origin: self.origin,
            reason: self.reason.clone(),
        }
    }
}

/// One line of [`Settings::report`](super::Settings::report).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Name of the variable.
    pub name: String,
    /// What was asked for.
    pub requested: Option<String>,
    /// What is in force, with its unit; `-` for nothing.
    pub effective: String,
    /// Where it came from.
    pub origin: Origin,
    /// Why it differs from what was asked for.
    pub reason: Option<String>,
}

/// Returns a value as text.
pub(super) fn utf8<'a>(name: &str, text: &'a OsStr, origin: Origin) -> Result<&'a str> {
    text.to_str().ok_or_else(|| {
        let message = format!("{name} is {}, which is not UTF-8", quote(&text.to_string_lossy()));
        Error::new(ErrorCode::ENV_ENCODING, message).at(origin.place(name))
    })
}

/// Says what was found and what was expected.
pub(super) fn refusal(name: &str, text: &str, origin: Origin, fault: Fault) -> Error {
    let message = format!("{name} is {}; expected {}", quote(text), fault.expected);
    Error::new(fault.code, message).at(origin.place(name))
}
