//! Faults on demand: what may go wrong, how often, and the seeded random source that decides it.
//!
//! It only decides; the broker and the server carry it out. The same seed and the same calls give
//! the same faults.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::calls::{Method, NextCalls};
use super::delivery::Fate;

/// What goes wrong, and how often; nothing by default.
///
/// Probabilities are between 0 (never) and 1 (always).
///
/// ```
/// use wakeq_emulator::Faults;
///
/// let faults = Faults { seed: 7, duplicate: 0.1, lose: 0.01, ..Faults::default() };
/// assert_ne!(faults, Faults::default());
/// ```
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Faults {
    /// The seed of the random source: the same seed and the same calls give the same faults.
    pub seed: u64,

    /// Probability that a message never reaches a subscription. Drawn separately for each
    /// subscription, like the next three.
    #[serde(deserialize_with = "probability")]
    pub lose: f64,
    /// Probability that a message is delivered twice. Never with exactly-once delivery.
    #[serde(deserialize_with = "probability")]
    pub duplicate: f64,
    /// Probability that a message only becomes available after a delay of up to `longest_delay`.
    /// With ordering, the later ones of its key wait for it.
    #[serde(deserialize_with = "probability")]
    pub delay: f64,
    /// The longest delay; each one is drawn. `"1.5s"` in JSON.
    #[serde(with = "seconds")]
    pub longest_delay: Duration,
    /// Probability that a message overtakes the waiting ones. With ordering, its key overtakes the
    /// other keys.
    #[serde(deserialize_with = "probability")]
    pub reorder: f64,

    /// Probability that a streaming pull ends with `UNAVAILABLE` instead of its next response.
    #[serde(deserialize_with = "probability")]
    pub break_streams: f64,

    /// Probability that a call is answered `UNAVAILABLE`, and not carried out.
    #[serde(deserialize_with = "probability")]
    pub unavailable: f64,
    /// Probability that a call is answered `NOT_FOUND`, and not carried out.
    #[serde(deserialize_with = "probability")]
    pub not_found: f64,
    /// Probability that a call is answered `RESOURCE_EXHAUSTED`, and not carried out.
    #[serde(deserialize_with = "probability")]
    pub resource_exhausted: f64,
    /// Probability that a call is answered `DEADLINE_EXCEEDED`, and not carried out.
    #[serde(deserialize_with = "probability")]
    pub deadline_exceeded: f64,
    /// How much longer each call takes. `"0.2s"` in JSON.
    #[serde(with = "seconds")]
    pub slow: Duration,
    /// The methods that the five fields from `unavailable` to `slow` apply to; all if empty.
    pub methods: BTreeSet<Method>,
    /// Calls that are certain to fail, by number. [`Faults::fail_next`] adds entries.
    pub next: Vec<NextCalls>,
}

impl Faults {
    /// Decides what happens to a message on its way into one subscription; `None` if it is lost.
    pub(crate) fn fate(&self, rng: &mut SeededRng) -> Option<Fate> {
        if rng.random_bool(self.lose) {
            return None;
        }
        Some(if rng.random_bool(self.delay) {
            Fate::Late(rng.up_to(self.longest_delay))
        } else if rng.random_bool(self.duplicate) {
            Fate::Twice
        } else if rng.random_bool(self.reorder) {
            Fate::Ahead
        } else {
            Fate::OnTime
        })
    }
}

/// How often each fault has occurred since the broker was created; forgetting everything does not
/// reset it.
///
/// ```
/// use wakeq_emulator::Faults;
/// use wakeq_emulator::broker::Broker;
///
/// let broker = Broker::new(Faults { lose: 0.5, ..Faults::default() });
/// assert_eq!(broker.fault_counts().lost, 0, "nothing was published yet");
/// ```
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
pub struct FaultCounts {
    /// Messages that never reached a subscription. One that is published to three subscriptions may
    /// be lost three times.
    pub lost: u64,
    /// Messages that entered a subscription twice.
    pub duplicated: u64,
    /// Messages that were delayed.
    pub delayed: u64,
    /// Messages that were put before the waiting ones, if there were any.
    pub reordered: u64,
    /// Streaming pulls that ended with `UNAVAILABLE`.
    pub broken_streams: u64,
    /// Calls that were refused, whether by chance or on request.
    pub refused_calls: u64,
}

impl FaultCounts {
    /// Counts the fate of a message.
    pub(super) fn count(&mut self, fate: Option<Fate>) {
        match fate {
            None => self.lost += 1,
            Some(Fate::Twice) => self.duplicated += 1,
            Some(Fate::Late(_)) => self.delayed += 1,
            Some(Fate::Ahead) => self.reordered += 1,
            Some(Fate::OnTime) => {}
        }
    }
}

/// A seeded random source (SplitMix64).
#[derive(Clone, Debug)]
pub(crate) struct SeededRng(u64);

impl SeededRng {
    /// Sources with the same seed but different purposes are independent.
    pub(crate) fn new(seed: u64, purpose: Purpose) -> Self {
        let mut rng = Self(seed ^ purpose.salt());
        rng.next();
        rng
    }

    /// Whether an event of this probability happens. Draws nothing for probabilities of 0 and 1.
    pub(crate) fn random_bool(&mut self, probability: f64) -> bool {
        if probability <= 0.0 || probability.is_nan() {
            return false;
        }
        probability >= 1.0 || self.fraction() < probability
    }

    /// A random duration up to the longest.
    pub(crate) fn up_to(&mut self, longest: Duration) -> Duration {
        longest.mul_f64(self.fraction())
    }

    /// From 0 to just under 1.
    fn fraction(&mut self) -> f64 {
        const BITS: u32 = f64::MANTISSA_DIGITS;
        #[allow(clippy::cast_precision_loss)] // as many bits as a mantissa has
        let (drawn, all) = ((self.next() >> (u64::BITS - BITS)) as f64, (1_u64 << BITS) as f64);
        drawn / all
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

/// What a random source decides.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Purpose {
    /// The faults of messages.
    Messages,
    /// The faults of calls.
    Calls,
    /// The faults of streams.
    Streams,
}

impl Purpose {
    fn salt(self) -> u64 {
        match self {
            Self::Messages => 0x6d65_7373_6167_6573,
            Self::Calls => 0x6361_6c6c_7300_0000,
            Self::Streams => 0x7374_7265_616d_7300,
        }
    }
}

fn probability<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    let value = f64::deserialize(deserializer)?;
    if (0.0..=1.0).contains(&value) {
        return Ok(value);
    }
    Err(serde::de::Error::custom(format!(
        "{value} is not a probability: give one from 0 (never) to 1 (always)"
    )))
}

/// Durations in the JSON form of protocol buffers: `"1.5s"`.
pub(super) mod seconds {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(in crate::broker) fn serialize<S: Serializer>(
        duration: &Duration,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&format!("{}s", duration.as_secs_f64()))
    }

    pub(in crate::broker) fn serialize_some<S: Serializer>(
        duration: &Option<Duration>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match duration {
            Some(duration) => serialize(duration, serializer),
            None => serializer.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.strip_suffix('s')
            .and_then(|number| number.parse().ok())
            .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
            .ok_or_else(|| {
                D::Error::custom(format!("`{text}` is not a duration: write seconds as in \"1.5s\""))
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fates(seed: u64) -> Vec<Option<Fate>> {
        let faults = Faults {
            lose: 0.1,
            duplicate: 0.1,
            delay: 0.1,
            reorder: 0.1,
            longest_delay: Duration::from_secs(5),
            ..Faults::default()
        };
        let mut rng = SeededRng::new(seed, Purpose::Messages);
        (0..10_000).map(|_| faults.fate(&mut rng)).collect()
    }

    #[test]
    fn the_same_seed_gives_the_same_faults_and_another_seed_others() {
        assert_eq!(fates(1), fates(1));
        assert_ne!(fates(1), fates(2));
    }

    #[test]
    fn each_fault_is_about_as_frequent_as_asked() {
        let fates = fates(3);
        let lost = fates.iter().filter(|fate| fate.is_none()).count();
        let twice = fates.iter().filter(|fate| **fate == Some(Fate::Twice)).count();
        let on_time = fates.iter().filter(|fate| **fate == Some(Fate::OnTime)).count();
        assert!((900..1100).contains(&lost), "{lost} lost");
        assert!((700..920).contains(&twice), "{twice} twice: a tenth of those neither lost nor late");
        assert!((6300..6800).contains(&on_time), "{on_time} on time");
    }

    #[test]
    fn no_fault_is_the_default_and_draws_nothing() {
        let mut rng = SeededRng::new(1, Purpose::Messages);
        let before = rng.0;
        assert_eq!(Faults::default().fate(&mut rng), Some(Fate::OnTime));
        assert_eq!(rng.0, before);
    }

    #[test]
    fn faults_are_read_from_json_and_written_as_they_were_read() {
        let json = r#"{"seed": 7, "lose": 0.25, "longest_delay": "1.5s", "methods": ["Publish"]}"#;
        let faults: Faults = serde_json::from_str(json).unwrap();
        assert_eq!((faults.lose, faults.longest_delay), (0.25, Duration::from_millis(1500)));
        assert_eq!(serde_json::from_str::<Faults>(&serde_json::to_string(&faults).unwrap()).unwrap(), faults);
    }

    #[test]
    fn rejects_invalid_faults_with_an_explanation() {
        let refusal = |json| serde_json::from_str::<Faults>(json).unwrap_err().to_string();
        assert!(refusal(r#"{"lose": 1.5}"#).starts_with("1.5 is not a probability: give one from 0"));
        assert!(refusal(r#"{"slow": "soon"}"#).starts_with("`soon` is not a duration"));
        assert!(refusal(r#"{"loose": 0.5}"#).contains("unknown field `loose`"));
    }
}
