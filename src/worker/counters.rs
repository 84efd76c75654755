//! The record of a worker's runs: counts by outcome, and a report of each run.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::event::{Cause, HandlerAddress, Name, Notification};
use crate::machine::Outcome;
use crate::telemetry::{AttemptResult, RunMetrics};

/// Counts since the worker was created.
#[derive(Debug, Default)]
pub struct Counters {
    malformed: AtomicU64,
    duplicates: AtomicU64,
    outcomes: Mutex<BTreeMap<Outcome, u64>>,
    metrics: RunMetrics,
}

impl Counters {
    /// Messages that were not notifications.
    pub fn malformed(&self) -> u64 {
        self.malformed.load(Ordering::Relaxed)
    }

    /// Notifications that were duplicates: the event was already waiting here, or had ended before
    /// the notification's turn came.
    pub fn duplicates(&self) -> u64 {
        self.duplicates.load(Ordering::Relaxed)
    }

    /// How often runs took an edge of the chart.
    pub fn outcome(&self, outcome: Outcome) -> u64 {
        let outcomes = self.outcomes.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        outcomes.get(&outcome).copied().unwrap_or(0)
    }

    pub(super) fn count_malformed(&self) {
        self.malformed.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_duplicate(&self) {
        self.duplicates.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a run that ended. `fault` is what went wrong with its handler, if anything.
    pub(super) fn count(&self, report: &RunReport, fault: Option<&'static str>) {
        self.count_outcomes(&report.trail);
        let Some(address) = &report.address else { return };
        if let Some(took) = report.took {
            let (scope, queue) = (&address.scope, report.queue.as_ref());
            self.metrics.processed(AttemptResult { scope, queue, took, fault });
        }
        let took = |edge| report.trail.contains(&edge);
        if took(Outcome::RetryAllowed) {
            self.metrics.retried(&address.scope);
        }
        let deaths = [
            (Outcome::Poison, Cause::Poison),
            (Outcome::RetryTooMany, Cause::Retries),
            (Outcome::Rejected, Cause::Rejected),
            (Outcome::Expired, Cause::Expired),
        ];
        if took(Outcome::Deleted)
            && let Some((_, cause)) = deaths.into_iter().find(|(edge, _)| took(*edge))
        {
            self.metrics.died(&address.scope, cause);
        }
    }

    fn count_outcomes(&self, trail: &[Outcome]) {
        let mut outcomes = self.outcomes.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        for outcome in trail {
            *outcomes.entry(*outcome).or_default() += 1;
        }
        drop(outcomes);
        for outcome in trail {
            self.metrics.outcome(outcome.as_str());
        }
    }
}

/// What happens to the notification of a run that ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is acknowledged.
    Acknowledged,
    /// It goes back to the broker.
    PutBack,
    /// It waits here for this long, then runs again.
    Waits(Duration),
    /// It waits here for room at its handler, or for its turn among suspects.
    WaitsForRoom,
    /// Postgres did not answer. It runs again in a second, or goes back to the broker if there is
    /// no room to wait.
    Failed(String),
}

/// The run of one notification.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RunReport {
    /// The notification, or the copy that its queue's turn chose instead.
    pub notification: Notification,
    /// The address of the event's handler, if the row was there.
    pub address: Option<HandlerAddress>,
    /// The registered queue, if the event is a copy.
    pub queue: Option<Name>,
    /// The edges taken, in order.
    pub trail: Vec<Outcome>,
    /// The attempt, counted from 1, if a handler ran.
    pub attempt: Option<u32>,
    /// The handler's error message, if it failed.
    pub error: Option<String>,
    /// How long the event had been due when it was claimed, if a handler ran.
    pub waited: Option<Duration>,
    /// How long the handler ran.
    pub took: Option<Duration>,
    /// What happens to the notification.
    pub verdict: Verdict,
}

impl RunReport {
    /// The last edge that concerned this event: after an event on an object, the run may still have
    /// woken the next one.
    pub fn ending(&self) -> Option<Outcome> {
        self.trail.iter().rev().copied().find(|outcome| *outcome != Outcome::HandedOver)
    }
}
