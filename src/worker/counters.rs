//! What a worker did: counts by outcome, and a report of each run.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::event::{Cause, HandlerAddress, Name, Notification};
use crate::machine::Outcome;
use crate::telemetry::{Processed, RunMetrics};

/// Counts since the worker was made.
#[derive(Debug, Default)]
pub struct Counters {
    malformed: AtomicU64,
    doubled: AtomicU64,
    outcomes: Mutex<BTreeMap<Outcome, u64>>,
    metrics: RunMetrics,
}

impl Counters {
    /// Messages that were no notifications.
    pub fn malformed(&self) -> u64 {
        self.malformed.load(Ordering::Relaxed)
    }

    /// Notifications of events that waited here already, or were over before theirs had its turn.
    pub fn doubled(&self) -> u64 {
        self.doubled.load(Ordering::Relaxed)
    }

    /// How often a run took an edge of the chart.
    pub fn outcome(&self, outcome: Outcome) -> u64 {
        let outcomes = self.outcomes.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        outcomes.get(&outcome).copied().unwrap_or(0)
    }

    pub(super) fn count_malformed(&self) {
        self.malformed.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_doubled(&self) {
        self.doubled.fetch_add(1, Ordering::Relaxed);
    }

    /// A run ended; `fault` is what was the matter with its handler, if it had one.
    pub(super) fn count(&self, report: &RunReport, fault: Option<&'static str>) {
        self.count_outcomes(&report.trail);
        let Some(address) = &report.address else { return };
        if let Some(took) = report.took {
            let (scope, queue) = (&address.scope, report.queue.as_ref());
            self.metrics.processed(Processed { scope, queue, took, fault });
        }
        let took = |edge| report.trail.contains(&edge);
        if took(Outcome::RetryAllowed) {
            self.metrics.retried(&address.scope);
        }
        let cause = match (took(Outcome::Deleted), took(Outcome::Poison), took(Outcome::RetryTooMany)) {
            (true, true, _) => Some(Cause::Poison),
            (true, false, true) => Some(Cause::Retries),
            (true, false, false) | (false, ..) => None,
        };
        if let Some(cause) = cause {
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

/// How a run ended for its notification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is acknowledged.
    Acknowledged,
    /// It goes back to the broker.
    PutBack,
    /// It waits here this long, then runs again.
    Waits(Duration),
    /// It waits here for room at its handler, or for its turn among suspects.
    WaitsForRoom,
    /// Postgres gave no answer; it runs again in a second, or goes back to the broker where there is no room to wait.
    Failed(String),
}

/// One notification's way through the machine.
#[derive(Clone, Debug)]
pub struct RunReport {
    /// What the notification named.
    pub notification: Notification,
    /// The event's handler, if the row was there.
    pub address: Option<HandlerAddress>,
    /// The queue, if the event is a copy.
    pub queue: Option<Name>,
    /// The edges taken.
    pub trail: Vec<Outcome>,
    /// Which attempt it was, if a handler ran.
    pub attempt: Option<u32>,
    /// What the handler said, if it failed.
    pub error: Option<String>,
    /// How long the handler ran.
    pub took: Option<Duration>,
    /// What becomes of the notification.
    pub verdict: Verdict,
}

impl RunReport {
    /// The last edge that was about this event: a run of an event on an object may go on to wake the next one.
    pub fn ending(&self) -> Option<Outcome> {
        self.trail.iter().rev().copied().find(|outcome| *outcome != Outcome::HandedOver)
    }
}
