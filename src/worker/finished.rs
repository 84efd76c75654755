//! The result of a run: why it ended, its report, and the events that have to run next.

use super::counters::{RunReport, Verdict};
use super::permits::{Permits, Shortage};
use crate::event::{CountedRun, HandlerScope, Notification};
use crate::machine::{Answer, Outcome, When};
use crate::store::StoreError;
use crate::telemetry::faults;

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
    /// Whether a round that made no claim and had this last outcome ended so because the event
    /// waits for something that is not a limit: its turn, a rule's end, a handler, its target or
    /// room in this worker.
    pub(super) fn waits_for_others(&self, last: Option<&Outcome>) -> bool {
        match self {
            Self::NeedsRoom(_) => true,
            Self::Wait(_) => last == Some(&Outcome::HandlerKnown),
            Self::Answer(_) => matches!(
                last,
                Some(
                    Outcome::EarlierLeft
                        | Outcome::ObjectHalted
                        | Outcome::RulePaused
                        | Outcome::RuleBlocked
                        | Outcome::Deferred
                )
            ),
            Self::Failed(_) => false,
        }
    }

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
    /// What the run adds to the statistics of a handler; `None` if that is nothing. Those of a copy
    /// are its queue's, which has none. An attempt that a shutdown cut off did not fail, nor did
    /// one whose event was cancelled.
    pub(super) fn counted(&self) -> Option<(&HandlerScope, CountedRun)> {
        let report = &self.report;
        let address = report.address.as_ref().filter(|_| report.queue.is_none())?;
        let took = |edge| report.trail.contains(&edge);
        let deaths = [Outcome::Poison, Outcome::RetryTooMany, Outcome::Rejected, Outcome::Expired];
        let dies = deaths.into_iter().any(took);
        let run = CountedRun {
            completed: took(Outcome::ExecutesToCompletion) && took(Outcome::Deleted),
            failed: self.fault.is_some_and(|fault| ![faults::SHUTDOWN, faults::CANCELLED].contains(&fault)),
            retried: took(Outcome::RetryAllowed),
            dead: took(Outcome::Deleted) && dies,
            wait: report.waited,
            run: report.took,
        };
        (run != CountedRun::default()).then_some((&address.scope, run))
    }

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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::event::{CanvasId, EventId, HandlerAddress, Name};

    const WAITED: Duration = Duration::from_millis(3);
    const TOOK: Duration = Duration::from_millis(20);

    /// A run that took these edges, with an attempt unless the trail is without a claim.
    fn finished(trail: &[Outcome], fault: Option<&'static str>) -> FinishedRun {
        let scope = HandlerScope::worker(CanvasId::DEFAULT, "greet").unwrap();
        let ran = trail.contains(&Outcome::LockClaimed);
        let report = RunReport {
            notification: Notification::new(EventId::new(), CanvasId::DEFAULT),
            address: Some(HandlerAddress { scope, modifier: Name::no_modifier() }),
            queue: None,
            trail: trail.to_vec(),
            attempt: ran.then_some(1),
            error: None,
            waited: ran.then_some(WAITED),
            took: ran.then_some(TOOK),
            verdict: Verdict::Acknowledged,
        };
        FinishedRun {
            end: RunEnd::Answer(Answer::Acknowledge),
            permits: Permits::default(),
            report: Box::new(report),
            fault,
            next: Vec::new(),
            again: None,
        }
    }

    /// What a run counts as: completed, failed, retried, dead, and an attempt.
    fn counted(trail: &[Outcome], fault: Option<&'static str>) -> [bool; 5] {
        let finished = finished(trail, fault);
        let Some((scope, run)) = finished.counted() else { return [false; 5] };
        assert_eq!(scope.name.as_str(), "greet");
        assert_eq!(run.wait.is_some(), run.run.is_some());
        [run.completed, run.failed, run.retried, run.dead, run.run.is_some()]
    }

    #[test]
    fn each_end_of_a_run_counts_as_what_it_is() {
        use Outcome::*;
        let (yes, no, failed) = (true, false, Some(faults::ERROR));
        for (trail, fault, expected) in [
            (&[LockClaimed, ExecutesToCompletion, Deleted][..], None, [yes, no, no, no, yes]),
            (&[LockClaimed, ExecutesToCompletion, Deleted, HandedOver], None, [yes, no, no, no, yes]),
            (&[LockClaimed, ExecutesToCompletion, FencedOut], None, [no, no, no, no, yes]),
            (&[LockClaimed, Exception, RetryAllowed], failed, [no, yes, yes, no, yes]),
            (&[LockClaimed, Exception, RetryTooMany, Deleted], failed, [no, yes, no, yes, yes]),
            (&[LockClaimed, Rejected, Deleted], failed, [no, yes, no, yes, yes]),
            (&[LockClaimed, NotYet, Postponed], None, [no, no, no, no, yes]),
            (&[LockClaimed, LeaseLost], Some(faults::LEASE_LOST), [no, yes, no, no, yes]),
            (&[LockClaimed, ShutDown, Released], Some(faults::SHUTDOWN), [no, no, no, no, yes]),
            (&[LockClaimed, Cancelled, Deleted], Some(faults::CANCELLED), [no, no, no, no, yes]),
            (&[Cancelled, Deleted], None, [no; 5]),
            (&[Poison, Deleted], None, [no, no, no, yes, no]),
            (&[Expired, Deleted], None, [no, no, no, yes, no]),
            (&[LockClaimed, Exception, Expired, Deleted], failed, [no, yes, no, yes, yes]),
            (&[EventPresent, DelayNotYet], None, [no; 5]),
            (&[EventMissing], None, [no; 5]),
        ] {
            assert_eq!(counted(trail, fault), expected, "{trail:?}");
        }
    }

    #[test]
    fn a_copy_counts_for_no_handler() {
        let mut copy =
            finished(&[Outcome::LockClaimed, Outcome::ExecutesToCompletion, Outcome::Deleted], None);
        copy.report.queue = Some("emails".parse().unwrap());
        assert_eq!(copy.counted(), None);
    }
}
