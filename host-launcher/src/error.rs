//! The host's error type: a stable code, what happened, where, and what to do.
//!
//! One type for everything the launcher can refuse or report, so that every message has the same shape and every
//! failure is greppable by its number.

use core::fmt;
use std::path::Path;

use wire::ErrorCode;

use crate::diagnosis::Report;

/// Result of a launcher call.
pub type Result<T, E = Error> = core::result::Result<T, E>;

/// A failure with a stable code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    code: ErrorCode,
    message: String,
    at: Option<String>,
    remedy: Option<String>,
    report: Option<Box<Report>>,
}

impl Error {
    /// Makes an error of `code` that says `message`: what was found and what was expected, values quoted.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), at: None, remedy: None, report: None }
    }

    /// Adds where: a file with line and column, a JSON path, a byte offset, an argument.
    #[must_use]
    pub fn at(mut self, place: impl Into<String>) -> Self {
        self.at = Some(place.into());
        self
    }

    /// Replaces the code's general advice by a better one for this case.
    #[must_use]
    pub fn remedy(mut self, advice: impl Into<String>) -> Self {
        self.remedy = Some(advice.into());
        self
    }

    /// Makes the error that a diagnosis has found.
    pub(crate) fn diagnosed(report: Report) -> Self {
        let error = Self::new(ErrorCode(report.code), report.cause.clone());
        Self { report: Some(Box::new(report)), ..error }
    }

    /// Returns what is known about the operation that failed, when one did.
    #[must_use]
    pub fn diagnosis(&self) -> Option<&Report> {
        self.report.as_deref()
    }

    /// Returns the stable code.
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        self.code
    }

    /// Returns what was found and what was expected.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns where it happened, when that is more than the call itself.
    #[must_use]
    pub fn place(&self) -> Option<&str> {
        self.at.as_deref()
    }

    /// Returns the one thing to do about it.
    #[must_use]
    pub fn advice(&self) -> &str {
        match (&self.remedy, self.code.info()) {
            (Some(advice), _) => advice,
            (None, Some(info)) => info.remedy,
            (None, None) => "report it",
        }
    }
}

/// Prints code and place, what, what to do; for a failed operation the report, at most twelve lines.
impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.code)?;
        if let Some(at) = &self.at {
            write!(f, "  {at}")?;
        }
        if let Some(report) = &self.report {
            return write!(f, "  {report}");
        }
        write!(f, "\n  what     {}\n  do       {}", self.message, self.advice())
    }
}

impl core::error::Error for Error {}

/// Quotes a path for a message: control characters and non-UTF-8 bytes are escaped, nothing reaches the terminal raw.
#[must_use]
pub fn quote_path(path: &Path) -> String {
    format!("{path:?}")
}
