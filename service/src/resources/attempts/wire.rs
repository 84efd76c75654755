//! The last attempts at the events of a handler.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use wakeq::events::{HandlerAttempt, LastAttempts};

/// How the error begins that a delivery has for an answer of its target; its status follows.
const ANSWERED: &str = "the target answered ";

/// The last attempts at the events of a handler, the latest first.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = LastAttempts)]
pub(crate) struct LastAttemptsJson {
    pub(crate) attempts: Vec<HandlerAttemptJson>,
    /// Whether there may be more, beyond `limit` or at events that were not looked at. All that are
    /// noted of an event are with the event.
    pub(crate) more: bool,
}

/// An attempt at an event of a handler.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = HandlerAttempt)]
pub(crate) struct HandlerAttemptJson {
    /// The event.
    pub(crate) event: Uuid,
    #[schema(example = "_")]
    pub(crate) modifier: String,
    /// The number of the attempt, from 1.
    #[schema(minimum = 1)]
    pub(crate) number: u32,
    /// What came of it: `retried`, `postponed` (it was too early) or `dead`; or `completed`,
    /// `failed` or `cancelled`, if it ended an event that is kept.
    #[schema(example = "retried")]
    pub(crate) outcome: String,
    /// The status that a target answered with, if its error says so.
    #[schema(minimum = 100, maximum = 999)]
    pub(crate) status: Option<u16>,
    /// The worker that made it, or the program that leased the event; null if it gave no name.
    #[schema(example = "orders-6d4cf-x7k2p-1f0c5a9e")]
    pub(crate) worker: Option<String>,
    pub(crate) started_at: DateTime<Utc>,
    /// How long it took, in seconds.
    pub(crate) took_s: f64,
    /// Its error, or the first 1,000 characters of it.
    pub(crate) error: Option<String>,
}

impl From<LastAttempts> for LastAttemptsJson {
    fn from(last: LastAttempts) -> Self {
        Self { attempts: last.attempts.into_iter().map(HandlerAttemptJson::from).collect(), more: last.more }
    }
}

impl From<HandlerAttempt> for HandlerAttemptJson {
    fn from(last: HandlerAttempt) -> Self {
        let attempt = last.attempt;
        Self {
            event: last.event.0,
            modifier: last.modifier.to_string(),
            number: attempt.number,
            outcome: attempt.outcome,
            status: attempt.error.as_deref().and_then(status),
            worker: attempt.worker.as_ref().map(ToString::to_string),
            started_at: attempt.started_at,
            took_s: attempt.took.as_secs_f64(),
            error: attempt.error,
        }
    }
}

/// The status that an error of a delivery names.
fn status(error: &str) -> Option<u16> {
    let rest = error.strip_prefix(ANSWERED)?;
    rest.get(..3).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_that_of_an_answer() {
        let said = "the target answered 503 Service Unavailable with 3 bytes: it has no capacity now";
        assert_eq!(status(said), Some(503));
        for other in ["no route", "the target answered ", "the target answered +50", "the target answered é€"]
        {
            assert_eq!(status(other), None, "{other}");
        }
    }
}
