//! How long an event is kept after it has ended, and how it has ended. Data only.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::seconds::Seconds;

/// How an event has ended that is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EndedOutcome {
    /// Its handler returned `Ok`.
    Completed,
    /// Its handler returned an error value, which is not retried.
    Failed,
    /// It was cancelled while it waited or ran.
    Cancelled,
}

impl EndedOutcome {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Completed, Self::Failed, Self::Cancelled];

    /// Its name in the API, on the command line and in the database.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// The outcome with this name.
    ///
    /// ```
    /// use wakeq::events::EndedOutcome;
    ///
    /// assert_eq!(EndedOutcome::parse("failed"), Some(EndedOutcome::Failed));
    /// assert_eq!(EndedOutcome::parse("dead"), None, "dead events are listed by themselves");
    /// ```
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|outcome| outcome.as_str() == text)
    }
}

displayed_as_text!(EndedOutcome);

/// For how long events are kept after they have ended, depending on how they have ended. Zero is
/// not at all, which is the default. A duration stands for the same time, however an event has
/// ended. Dead events are kept anyway, for as long as
/// [`Retention::dead_events`](crate::database::Retention::dead_events) says. Copies in registered
/// queues are not kept.
///
/// ```
/// use std::time::Duration;
/// use wakeq::Route;
/// use wakeq::events::Keep;
///
/// let day = Duration::from_secs(24 * 3600);
/// let payments = Route::new("pay").keep(Keep { failed: 30 * day, ..Keep::all(7 * day) });
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keep {
    /// Those whose handler returned `Ok`.
    pub completed: Duration,
    /// Those whose handler returned an error value, which only functions of a worker can.
    pub failed: Duration,
    /// Those that were cancelled. An event that is cancelled while it waits does not meet its
    /// route: it is kept if its emit or its target asks for it, or its handler is pulled and does.
    pub cancelled: Duration,
}

impl Keep {
    /// The longest time that an event is kept: 90 days.
    pub const MAX: Duration = Duration::from_secs(90 * 24 * 3600);

    /// The same time, however an event has ended.
    pub const fn all(time: Duration) -> Self {
        Self { completed: time, failed: time, cancelled: time }
    }

    /// How long an event with this outcome is kept.
    pub fn time(&self, outcome: EndedOutcome) -> Duration {
        match outcome {
            EndedOutcome::Completed => self.completed,
            EndedOutcome::Failed => self.failed,
            EndedOutcome::Cancelled => self.cancelled,
        }
    }

    /// The same time for every outcome, if it is the same.
    pub fn single(&self) -> Option<Duration> {
        (*self == Self::all(self.completed)).then_some(self.completed)
    }

    /// Whether none of the times is too long.
    pub(crate) fn is_within_limits(&self) -> bool {
        [self.completed, self.failed, self.cancelled].into_iter().all(|time| time <= Self::MAX)
    }
}

impl From<Duration> for Keep {
    fn from(time: Duration) -> Self {
        Self::all(time)
    }
}

/// What an event's options have as JSON: a number of seconds for every outcome, or an object with
/// one for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum KeepSeconds {
    All(Seconds),
    Each(OutcomeSeconds),
}

/// An outcome that is left out is not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct OutcomeSeconds {
    completed: Seconds,
    failed: Seconds,
    cancelled: Seconds,
}

impl Default for OutcomeSeconds {
    fn default() -> Self {
        let none = Seconds(Duration::ZERO);
        Self { completed: none, failed: none, cancelled: none }
    }
}

impl From<Keep> for KeepSeconds {
    fn from(keep: Keep) -> Self {
        let Keep { completed, failed, cancelled } = keep;
        match keep.single() {
            Some(time) => Self::All(Seconds(time)),
            None => Self::Each(OutcomeSeconds {
                completed: Seconds(completed),
                failed: Seconds(failed),
                cancelled: Seconds(cancelled),
            }),
        }
    }
}

impl From<KeepSeconds> for Keep {
    fn from(seconds: KeepSeconds) -> Self {
        match seconds {
            KeepSeconds::All(time) => Self::all(time.0),
            KeepSeconds::Each(OutcomeSeconds { completed, failed, cancelled }) => {
                Self { completed: completed.0, failed: failed.0, cancelled: cancelled.0 }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_outcome_has_its_own_time() {
        let [day, week] = [1, 7].map(|days| Duration::from_secs(days * 24 * 3600));
        let keep = Keep { failed: week, ..Keep::all(day) };
        assert_eq!((keep.time(EndedOutcome::Completed), keep.time(EndedOutcome::Failed)), (day, week));
        assert_eq!(Keep::default().time(EndedOutcome::Cancelled), Duration::ZERO);
        assert!(Keep::all(Keep::MAX).is_within_limits());
        assert!(!Keep { cancelled: Keep::MAX + day, ..Keep::default() }.is_within_limits());
    }

    #[test]
    fn one_time_is_written_as_a_number_and_several_as_an_object() {
        let second = Duration::from_secs(1);
        for (keep, json) in [
            (Keep::all(90 * second), "90.0"),
            (Keep::default(), "0.0"),
            (
                Keep { failed: 3 * second, ..Keep::all(second) },
                r#"{"completed":1.0,"failed":3.0,"cancelled":1.0}"#,
            ),
        ] {
            assert_eq!(serde_json::to_string(&KeepSeconds::from(keep)).unwrap(), json);
            assert_eq!(Keep::from(serde_json::from_str::<KeepSeconds>(json).unwrap()), keep);
        }
        let failed: KeepSeconds = serde_json::from_str(r#"{"failed": 3}"#).unwrap();
        assert_eq!(Keep::from(failed), Keep { failed: 3 * second, ..Keep::default() });
        for wrong in ["-1", "\"1\"", r#"{"failed": -1}"#, r#"{"failed": "1"}"#] {
            assert!(serde_json::from_str::<KeepSeconds>(wrong).is_err(), "{wrong}");
        }
        assert_eq!(Keep::from(second).single(), Some(second));
    }

    #[test]
    fn outcomes_are_read_back_by_their_names() {
        for outcome in EndedOutcome::ALL {
            assert_eq!(EndedOutcome::parse(outcome.as_str()), Some(outcome));
        }
        assert_eq!(EndedOutcome::parse("COMPLETED"), None);
    }
}
