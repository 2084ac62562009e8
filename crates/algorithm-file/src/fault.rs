//! Why an algorithm is refused, and which step is at fault.

use core::fmt;

use wire::ErrorCode;

use crate::Algorithm;

/// A refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Stable code.
    pub code: ErrorCode,
    /// What was found and what was expected.
    pub message: String,
    /// Line and column in the file, from 1; `None` for an algorithm that comes from no file.
    pub at: Option<(u32, u32)>,
    /// Byte in the file, until the line is known.
    pub(crate) byte: usize,
}

impl Fault {
    pub(crate) fn new(code: ErrorCode, byte: usize, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), at: None, byte }
    }

    /// Fills in line and column in `text`.
    pub(crate) fn located(mut self, text: &str) -> Self {
        let before = text.get(..self.byte).unwrap_or(text);
        let start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let number = |count: usize| u32::try_from(count + 1).unwrap_or(u32::MAX);
        self.at = Some((number(before.matches('\n').count()), number(before[start..].chars().count())));
        self
    }
}

/// Prints the place, where there is one, and the message.
impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((line, column)) = self.at {
            write!(f, "{line}:{column}: ")?;
        }
        write!(f, "{}: {}", self.code, self.message)
    }
}

impl core::error::Error for Fault {}

/// Which step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct StepId {
    pub(crate) gpu: usize,
    pub(crate) block: usize,
    pub(crate) step: usize,
}

impl StepId {
    /// Makes a fault of this step: `gpu 3, tb 1, step 5 (rrc): …`.
    pub(crate) fn fault(self, algorithm: &Algorithm, code: ErrorCode, message: impl fmt::Display) -> Fault {
        let step = &algorithm.gpus[self.gpu].blocks[self.block].steps[self.step];
        Fault::new(code, step.at, format!("{self} ({}): {message}", step.kind))
    }
}

/// Prints `gpu 3, tb 1, step 5`.
impl fmt::Display for StepId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "gpu {}, tb {}, step {}", self.gpu, self.block, self.step)
    }
}
