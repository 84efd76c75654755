//! Unique keys of events, and what an emit did that found one taken.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A unique key: of the events for one handler on a canvas, at most one has the key at a time. It
/// is taken while its event waits, and an event that has it is kept, unless set otherwise.
///
/// ```
/// use std::time::Duration;
/// use wakeq_client::{NewEvent, Unique};
///
/// # fn example() -> Result<(), wakeq_client::Error> {
/// // Starts 5 s after the last change, and at most a minute after the first.
/// let quiet = Unique::key("invoice:42").postpone(Duration::from_secs(5), Duration::from_secs(60));
/// let event = NewEvent::new("recompute", &42)?.unique(quiet);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Serialize)]
pub struct Unique {
    key: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    remember_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    on_conflict: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    postpone_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    at_most_s: Option<f64>,
}

impl Unique {
    /// A key of 1 to 255 visible ASCII characters.
    pub fn key(key: &str) -> Self {
        Self {
            key: key.to_owned(),
            until: None,
            remember_s: None,
            on_conflict: None,
            postpone_s: None,
            at_most_s: None,
        }
    }

    /// The key is taken until its event has ended, with all its retries.
    pub fn until_ended(self) -> Self {
        Self { until: Some("ended"), remember_s: None, ..self }
    }

    /// The key is taken until its event has ended, and at least until this long after it was due.
    pub fn remembered_for(self, time: Duration) -> Self {
        Self { until: Some("ended"), remember_s: Some(time.as_secs_f64()), ..self }
    }

    /// An event that waits with the key gets the new value and due time.
    pub fn replace(self) -> Self {
        Self { on_conflict: Some("replace"), postpone_s: None, at_most_s: None, ..self }
    }

    /// An event that waits with the key gets the new value, and is due this long from now, but at
    /// most `at_most` after it was emitted.
    pub fn postpone(self, by: Duration, at_most: Duration) -> Self {
        let (postpone_s, at_most_s) = (Some(by.as_secs_f64()), Some(at_most.as_secs_f64()));
        Self { on_conflict: Some("postpone"), postpone_s, at_most_s, ..self }
    }
}

/// What was done with an event that has a unique key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Outcome {
    /// The key was free: the event is new.
    Inserted,
    /// The event that has the key, or had it and is remembered, stays as it is.
    Kept,
    /// The event that waited with the key was replaced.
    Replaced,
    /// The event that waited with the key was postponed.
    Postponed,
    /// One that this version does not know.
    #[serde(other)]
    Other,
}
