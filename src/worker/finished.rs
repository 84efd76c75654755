//! What came of a run: why it ended, what it says of itself, and what has to be run after it.

use std::sync::Arc;

use tokio::sync::Semaphore;

use super::counters::{RunReport, Verdict};
use super::room::{Room, RoomKind};
use crate::event::Notification;
use crate::machine::{Answer, When};
use crate::store::StoreError;

/// Why a run ended.
#[derive(Debug)]
pub(super) enum Halt {
    Wait(When),
    Answer(Answer),
    /// It needs so many places in a room that others hold.
    Room(RoomKind, Arc<Semaphore>, u32),
    /// Postgres did not answer.
    Failed(StoreError),
}

/// What came of a run.
pub(super) struct Finished {
    pub(super) halt: Halt,
    /// What it held and may need again.
    pub(super) room: Room,
    pub(super) report: RunReport,
    /// What was the matter with the handler, in a word for metrics.
    pub(super) fault: Option<&'static str>,
    /// The event of the same object whose turn it is now, and those of the same facet that have room.
    pub(super) next: Vec<Notification>,
    /// The notification that asked for a turn, when another event had it: it has to be run again. The rest is about the
    /// other one.
    pub(super) again: Option<Notification>,
}

impl Halt {
    pub(super) fn verdict(&self) -> Verdict {
        match self {
            Self::Answer(Answer::Acknowledge) => Verdict::Acknowledged,
            Self::Answer(Answer::PutBack) | Self::Wait(When::Soon) => Verdict::PutBack,
            Self::Wait(When::In(wait)) => Verdict::Waits(*wait),
            Self::Room(..) => Verdict::WaitsForRoom,
            Self::Failed(error) => Verdict::Failed(error.to_string()),
        }
    }
}

impl Finished {
    pub(super) fn log(&self) {
        let report = &self.report;
        let trail = report.trail.iter().map(|outcome| outcome.as_str()).collect::<Vec<_>>().join(" ");
        match (&report.verdict, &report.error) {
            (Verdict::Failed(error), _) => {
                tracing::warn!(trail, error, "run cut short; its notification runs again")
            }
            (_, Some(error)) => tracing::warn!(trail, error, took = ?report.took, "handler failed"),
            (_, None) => tracing::debug!(trail, took = ?report.took, "run ended"),
        }
    }
}
