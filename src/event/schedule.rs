//! Claims, rules and the durations of a deployment, which decide when an event runs.

use std::str::FromStr;
use std::time::Duration;

use super::{EventId, Spelled, Timestamp, Turn};

/// The right to run an event, as long as no later claim is made on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Claim {
    /// The claimed event.
    pub id: EventId,
    /// Which claim of the event this is (1, 2, …).
    pub claims: i32,
    /// A random number, at least 0. A server that lost a claim in a failover counts the next one
    /// alike, but does not draw the same number.
    pub nonce: i32,
}

impl Claim {
    /// The fencing token: later claims of one event have greater ones.
    pub fn fence(self) -> i64 {
        i64::from(self.claims) << 32 | i64::from(self.nonce)
    }

    /// The fencing token as `wakeq.complete` takes it: 16 hex digits.
    pub fn token(self) -> String {
        format!("{:016x}", self.fence())
    }

    /// The claim of an event to which a token belongs: 16 hex digits, or a lease, which begins with
    /// them. `None` if it is neither.
    pub(crate) fn of_token(id: EventId, token: &str) -> Option<Self> {
        let is_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if ![16, 40].contains(&token.len()) || !token.bytes().all(is_hex) {
            return None;
        }
        let number = |digits| i32::from_str_radix(digits, 16).ok();
        Some(Self { id, claims: number(&token[..8])?, nonce: number(&token[8..16])? })
    }
}

/// The kind of a rule: who stopped a handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RuleKind {
    /// Set by a user.
    Pause,
    /// Set by an admin. Takes precedence over a pause, and only an admin lifts it.
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

displayed_as_text!(RuleKind);

impl FromStr for RuleKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "pause" => Ok(Self::Pause),
            "block" => Ok(Self::Block),
            other => Err(format!("{other:?} is not a kind of rule: use pause or block")),
        }
    }
}

/// One snapshot of an event's row, of the rule on its handler and of the database's clock, as the
/// load reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// The event may not run before this.
    pub delay_until: Timestamp,
    /// When the current claim was made or last renewed.
    pub locked_at: Option<Timestamp>,
    /// The rule in force on the handler, its canvas or everything; a block if there are both kinds.
    pub rule: Option<RuleKind>,
    /// Whether it is the event's turn in its lane.
    pub turn: Turn,
    /// The database's clock.
    pub now: Timestamp,
}

/// Why an event died.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// Its handler failed too often.
    Retries,
    /// Its workers died too often while they ran it.
    Poison,
    /// Its handler said that no retry can help.
    Rejected,
    /// The moment had passed after which its emit wanted no attempt to start.
    Expired,
}

impl Cause {
    /// The value of the column `cause`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Retries => "retries",
            Self::Poison => "poison",
            Self::Rejected => "rejected",
            Self::Expired => "expired",
        }
    }
}

/// The durations that every process of a deployment must share, because they are written into rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timing {
    /// How long a claim lasts without renewal. Default 60 s; renewed every third of it.
    pub lease: Duration,
    /// How long before it is due an event may be handed to a worker, to wait there. Default 10 min.
    pub horizon: Duration,
    /// How long after an event is due its notification counts as lost. Default 30 s.
    pub grace: Duration,
    /// How often one of the processes runs the probe. Default 60 s.
    pub probe_period: Duration,
    /// How long after waking an event the probe wakes it again; doubled each time. Default 10 min.
    pub probe_backoff: Duration,
    /// The upper limit of `probe_backoff` as it doubles. Default 1 h.
    pub probe_backoff_max: Duration,
    /// How long an event waits after a worker found no handler for it; doubled each time, up to
    /// twelve times this. Default 5 min.
    pub unknown_handler_wait: Duration,
    /// The longest delay before a retry, even if the handler's own policy allows a longer one.
    /// Default 365 days: the handler's policy alone applies.
    pub retry_delay_max: Duration,
}

/// A duration that a queue can't work with.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the duration `{name}` is {}: it must lie between {} and {}",
    Spelled(*value),
    Spelled(*least),
    Spelled(*most)
)]
pub struct InvalidTiming {
    /// The field of [`Timing`].
    pub name: &'static str,
    /// The value that it was set to.
    pub value: Duration,
    /// The shortest duration allowed.
    pub least: Duration,
    /// The longest duration allowed.
    pub most: Duration,
}

/// The longest duration allowed.
const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);
/// The longest wait of an event without a known handler, as a multiple of the shortest.
const DEFERS_MAX: u32 = 12;

impl Timing {
    /// How long an event without a known handler waits, once the probe has woken it `probes` times.
    #[cfg(feature = "testing")]
    pub(crate) fn defer_for(&self, probes: u32) -> Duration {
        self.unknown_handler_wait * 2_u32.pow(probes.min(4)).min(DEFERS_MAX)
    }

    /// The maximum age of the note about an unknown handler while events wait for it.
    pub(crate) fn unknown_noted_within(&self) -> Duration {
        2 * DEFERS_MAX * self.unknown_handler_wait
    }

    /// Refuses durations that would make workers spin or never look again: `horizon` and `grace`
    /// may be 0, all others are at least 100 ms, and all are at most 365 days.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wakeq::Timing;
    ///
    /// let timing = Timing { lease: Duration::ZERO, ..Timing::default() };
    /// assert!(timing.check().unwrap_err().to_string().starts_with("the duration `lease` is 0s:"));
    /// ```
    pub fn check(&self) -> Result<(), InvalidTiming> {
        let tick = Duration::from_millis(100);
        for (name, value) in self.fields() {
            let least = if matches!(name, "horizon" | "grace") { Duration::ZERO } else { tick };
            if !(least..=YEAR).contains(&value) {
                return Err(InvalidTiming { name, value, least, most: YEAR });
            }
        }
        Ok(())
    }

    /// Every duration with its name.
    #[doc(hidden)]
    pub fn fields(&self) -> [(&'static str, Duration); 8] {
        [
            ("lease", self.lease),
            ("horizon", self.horizon),
            ("grace", self.grace),
            ("probe_period", self.probe_period),
            ("probe_backoff", self.probe_backoff),
            ("probe_backoff_max", self.probe_backoff_max),
            ("unknown_handler_wait", self.unknown_handler_wait),
            ("retry_delay_max", self.retry_delay_max),
        ]
    }

    /// Every duration with its name, in whole microseconds, as in the database.
    pub(crate) fn named(&self) -> Vec<(String, i64)> {
        let whole = |value: Duration| i64::try_from(value.as_micros()).unwrap_or(i64::MAX);
        self.fields().into_iter().map(|(name, value)| (name.to_owned(), whole(value))).collect()
    }

    /// Sets the duration of this name; unknown names, from later releases, are ignored.
    pub(crate) fn set(&mut self, name: &str, value: Duration) {
        match name {
            "lease" => self.lease = value,
            "horizon" => self.horizon = value,
            "grace" => self.grace = value,
            "probe_period" => self.probe_period = value,
            "probe_backoff" => self.probe_backoff = value,
            "probe_backoff_max" => self.probe_backoff_max = value,
            "unknown_handler_wait" => self.unknown_handler_wait = value,
            "retry_delay_max" => self.retry_delay_max = value,
            _ => {}
        }
    }

    /// The first duration that differs by a microsecond or more: its name, its value here, its
    /// value in `other`.
    #[doc(hidden)]
    pub fn first_difference(&self, other: &Self) -> Option<(&'static str, Duration, Duration)> {
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
            retry_delay_max: YEAR,
        }
    }
}
