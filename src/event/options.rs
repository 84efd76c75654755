//! What an emit may ask for beside its event: one small JSON object, which is kept in a column of
//! the event's row. An event that asks for nothing has none.
//!
//! A new option is a field of [`EventOptions`], with its bounds in [`EventOptions::check`], and a
//! setter of [`Event`](super::Event). For plain SQL, `wakeq.kept_options` of the migrations checks
//! it, too.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::keep::KeepSeconds;
use super::limit_name::KEYS_MAX;
use super::seconds::Seconds;
use super::tag::TAGS_MAX;
use super::{
    BatchName, InvalidBatchName, InvalidLimitKey, InvalidTag, Keep, LimitKey, Tag, Timestamp, is_storable,
};

/// Longest JSON of an event's options, in bytes.
const BYTES_MAX: usize = 4096;
/// Most retries, as for HTTP targets.
const RETRIES_MAX: u32 = 1000;
/// Most delays before retries.
const DELAYS_MAX: usize = 100;
/// Longest delay before a retry, and longest timeout: 30 days.
const TIME_MAX: Duration = Duration::from_secs(30 * 24 * 3600);

/// What an emit asked for beside its event, in place of what the handler's
/// [`Route`](crate::Route) or target says. It is set by functions of [`Event`](crate::Event) such
/// as [`Event::retries`](crate::Event::retries). As JSON it is an object with a field for each
/// option that was set.
///
/// ```
/// use wakeq::Event;
///
/// # fn main() -> Result<(), wakeq::EventError> {
/// let charge = Event::new("charge-card", &42)?.retries(5)?;
/// assert_eq!(charge.options().and_then(|options| options.retries()), Some(5));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct EventOptions {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) retries: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) delays_s: Option<Vec<Seconds>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) timeout_s: Option<Seconds>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) not_after: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) batch: Option<BatchName>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) keep_s: Option<KeepSeconds>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) tags: Vec<Tag>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) limits: Vec<LimitKey>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) urgent: bool,
}

/// Why an event can't have its options.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidOptions {
    /// More retries than any handler may have.
    #[error("an event is retried 1,000 times at most: ask for fewer retries")]
    Retries,
    /// No delays, too many of them, or one that is too long.
    #[error("an event has 1 to 100 delays before its retries, each of 30 days at most")]
    Delays,
    /// The timeout is zero or too long.
    #[error("an attempt times out after a millisecond to 30 days: choose a timeout between them")]
    Timeout,
    /// The moment can't be stored.
    #[error("an event expires in the years 1 to 9999: choose a moment in them, or none")]
    NotAfter,
    /// The name of its batch is not valid.
    #[error(transparent)]
    Batch(#[from] InvalidBatchName),
    /// The event has something else that no member of a batch can have.
    #[error("an event of a batch can't {0}: leave one of them out")]
    BatchWith(&'static str),
    /// The event would be kept for too long.
    #[error(
        "an event is kept for 90 days at most after it has ended: choose a shorter time, or 0 for not at all"
    )]
    Keep,
    /// A tag is not valid.
    #[error(transparent)]
    Tag(#[from] InvalidTag),
    /// The event has too many tags.
    #[error("an event has at most 10 tags: leave some out")]
    Tags,
    /// The key of a limit is not valid.
    #[error(transparent)]
    Limit(#[from] InvalidLimitKey),
    /// The event has too many keys of limits.
    #[error("an event has at most 3 different keys of limits: leave some out")]
    Limits,
    /// Copies in queues don't have what the event asks for.
    #[error(
        "an event that is only for queues can't {0}, as its copies have no options: leave one of them out"
    )]
    OnlyQueuesWith(&'static str),
    /// All options together are too long.
    #[error("the options of an event have {0} bytes as JSON, the limit is 4096: ask for less")]
    TooLong(usize),
}

impl EventOptions {
    /// How often the event is retried after its first failure.
    pub fn retries(&self) -> Option<u32> {
        self.retries
    }

    /// The delays before its retries, in their order. The last one counts for all further retries.
    pub fn delays(&self) -> Option<Vec<Duration>> {
        self.delays_s.as_ref().map(|delays| delays.iter().map(|delay| delay.0).collect())
    }

    /// After how long an attempt is cut off.
    pub fn timeout(&self) -> Option<Duration> {
        self.timeout_s.map(|timeout| timeout.0)
    }

    /// The moment after which no attempt starts: the event dies instead.
    pub fn not_after(&self) -> Option<Timestamp> {
        self.not_after
    }

    /// The batch that the event is a member of.
    pub fn batch(&self) -> Option<&BatchName> {
        self.batch.as_ref()
    }

    /// What is left of the options of a dead event that is redriven: it is no member of its batch
    /// any longer.
    #[cfg(feature = "testing")]
    pub(crate) fn without_batch(self) -> Option<Self> {
        let left = Self { batch: None, ..self };
        (left != Self::default()).then_some(left)
    }

    /// For how long the event is kept after it has ended; zero for not at all.
    pub fn keep(&self) -> Option<Keep> {
        self.keep_s.map(Keep::from)
    }

    /// The tags by which the event is found.
    pub fn tags(&self) -> &[Tag] {
        &self.tags
    }

    /// The keys under which limits count the event.
    pub fn limits(&self) -> &[LimitKey] {
        &self.limits
    }

    /// Whether the event is urgent.
    pub fn is_urgent(&self) -> bool {
        self.urgent
    }

    /// The delay after a failure that was preceded by `retries` retries, if the event has delays.
    pub(crate) fn delay_after(&self, retries: u32) -> Option<Duration> {
        let delays = self.delays_s.as_deref()?;
        let at = usize::try_from(retries).unwrap_or(usize::MAX);
        delays.get(at).or(delays.last()).map(|delay| delay.0)
    }

    /// For how long after `moment` an attempt may start; zero if that is over, `None` for ever.
    pub(crate) fn time_left(&self, moment: Timestamp) -> Option<Duration> {
        self.not_after.map(|not_after| (not_after - moment).to_std().unwrap_or_default())
    }

    /// Refuses what is out of bounds.
    pub(super) fn check(&self) -> Result<(), InvalidOptions> {
        if self.retries.is_some_and(|retries| retries > RETRIES_MAX) {
            return Err(InvalidOptions::Retries);
        }
        if let Some(delays) = &self.delays_s
            && (delays.is_empty()
                || delays.len() > DELAYS_MAX
                || delays.iter().any(|delay| delay.0 > TIME_MAX))
        {
            return Err(InvalidOptions::Delays);
        }
        let is_timeout = |timeout: Seconds| (Duration::from_millis(1)..=TIME_MAX).contains(&timeout.0);
        if self.timeout_s.is_some_and(|timeout| !is_timeout(timeout)) {
            return Err(InvalidOptions::Timeout);
        }
        if self.not_after.is_some_and(|moment| !is_storable(moment)) {
            return Err(InvalidOptions::NotAfter);
        }
        if self.keep().is_some_and(|keep| !keep.is_within_limits()) {
            return Err(InvalidOptions::Keep);
        }
        if self.tags.len() > TAGS_MAX {
            return Err(InvalidOptions::Tags);
        }
        if self.limits.len() > KEYS_MAX {
            return Err(InvalidOptions::Limits);
        }
        let bytes = self.json().len();
        if bytes > BYTES_MAX { Err(InvalidOptions::TooLong(bytes)) } else { Ok(()) }
    }

    /// Options with these tags in place of theirs.
    #[cfg(feature = "testing")]
    pub(crate) fn tagged(options: Option<Box<Self>>, tags: &[Tag]) -> Option<Box<Self>> {
        let mut options = options.unwrap_or_default();
        options.tags = tags.to_vec();
        Some(options).filter(|options| **options != Self::default())
    }

    /// As JSON, in the form that the column has.
    pub(crate) fn json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// The options that a column holds. What another program wrote there and is not a set of
    /// options counts as none.
    pub(crate) fn of(text: Option<&str>) -> Option<Box<Self>> {
        text.and_then(|text| serde_json::from_str(text).ok()).map(Box::new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(24 * 3600);

    fn moment(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn options_are_read_as_they_were_written() {
        let options = EventOptions {
            retries: Some(3),
            delays_s: Some(vec![Seconds(Duration::from_micros(1_500_001)), Seconds(30 * DAY)]),
            timeout_s: Some(Seconds(Duration::from_millis(250))),
            not_after: Some(moment("2026-01-31T08:00:00.000001Z")),
            batch: Some("import:42".parse().unwrap()),
            keep_s: Some(Keep::all(7 * DAY).into()),
            tags: vec!["customer:7".parse().unwrap(), "trial".parse().unwrap()],
            limits: vec!["customer:7".parse().unwrap(), "mails".parse().unwrap()],
            urgent: true,
        };
        let json = options.json();
        assert_eq!(
            json,
            r#"{"retries":3,"delays_s":[1.500001,2592000.0],"timeout_s":0.25,"not_after":"2026-01-31T08:00:00.000001Z","batch":"import:42","keep_s":604800.0,"tags":["customer:7","trial"],"limits":["customer:7","mails"],"urgent":true}"#
        );
        assert_eq!(EventOptions::of(Some(&json)).as_deref(), Some(&options));
        assert_eq!(options.check(), Ok(()));
        assert_eq!(EventOptions::default().json(), "{}");
    }

    #[test]
    fn a_column_without_options_has_none_and_unknown_ones_are_passed_over() {
        assert_eq!(EventOptions::of(None), None);
        for text in [
            "",
            "1",
            r#"{"retries":-1}"#,
            r#"{"timeout_s":-1}"#,
            r#"{"delays_s":[1e400]}"#,
            r#"{"batch":"a b"}"#,
            r#"{"tags":[","]}"#,
            r#"{"limits":["canvas"]}"#,
            r#"{"keep_s":{"completed":"1"}}"#,
            r#"{"urgent":1}"#,
        ] {
            assert_eq!(EventOptions::of(Some(text)), None, "{text}");
        }
        let later = EventOptions::of(Some(r#"{"retries": 1, "of a later release": true}"#)).unwrap();
        assert_eq!(later.retries(), Some(1));
        assert_eq!(EventOptions::of(Some(r#"{"urgent": false}"#)).as_deref(), Some(&EventOptions::default()));
    }

    #[test]
    fn the_last_delay_counts_for_all_further_retries() {
        let seconds = |seconds: &[u64]| seconds.iter().map(|s| Seconds(Duration::from_secs(*s))).collect();
        let options = EventOptions { delays_s: Some(seconds(&[1, 5, 25])), ..EventOptions::default() };
        let delays: Vec<u64> =
            (0..5).map(|retries| options.delay_after(retries).unwrap().as_secs()).collect();
        assert_eq!(delays, [1, 5, 25, 25, 25]);
        assert_eq!(EventOptions::default().delay_after(0), None);
    }

    #[test]
    fn what_is_out_of_bounds_is_refused() {
        let of = EventOptions::default;
        let delays = |count, delay| EventOptions { delays_s: Some(vec![Seconds(delay); count]), ..of() };
        let timeout = |time| EventOptions { timeout_s: Some(Seconds(time)), ..of() };
        for options in [
            EventOptions { retries: Some(1000), ..of() },
            delays(1, Duration::ZERO),
            delays(100, 30 * DAY),
            timeout(Duration::from_millis(1)),
            timeout(30 * DAY),
            EventOptions { not_after: Some(moment("9999-12-31T23:59:59Z")), ..of() },
            EventOptions { keep_s: Some(Keep::all(90 * DAY).into()), ..of() },
            EventOptions { keep_s: Some(Keep::default().into()), ..of() },
            EventOptions { limits: vec!["a".parse().unwrap(); 3], urgent: true, ..of() },
        ] {
            assert_eq!(options.check(), Ok(()), "{options:?}");
        }
        let failed = Keep { failed: 91 * DAY, ..Keep::default() };
        for (options, refused) in [
            (EventOptions { retries: Some(1001), ..of() }, InvalidOptions::Retries),
            (delays(0, DAY), InvalidOptions::Delays),
            (delays(101, DAY), InvalidOptions::Delays),
            (delays(1, 31 * DAY), InvalidOptions::Delays),
            (timeout(Duration::ZERO), InvalidOptions::Timeout),
            (timeout(31 * DAY), InvalidOptions::Timeout),
            (EventOptions { keep_s: Some(Keep::all(91 * DAY).into()), ..of() }, InvalidOptions::Keep),
            (EventOptions { keep_s: Some(failed.into()), ..of() }, InvalidOptions::Keep),
            (EventOptions { tags: vec!["a".parse().unwrap(); 11], ..of() }, InvalidOptions::Tags),
            (EventOptions { limits: vec!["a".parse().unwrap(); 4], ..of() }, InvalidOptions::Limits),
        ] {
            assert_eq!(options.check(), Err(refused), "{options:?}");
        }
    }

    #[test]
    fn all_options_together_have_a_limit() {
        let long = Seconds(Duration::from_nanos(1_234_567_123_456_789));
        let options = EventOptions { delays_s: Some(vec![long; 100]), ..EventOptions::default() };
        assert!(options.json().len() < BYTES_MAX && options.check().is_ok());
    }
}
