//! Warnings of an operation that takes long, before its deadline: who is waited for, and whether anything moves.

use core::fmt;
use core::time::Duration;
use std::sync::Arc;

use wire::ErrorCode;

use super::verdict::Case;
use super::{Report, survey};
use crate::communicator::Communicator;

/// An operation is not done after some time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// How long the host has been waiting.
    pub after: Duration,
    /// Tasks that all devices have executed since the last look.
    pub executed: u64,
    /// Who is waited for, as it looks now. Nothing is wrong yet.
    pub report: Report,
}

/// Prints at most six lines: `W6210 OPERATION_SLOW`, who, where, since, cause, do.
impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { comm, operation, culprit_rank, culprit_place, whereabouts, cause, .. } = &self.report;
        let code = ErrorCode::OPERATION_SLOW;
        write!(f, "W{:04} {}  comm {comm:?}   op {operation}", code.0, code.name())?;
        if let Some(rank) = culprit_rank {
            write!(f, "\n  who      rank {rank} ({culprit_place})")?;
        }
        if !whereabouts.is_empty() {
            write!(f, "\n  where    {whereabouts}")?;
        }
        let (after, deadline) = (self.after.as_secs_f64(), Duration::from_millis(self.report.deadline_ms));
        let moved = match self.executed {
            0 => "nothing moved".to_owned(),
            count => format!("{count} tasks executed"),
        };
        write!(f, "\n  since    {after:.3} s; since the last look {moved}")?;
        write!(f, "\n  cause    {cause}")?;
        let (deadline, source) = (deadline.as_secs_f64(), &self.report.deadline_source);
        write!(f, "\n  do       wait, or look there: it fails at {deadline:.3} s, set by {source}")
    }
}

/// Whom warnings are told.
#[derive(Clone)]
pub struct OnWarning(Arc<dyn Fn(&Warning) + Send + Sync>);

impl OnWarning {
    /// Tells a function.
    pub fn tell(function: impl Fn(&Warning) + Send + Sync + 'static) -> Self {
        Self(Arc::new(function))
    }

    pub(crate) fn warn(&self, warning: &Warning) {
        (self.0)(warning);
    }
}

impl Default for OnWarning {
    /// Standard error.
    fn default() -> Self {
        Self::tell(|warning| eprintln!("{warning}"))
    }
}

impl fmt::Debug for OnWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnWarning")
    }
}

impl Warning {
    /// Looks at what operations in flight wait for; `executed` being what devices did since the last look.
    pub(crate) fn of(comm: &Communicator<'_>, after: Duration, executed: u64) -> Self {
        let ranks = survey(comm, after);
        // A device that has a task to execute is doing so while tasks are executed.
        let moves = |_, _| (executed > 0).then_some(true);
        let report = Case::new(&ranks, &moves).overdue();
        Self { after, executed, report }
    }
}
