//! How long an event is kept after it has ended, and how it has ended. Data only.

use std::time::Duration;

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

/// For how long the events of a handler are kept after they have ended, depending on how they have
/// ended. Zero is not at all, which is the default. Dead events are kept anyway, for as long as
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
    /// Those whose handler returned an error value.
    pub failed: Duration,
    /// Those that were cancelled while they ran. An event that is cancelled while it waits does not
    /// meet its route: it is kept if its emit or its target asks for it.
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

    /// Whether none of the times is too long.
    pub(crate) fn is_within_limits(&self) -> bool {
        [self.completed, self.failed, self.cancelled].into_iter().all(|time| time <= Self::MAX)
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
    fn outcomes_are_read_back_by_their_names() {
        for outcome in EndedOutcome::ALL {
            assert_eq!(EndedOutcome::parse(outcome.as_str()), Some(outcome));
        }
        assert_eq!(EndedOutcome::parse("COMPLETED"), None);
    }
}
