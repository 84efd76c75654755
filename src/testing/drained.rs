//! What a drain did, and its text.

use std::collections::BTreeSet;
use std::fmt;

use super::error::KitError;
use crate::event::EventId;
use crate::machine::Outcome;
use crate::worker::{RunReport, Verdict};

/// Maximum number of runs of one drain per event that was emitted before it, and the minimum of
/// that limit. Handlers that keep emitting for one another never come to rest.
const RUNS_PER_EVENT_MAX: usize = 100;
const RUNS_MAX: usize = 10_000;
/// Maximum number of runs that are shown. They are the last ones.
const RUNS_SHOWN: usize = 50;

/// What a drain did. Its `Display` lists the runs, for the message of an assertion:
/// `assert_eq!(drained.retried, 1, "{drained}")`.
#[derive(Clone, Debug, Default)]
pub struct DrainReport {
    /// Events that completed, including those whose handlers returned an error value.
    pub completed: usize,
    /// Attempts that failed and will be retried.
    pub retried: usize,
    /// Events that became dead.
    pub died: usize,
    /// Events that were cancelled while they ran.
    pub cancelled: usize,
    /// Events that were looked at and wait under a pause or a block.
    pub parked: usize,
    /// Events that were looked at and have no handler in the kit.
    pub unknown: usize,
    /// Events that were looked at and wait for a place or a start of a limit.
    pub limited: usize,
    /// Events that have not ended: they wait for their time, under a rule, or for their handler.
    pub waiting: u64,
    /// Each run in which a handler was started, in order; of runs that only looked at an event, the
    /// first with each outcome.
    pub runs: Vec<RunReport>,
    looks: BTreeSet<(EventId, Outcome)>,
    emitted_before: usize,
}

impl DrainReport {
    /// For a drain that starts after this many events were emitted.
    pub(super) fn after(emitted_before: usize) -> Self {
        Self { emitted_before, ..Self::default() }
    }

    /// How many times a handler was started.
    pub fn attempts(&self) -> usize {
        self.runs.iter().filter(|run| run.attempt.is_some()).count()
    }

    /// Fails unless the drain ran this many events, each of them once, and without an error, a
    /// retry, a dead event, or an event that has no handler in the kit. The message shows what
    /// happened instead. Events that wait may be left.
    ///
    /// ```
    /// # use wakeq::{Event, Handlers};
    /// # use wakeq::testing::TestKit;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let mut kit = TestKit::new();
    /// kit.handlers(Handlers::new().on("greet", |_| async { Ok(()) }))?;
    /// kit.emit(Event::new("greet", "Ada")?).await?;
    /// kit.drain().await?.assert_all_fine(1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    /// If that is not the case.
    #[track_caller]
    pub fn assert_all_fine(&self, events: usize) {
        let fine = self.unknown == 0 && self.runs.iter().all(|run| run.error.is_none());
        if !fine || self.died > 0 || self.completed != events || self.attempts() != events {
            let wanted = wanted(Some(events));
            panic!("expected {wanted} to complete, at the first run and without an error; {self}");
        }
    }

    /// The runs of one event.
    pub fn of(&self, id: EventId) -> impl Iterator<Item = &RunReport> {
        self.runs.iter().filter(move |run| run.notification.id == id)
    }

    pub(super) fn add(&mut self, report: RunReport) -> Result<(), KitError> {
        if let Verdict::Failed(error) = &report.verdict {
            return Err(KitError::CutShort(error.clone()));
        }
        let runs_max = self.emitted_before.saturating_mul(RUNS_PER_EVENT_MAX).max(RUNS_MAX);
        if self.runs.len() >= runs_max {
            return Err(KitError::Restless(runs_max));
        }
        let trail = &report.trail;
        if report.attempt.is_none()
            && let Some(last) = trail.last()
            && !self.looks.insert((report.notification.id, *last))
        {
            return Ok(());
        }
        let count = match report.ending() {
            Some(Outcome::Deleted) if trail.contains(&Outcome::ExecutesToCompletion) => {
                Some(&mut self.completed)
            }
            Some(Outcome::Deleted) if trail.contains(&Outcome::Cancelled) => Some(&mut self.cancelled),
            Some(Outcome::Deleted) => Some(&mut self.died),
            Some(Outcome::RetryAllowed) => Some(&mut self.retried),
            Some(Outcome::RulePaused | Outcome::RuleBlocked) => Some(&mut self.parked),
            Some(Outcome::Deferred) => Some(&mut self.unknown),
            Some(Outcome::LimitFull | Outcome::LimitRate) => Some(&mut self.limited),
            Some(_) | None => None,
        };
        if let Some(count) = count {
            *count += 1;
        }
        self.runs.push(report);
        Ok(())
    }
}

impl fmt::Display for DrainReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { completed, retried, died, parked, unknown, waiting, .. } = self;
        write!(
            formatter,
            "completed {completed}, retried {retried}, died {died}, parked {parked}, unknown {unknown}, waiting {waiting}:"
        )?;
        // If an attempt of the event is shown, that the event is not due adds nothing.
        let adds_nothing = |run: &RunReport| {
            run.trail.last() == Some(&Outcome::DelayNotYet)
                && self.of(run.notification.id).any(|run| run.attempt.is_some())
        };
        let runs: Vec<&RunReport> = self.runs.iter().filter(|run| !adds_nothing(run)).collect();
        if runs.is_empty() {
            return write!(formatter, "\n  nothing ran");
        }
        let left_out = runs.len().saturating_sub(RUNS_SHOWN);
        if left_out > 0 {
            write!(formatter, "\n  … {left_out} before these")?;
        }
        runs[left_out..].iter().try_for_each(|run| write!(formatter, "\n  {}", describe(run)))
    }
}

/// How many events a test expects: at least one, if it does not say.
pub(super) fn wanted(count: Option<usize>) -> String {
    match count {
        None => "at least 1 event".into(),
        Some(1) => "1 event".into(),
        Some(count) => format!("{count} events"),
    }
}

/// A run in one line.
fn describe(run: &RunReport) -> String {
    let who = run.address.as_ref().map_or_else(
        || format!("event {}", run.notification.id),
        |address| format!("{}/{}/{}", address.scope.module, address.scope.name, address.modifier),
    );
    let attempt = run.attempt.map(|attempt| format!(" attempt {attempt}")).unwrap_or_default();
    let error = run.error.as_deref().map(|error| format!(": {error}")).unwrap_or_default();
    format!("{who}{attempt} {}{error}", ending(run))
}

fn ending(run: &RunReport) -> String {
    let waits = match &run.verdict {
        Verdict::Waits(wait) => format!(" in {} s", wait.as_secs_f64().ceil()),
        Verdict::Acknowledged | Verdict::PutBack | Verdict::WaitsForRoom | Verdict::Failed(_) => {
            String::new()
        }
    };
    match run.ending() {
        Some(Outcome::Deleted) if run.trail.contains(&Outcome::Cancelled) => "was cancelled".into(),
        Some(Outcome::Deleted) if !run.trail.contains(&Outcome::ExecutesToCompletion) => "died".into(),
        Some(Outcome::Deleted) if run.error.is_some() => "completed with an error value".into(),
        Some(Outcome::Deleted) => "completed".into(),
        Some(Outcome::RetryAllowed) => format!("failed and is retried{waits}"),
        Some(Outcome::Postponed) => format!("was postponed by its handler and is delivered again{waits}"),
        Some(Outcome::DelayNotYet) => format!("waits: it is due{waits}"),
        Some(Outcome::EarlierLeft) => "waits for an earlier event of its object".into(),
        Some(Outcome::FacetHeld) => "waits: its canvas receives nothing from the queue now".into(),
        Some(Outcome::ObjectHalted) => "waits: its object is halted".into(),
        Some(Outcome::RulePaused) => "waits: its handler is paused".into(),
        Some(Outcome::RuleBlocked) => "waits: its handler is blocked".into(),
        Some(Outcome::LimitFull) => "waits for a place of a limit".into(),
        Some(Outcome::LimitRate) => format!("waits: the rate of a limit lets it start{waits}"),
        Some(Outcome::Deferred) => "waits: the kit has no handler of this name".into(),
        Some(other) => format!("ended with {}{waits}", other.as_str()),
        None => "was cut short".into(),
    }
}
