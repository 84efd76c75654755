//! What decides when an event runs: claims, rules and the durations of a deployment.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::{EventId, Timestamp, Turn};

/// The right to run an event, as long as no later claim was made on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Claim {
    /// The claimed event.
    pub id: EventId,
    /// The how-manyth claim on it this is: the fencing token.
    pub claims: i32,
}

/// Who stopped a handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RuleKind {
    /// The user.
    Pause,
    /// An admin; outranks a pause, and only an admin lifts it.
    Block,
}

impl RuleKind {
    /// The value of the column `rule_type`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pause => "pause",
            Self::Block => "block",
        }
    }
}

impl fmt::Display for RuleKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.as_str())
    }
}

impl FromStr for RuleKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "pause" => Ok(Self::Pause),
            "block" => Ok(Self::Block),
            other => Err(format!("{other:?} is no kind of rule: use pause or block")),
        }
    }
}

/// What the load says of an event: one snapshot of the row, of the rule on its handler and of the database's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// The event may not run before this.
    pub delay_until: Timestamp,
    /// When the standing claim was made or renewed.
    pub locked_at: Option<Timestamp>,
    /// The rule in force on the handler; a block, when both kinds stand.
    pub rule: Option<RuleKind>,
    /// Whether it is its turn among the events of its object.
    pub turn: Turn,
    /// The database's clock.
    pub now: Timestamp,
}

/// Why an event died.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// Its handler failed too often.
    Retries,
    /// Its owners died too often.
    Poison,
}

impl Cause {
    /// The value of the column `cause`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Retries => "retries",
            Self::Poison => "poison",
        }
    }
}

/// The durations that every process of a deployment has to share: they are written into rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timing {
    /// How long a claim stands without renewal. Default 60 s; renewed every third of it.
    pub lease: Duration,
    /// How far ahead of its time an event may be given to a worker, which then waits. Default 10 min.
    pub horizon: Duration,
    /// How long after an event is due its notification counts as lost. Default 30 s.
    pub grace: Duration,
    /// How often one of the processes runs the probe. Default 60 s.
    pub probe_period: Duration,
    /// How long the probe waits after it woke an event before it wakes it again; doubled each time. Default 10 min.
    pub probe_backoff: Duration,
    /// The longest such wait. Default 1 h.
    pub probe_backoff_max: Duration,
    /// When an event is looked at again whose handler a worker did not know: doubled each time, up to twelve times this.
    /// Default 5 min.
    pub unknown_handler_wait: Duration,
}

/// A duration that a queue can't work with.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the duration `{name}` is {value:?}: it must lie between {least:?} and {most:?}")]
pub struct InvalidTiming {
    /// The field of [`Timing`].
    pub name: &'static str,
    /// What it was set to.
    pub value: Duration,
    /// The shortest that works.
    pub least: Duration,
    /// The longest that works.
    pub most: Duration,
}

/// The longest wait for the next look at an event whose handler nobody knows, in terms of the shortest.
const DEFERS_MAX: u32 = 12;

impl Timing {
    /// How long an event that the probe woke so often waits for its next look while nobody knows its handler.
    #[cfg(feature = "testing")]
    pub(crate) fn defer_for(&self, probes: u32) -> Duration {
        self.unknown_handler_wait * 2_u32.pow(probes.min(4)).min(DEFERS_MAX)
    }

    /// How old the note of an unknown handler is at most while events wait for it.
    pub(crate) fn unknown_noted_within(&self) -> Duration {
        2 * DEFERS_MAX * self.unknown_handler_wait
    }

    /// Refuses durations that would make workers spin or never look again.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wakeq::Timing;
    ///
    /// let timing = Timing { lease: Duration::ZERO, ..Timing::default() };
    /// assert!(timing.check().unwrap_err().to_string().starts_with("the duration `lease` is 0ns"));
    /// ```
    pub fn check(&self) -> Result<(), InvalidTiming> {
        let tick = Duration::from_millis(100);
        let year = Duration::from_secs(365 * 24 * 3600);
        for (name, value) in self.fields() {
            let least = if matches!(name, "horizon" | "grace") { Duration::ZERO } else { tick };
            if !(least..=year).contains(&value) {
                return Err(InvalidTiming { name, value, least, most: year });
            }
        }
        Ok(())
    }

    /// Every duration with its name.
    pub(crate) fn fields(&self) -> [(&'static str, Duration); 7] {
        [
            ("lease", self.lease),
            ("horizon", self.horizon),
            ("grace", self.grace),
            ("probe_period", self.probe_period),
            ("probe_backoff", self.probe_backoff),
            ("probe_backoff_max", self.probe_backoff_max),
            ("unknown_handler_wait", self.unknown_handler_wait),
        ]
    }

    /// Every duration with its name, in whole microseconds, as rows hold them.
    pub(crate) fn named(&self) -> Vec<(String, i64)> {
        let whole = |value: Duration| i64::try_from(value.as_micros()).unwrap_or(i64::MAX);
        self.fields().into_iter().map(|(name, value)| (name.to_owned(), whole(value))).collect()
    }

    /// Sets the duration of this name; a name of a later release is passed over.
    pub(crate) fn set(&mut self, name: &str, value: Duration) {
        match name {
            "lease" => self.lease = value,
            "horizon" => self.horizon = value,
            "grace" => self.grace = value,
            "probe_period" => self.probe_period = value,
            "probe_backoff" => self.probe_backoff = value,
            "probe_backoff_max" => self.probe_backoff_max = value,
            "unknown_handler_wait" => self.unknown_handler_wait = value,
            _ => {}
        }
    }

    /// The first duration that differs by a microsecond or more: its name, this one's, the other's.
    pub(crate) fn first_difference(&self, other: &Self) -> Option<(&'static str, Duration, Duration)> {
        let pairs = self.fields().into_iter().zip(other.fields());
        pairs
            .map(|((name, one), (_, another))| (name, one, another))
            .find(|(_, one, another)| one.as_micros() != another.as_micros())
    }
}

impl Default for Timing {
    fn default() -> Self {
        let minutes = |count: u64| Duration::from_secs(60 * count);
        Self {
            lease: minutes(1),
            horizon: minutes(10),
            grace: Duration::from_secs(30),
            probe_period: minutes(1),
            probe_backoff: minutes(10),
            probe_backoff_max: minutes(60),
            unknown_handler_wait: minutes(5),
        }
    }
}
