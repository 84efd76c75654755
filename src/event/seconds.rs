//! Durations in the JSON of events: numbers of seconds.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A duration, as JSON a number of seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub(super) struct Seconds(pub(super) Duration);

impl TryFrom<f64> for Seconds {
    type Error = std::time::TryFromFloatSecsError;

    fn try_from(seconds: f64) -> Result<Self, Self::Error> {
        Duration::try_from_secs_f64(seconds).map(Self)
    }
}

impl From<Seconds> for f64 {
    fn from(seconds: Seconds) -> Self {
        // In one division, so that a decimal fraction is written as it was read.
        seconds.0.as_nanos() as f64 / 1e9
    }
}
