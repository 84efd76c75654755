//! What a run did, in a sentence for a reader who does not know the state machine.

use wakeq::machine::Outcome;
use wakeq::workers::{RunReport, Verdict};

/// `None` if it is not worth a line: a duplicate notification of an event that has ended or is
/// running.
pub(super) fn sentence(report: &RunReport) -> Option<String> {
    if let Verdict::Failed(error) = &report.verdict {
        return Some(format!("Postgres did not answer ({error}); retrying"));
    }
    let attempt = report.attempt.unwrap_or(0);
    let error = report.error.as_deref().unwrap_or("no message");
    let name = report.address.as_ref().map_or("", |address| address.scope.name.as_str());
    match report.ending()? {
        Outcome::Deleted => Some(end(report, attempt, error)),
        Outcome::RetryAllowed => {
            let wait = match &report.verdict {
                Verdict::Waits(wait) => format!("in {wait:.0?}"),
                Verdict::Acknowledged | Verdict::PutBack | Verdict::WaitsForRoom | Verdict::Failed(_) => {
                    "later".to_owned()
                }
            };
            Some(format!("attempt {attempt} failed ({error}); retried {wait}"))
        }
        Outcome::Postponed => Some("its handler postponed it: delivered again later".to_owned()),
        Outcome::DelayNotYet => match &report.verdict {
            Verdict::Waits(wait) => Some(format!("not due yet: waits here {wait:.1?}")),
            Verdict::Acknowledged | Verdict::PutBack | Verdict::WaitsForRoom | Verdict::Failed(_) => {
                Some("not due for a while: waits in Postgres".to_owned())
            }
        },
        Outcome::EarlierLeft => Some("waits for an earlier event of its object".to_owned()),
        Outcome::FacetHeld => Some("waits: its canvas receives nothing from the queue now".to_owned()),
        Outcome::ObjectHalted => Some("its object is halted: `objects skip`, or a redrive".to_owned()),
        Outcome::RulePaused => Some(format!("paused: waits in Postgres for `unpause {name}`")),
        Outcome::RuleBlocked => Some(format!("blocked by an admin: waits in Postgres for `unblock {name}`")),
        Outcome::LimitFull | Outcome::LimitRate => Some(at_limit(&report.verdict)),
        Outcome::Deferred => Some(format!("NO HANDLER `{name}` HERE: offered again until there is one")),
        Outcome::LeaseLost => Some("its lease expired: another worker may run it".to_owned()),
        Outcome::Released if report.trail.contains(&Outcome::HandlerPaused) => {
            Some(format!("{error}: paused until `unpause {name}`"))
        }
        Outcome::Released => Some("interrupted by the shutdown, and released to other workers".to_owned()),
        Outcome::EventMissing
        | Outcome::EventPresent
        | Outcome::DelayNone
        | Outcome::LockNone
        | Outcome::LockExpired
        | Outcome::IsLocked
        | Outcome::RuleNone
        | Outcome::RuleLifted
        | Outcome::FacetRecalled
        | Outcome::HandlerKnown
        | Outcome::HandlerUnknown
        | Outcome::LockClaimed
        | Outcome::LockClaimFailed
        | Outcome::Poison
        | Outcome::Expired
        | Outcome::ExecutesToCompletion
        | Outcome::Exception
        | Outcome::Rejected
        | Outcome::ShutDown
        | Outcome::Cancelled
        | Outcome::NotYet
        | Outcome::HandlerGone
        | Outcome::HandlerPaused
        | Outcome::RetryTooMany
        | Outcome::HandedOver
        | Outcome::FencedOut => None,
    }
}

/// What an event waits for that a limit has not let start.
fn at_limit(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Waits(wait) => format!("the rate of a limit lets it start in {wait:.1?}"),
        Verdict::Acknowledged | Verdict::PutBack | Verdict::WaitsForRoom | Verdict::Failed(_) => {
            "waits for a limit: `limits show` says who has its places".to_owned()
        }
    }
}

/// How an event ended that this run removed.
fn end(report: &RunReport, attempt: u32, error: &str) -> String {
    let took = |outcome| report.trail.contains(&outcome);
    if took(Outcome::RetryTooMany) {
        format!("attempt {attempt} failed ({error}), the last one: dead, see `dead list`")
    } else if took(Outcome::Rejected) {
        format!("attempt {attempt} failed ({error}), and no retry can help: dead, see `dead list`")
    } else if took(Outcome::Poison) {
        "its workers died too often: dead, see `dead list`".to_owned()
    } else if took(Outcome::Expired) {
        "the moment after which it may not start has passed: dead, see `dead list`".to_owned()
    } else if took(Outcome::Cancelled) {
        "cancelled while it ran, and deleted".to_owned()
    } else {
        format!("done in {:.0?} at attempt {attempt}", report.took.unwrap_or_default())
    }
}
