//! Unique keys: at most one event of a handler has a key. What an event says of its key, and what
//! an emit did that found the key taken.

use std::time::Duration;

use super::Timestamp;

/// Longest key, in bytes.
const KEY_MAX: usize = 255;
/// Longest time for which a key is remembered: 366 days.
const REMEMBERED_MAX: Duration = Duration::from_secs(366 * 24 * 3600);
/// Longest wait of a postponed event: a hundred years, as for any event.
const WAIT_MAX: Duration = Duration::from_secs(100 * 366 * 24 * 3600);

/// A unique key of an event: of the events for one handler (module and name, whatever the modifier)
/// on one canvas, at most one has the key at a time. It is a text that the caller chooses, such as
/// `invoice:42`, and nothing is derived from the event's value.
///
/// The key is taken while its event waits, unless another time is set. An emit that finds it taken
/// keeps the event that has it, unless [`Unique::on_conflict`] says otherwise.
///
/// ```
/// use std::time::Duration;
/// use wakeq::Event;
/// use wakeq::events::{OnConflict, Unique};
///
/// # fn main() -> Result<(), wakeq::EventError> {
/// // One waits at most, however often an invoice changes.
/// let recompute = Event::new("recompute", &42)?.unique(Unique::key("invoice:42")?)?;
/// // Starts 5 s after the last change, and at most a minute after the first.
/// let quiet = OnConflict::Postpone { by: Duration::from_secs(5), at_most: Duration::from_secs(60) };
/// let debounced = Event::new("recompute", &42)?.unique(Unique::key("invoice:42")?.on_conflict(quiet))?;
/// // Not twice within an hour.
/// let reminder = Unique::key("ada@example.com")?.remembered_for(Duration::from_secs(3600));
/// let mail = Event::new("send-reminder", "ada@example.com")?.unique(reminder)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unique {
    key: Box<str>,
    held: Held,
    on_conflict: OnConflict,
}

/// How long an event has its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    WhileWaiting,
    UntilEnded,
    RememberedFor(Duration),
}

/// What an emit does if another event that waits has its unique key. An event that runs or has
/// ended is always kept as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnConflict {
    /// Nothing: the event that has the key stays as it is.
    #[default]
    Keep,
    /// It gets the modifier, the value, the due time, the trace and the options of the new one, and
    /// its retries begin anew. Its id, and when it was emitted, stay.
    Replace,
    /// The same, but it is due this long from now, and not earlier than before: a debounce. The
    /// first event waits as long, unless it has a due time of its own.
    Postpone {
        /// How long after the last emit it is due.
        by: Duration,
        /// How long after the first emit it is due at the latest, so that a steady stream of emits
        /// does not hold it up for ever.
        at_most: Duration,
    },
}

/// What was done with an event that has a unique key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UniqueOutcome {
    /// The key was free: the event is new.
    Inserted,
    /// The key was taken: the event that has it, or had it and is remembered, stays as it is.
    Kept,
    /// The event that waited with the key was replaced.
    Replaced,
    /// The event that waited with the key was postponed.
    Postponed {
        /// When it is due now.
        due: Timestamp,
    },
}

/// Why an event can't have a unique key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidUnique {
    /// The key's text is not valid.
    #[error("a unique key has 1 to 255 visible ASCII characters, without spaces: shorten or encode it")]
    Key,
    /// The time for which the key is remembered is out of range.
    #[error("a unique key can be remembered for a microsecond to 366 days")]
    Remembered,
    /// The waits of [`OnConflict::Postpone`] are out of range.
    #[error(
        "an event can be postponed by a microsecond to 100 years, and its longest wait must not be \
         shorter than that, nor longer than 100 years"
    )]
    Postponed,
    /// The event has something else that excludes a key.
    #[error("an event with a unique key can't {0}: leave one of them out")]
    With(&'static str),
}

impl Unique {
    /// A key of 1 to 255 visible ASCII characters. It is taken while its event waits, and a
    /// conflicting event is kept.
    pub fn key(key: &str) -> Result<Self, InvalidUnique> {
        if !(1..=KEY_MAX).contains(&key.len()) || !key.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(InvalidUnique::Key);
        }
        Ok(Self { key: key.into(), held: Held::WhileWaiting, on_conflict: OnConflict::Keep })
    }

    /// The key is taken while its event waits, which is the default. Once that has started, another
    /// one can be emitted, which then waits with the key: no change is lost that the running one
    /// may not have seen.
    pub fn while_waiting(self) -> Self {
        Self { held: Held::WhileWaiting, ..self }
    }

    /// The key is taken until its event has ended, with all its retries.
    pub fn until_ended(self) -> Self {
        Self { held: Held::UntilEnded, ..self }
    }

    /// The key is taken until its event has ended, and at least until this long after it was due: a
    /// microsecond to 366 days.
    pub fn remembered_for(self, time: Duration) -> Self {
        Self { held: Held::RememberedFor(time), ..self }
    }

    /// Sets what happens if the key is taken.
    pub fn on_conflict(self, on_conflict: OnConflict) -> Self {
        Self { on_conflict, ..self }
    }

    /// Refuses times that are out of range.
    pub(crate) fn check(&self) -> Result<(), InvalidUnique> {
        let least = Duration::from_micros(1);
        match self.held {
            Held::RememberedFor(time) if !(least..=REMEMBERED_MAX).contains(&time) => {
                return Err(InvalidUnique::Remembered);
            }
            Held::WhileWaiting | Held::UntilEnded | Held::RememberedFor(_) => {}
        }
        match self.on_conflict {
            OnConflict::Postpone { by, at_most }
                if !(least..=WAIT_MAX).contains(&by) || !(by..=WAIT_MAX).contains(&at_most) =>
            {
                Err(InvalidUnique::Postponed)
            }
            OnConflict::Keep | OnConflict::Replace | OnConflict::Postpone { .. } => Ok(()),
        }
    }

    /// The key's text.
    pub(crate) fn text(&self) -> &str {
        &self.key
    }

    /// How long its event has the key after it was due, once it has ended; `None`: only while it
    /// waits.
    pub(crate) fn held_for(&self) -> Option<Duration> {
        match self.held {
            Held::WhileWaiting => None,
            Held::UntilEnded => Some(Duration::ZERO),
            Held::RememberedFor(time) => Some(time),
        }
    }

    /// Whether the key outlives its event.
    pub(crate) fn is_remembered(&self) -> bool {
        self.held_for().is_some_and(|time| !time.is_zero())
    }

    /// What happens if the key is taken.
    pub(crate) fn conflict(&self) -> OnConflict {
        self.on_conflict
    }
}

impl OnConflict {
    /// The word that `wakeq.write_unique` takes.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Keep => "keep",
            Self::Replace => "replace",
            Self::Postpone { .. } => "postpone",
        }
    }

    /// By how much it postpones, and the longest wait.
    pub(crate) fn waits(self) -> Option<(Duration, Duration)> {
        match self {
            Self::Postpone { by, at_most } => Some((by, at_most)),
            Self::Keep | Self::Replace => None,
        }
    }
}

impl UniqueOutcome {
    /// Of a word of `wakeq.write_unique`, with the due time that it returned.
    pub(crate) fn parse(word: &str, due: Option<Timestamp>) -> Self {
        match (word, due) {
            ("inserted", _) => Self::Inserted,
            ("replaced", _) => Self::Replaced,
            ("postponed", Some(due)) => Self::Postponed { due },
            _ => Self::Kept,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_limits() {
        let long = "~".repeat(255);
        for key in ["invoice:42", "!", "/", "a\"b", &long] {
            assert_eq!(Unique::key(key).unwrap().text(), key);
        }
        for key in ["", "a b", "é", "a\n", "\u{7f}", &"x".repeat(256)] {
            assert_eq!(Unique::key(key), Err(InvalidUnique::Key), "{key:?}");
        }
    }

    #[test]
    fn times_have_limits() {
        let second = Duration::from_secs(1);
        let key = || Unique::key("k").unwrap();
        for time in [Duration::from_micros(1), second, REMEMBERED_MAX] {
            assert_eq!(key().remembered_for(time).check(), Ok(()));
        }
        for time in [Duration::ZERO, Duration::from_nanos(1), REMEMBERED_MAX + second] {
            assert_eq!(key().remembered_for(time).check(), Err(InvalidUnique::Remembered));
        }
        let postponed = |by, at_most| key().on_conflict(OnConflict::Postpone { by, at_most }).check();
        assert_eq!(postponed(second, second), Ok(()));
        assert_eq!(postponed(second, WAIT_MAX), Ok(()));
        for (by, at_most) in [
            (Duration::ZERO, second),
            (2 * second, second),
            (second, WAIT_MAX + second),
            (WAIT_MAX + second, WAIT_MAX + second),
        ] {
            assert_eq!(postponed(by, at_most), Err(InvalidUnique::Postponed), "{by:?} {at_most:?}");
        }
    }

    #[test]
    fn only_a_time_after_the_end_is_remembered() {
        let key = || Unique::key("k").unwrap();
        assert!(!key().is_remembered() && !key().until_ended().is_remembered());
        assert!(key().remembered_for(Duration::from_secs(1)).is_remembered());
        assert_eq!(key().until_ended().while_waiting().held_for(), None);
    }
}
