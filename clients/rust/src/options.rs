//! What an event asks for in place of its handler's policy.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

/// What an event asks for in place of what its handler's route or target says. Nothing, unless set.
///
/// ```
/// use std::time::Duration;
/// use wakeq_client::{EventOptions, NewEvent};
///
/// # fn example() -> Result<(), wakeq_client::Error> {
/// let delays = [1, 10, 600].map(Duration::from_secs);
/// let options = EventOptions::default().retries(5).delays(delays).timeout(Duration::from_secs(30));
/// let options = options.limit("customer:7").urgent();
/// let event = NewEvent::new("call-back", &42)?.options(options);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct EventOptions {
    /// Retries after the first failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retries: Option<u32>,
    /// Seconds before the retries, in their order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delays_s: Option<Vec<f64>>,
    /// Seconds after which an attempt is cut off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_s: Option<f64>,
    /// Moment after which no attempt starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_after: Option<DateTime<Utc>>,
    /// Seconds for which the event is kept after it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep_s: Option<KeepSeconds>,
    /// Tags by which the event is found.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// Keys under which limits count the event.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<String>,
    /// Whether workers start the event before those that are not urgent.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub urgent: bool,
}

/// For how many seconds an event is kept after it has ended: one number for every outcome, or one
/// for each.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
#[non_exhaustive]
pub enum KeepSeconds {
    /// However the event ends.
    All(f64),
    /// By outcome.
    Each {
        /// If it completes.
        #[serde(default)]
        completed: f64,
        /// If it fails with an error value.
        #[serde(default)]
        failed: f64,
        /// If it is cancelled.
        #[serde(default)]
        cancelled: f64,
    },
}

impl EventOptions {
    /// Sets the retries after the first failure: 1,000 at most.
    pub fn retries(self, retries: u32) -> Self {
        Self { retries: Some(retries), ..self }
    }

    /// Sets the delays before the retries: up to 100, each of 30 days at most. The last one counts
    /// for all further retries.
    pub fn delays(self, delays: impl IntoIterator<Item = Duration>) -> Self {
        let delays_s = delays.into_iter().map(|delay| delay.as_secs_f64()).collect();
        Self { delays_s: Some(delays_s), ..self }
    }

    /// Sets the time after which an attempt is cut off: up to 30 days, or 10 minutes for an HTTP
    /// target.
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout_s: Some(timeout.as_secs_f64()), ..self }
    }

    /// Sets for how long the event is kept after it has ended, with its result: 90 days at most,
    /// and zero for not at all.
    pub fn keep(self, time: Duration) -> Self {
        Self { keep_s: Some(KeepSeconds::All(time.as_secs_f64())), ..self }
    }

    /// The same with a time for each outcome: if it completes, fails with an error value, and is
    /// cancelled.
    pub fn keep_by_outcome(self, completed: Duration, failed: Duration, cancelled: Duration) -> Self {
        let [completed, failed, cancelled] = [completed, failed, cancelled].map(|time| time.as_secs_f64());
        Self { keep_s: Some(KeepSeconds::Each { completed, failed, cancelled }), ..self }
    }

    /// Adds a tag by which the event is found: up to ten of 1 to 100 printable ASCII characters,
    /// without commas.
    pub fn tag(mut self, tag: &str) -> Self {
        self.tags.push(tag.to_owned());
        self
    }

    /// Adds a key under which limits count the event, beside its handler and its canvas: up to
    /// three of 1 to 200 of the characters `A-Z a-z 0-9 _ . : @ = + ~ -`.
    pub fn limit(mut self, key: &str) -> Self {
        self.limits.push(key.to_owned());
        self
    }

    /// Makes the event urgent: workers start it before those that are not.
    pub fn urgent(self) -> Self {
        Self { urgent: true, ..self }
    }

    /// Sets the moment after which no attempt starts: the event then dies.
    pub fn not_after(self, moment: DateTime<Utc>) -> Self {
        Self { not_after: Some(moment), ..self }
    }
}
