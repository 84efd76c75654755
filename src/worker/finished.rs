//! The result of a run: why it ended, its report, and the events that have to run next.

use super::counters::{RunReport, Verdict};
use super::permits::{Permits, Shortage};
use crate::event::Notification;
use crate::machine::{Answer, When};
use crate::store::StoreError;

/// Why a run ended.
#[derive(Debug)]
pub(super) enum RunEnd {
    Wait(When),
    Answer(Answer),
    /// It needs something of which too little is left.
    NeedsRoom(Shortage),
    /// Postgres did not answer.
    Failed(StoreError),
}

/// The result of a run.
pub(super) struct FinishedRun {
    pub(super) end: RunEnd,
    /// The permits that it held and may need again.
    pub(super) permits: Permits,
    pub(super) report: Box<RunReport>,
    /// What went wrong with the handler, as one word for metrics.
    pub(super) fault: Option<&'static str>,
    /// The next event of the same lane, and those of the same facet that a freed slot lets run.
    pub(super) next: Vec<Notification>,
    /// The notification that asked for a turn, if another event took it: it has to run again.
    /// Everything else here is about that other event.
    pub(super) again: Option<Notification>,
}

impl RunEnd {
    pub(super) fn verdict(&self) -> Verdict {
        match self {
            Self::Answer(Answer::Acknowledge) => Verdict::Acknowledged,
            Self::Answer(Answer::PutBack) | Self::Wait(When::Soon) => Verdict::PutBack,
            Self::Wait(When::In(wait)) => Verdict::Waits(*wait),
            Self::NeedsRoom(_) => Verdict::WaitsForRoom,
            Self::Failed(error) => Verdict::Failed(error.to_string()),
        }
    }
}

impl FinishedRun {
    pub(super) fn log(&self) {
        let report = &self.report;
        let trail = || report.trail.iter().map(|outcome| outcome.as_str()).collect::<Vec<_>>().join(" ");
        match (&report.verdict, &report.error) {
            (Verdict::Failed(error), _) => {
                tracing::warn!(trail = trail(), error, "run cut short; its notification runs again")
            }
            (_, Some(error)) => tracing::warn!(trail = trail(), error, took = ?report.took, "handler failed"),
            (_, None) => tracing::debug!(trail = trail(), took = ?report.took, "run ended"),
        }
    }
}
