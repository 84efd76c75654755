//! The broker's time: handed in by whoever asks, never read from a clock here.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pbjson_types::Timestamp;

const NANOS_PER_SECOND: u128 = 1_000_000_000;

/// A point in time: what has passed since 1970 (UTC).
///
/// ```
/// use std::time::Duration;
/// use wakeq_emulator::broker::Time;
///
/// let monday = Time::from_secs(1_700_000_000);
/// assert_eq!((monday + Duration::from_secs(60)).since(monday), Duration::from_secs(60));
/// ```
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Time(Duration);

impl Time {
    /// So many seconds after the beginning of 1970.
    pub const fn from_secs(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }

    /// How long it is after an earlier time; zero if that is not earlier.
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// So much earlier, but not before 1970.
    pub fn before(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(duration))
    }

    /// What this machine's clock says.
    pub(crate) fn now() -> Self {
        SystemTime::now().into()
    }

    /// As a message says it. `None` before 1970, or when the nanoseconds are not some.
    pub(crate) fn from_timestamp(timestamp: &Timestamp) -> Option<Self> {
        let seconds = u64::try_from(timestamp.seconds).ok()?;
        let nanos =
            u32::try_from(timestamp.nanos).ok().filter(|nanos| u128::from(*nanos) < NANOS_PER_SECOND)?;
        Some(Self(Duration::new(seconds, nanos)))
    }

    /// As a message says it.
    pub(crate) fn timestamp(self) -> Timestamp {
        let seconds = i64::try_from(self.0.as_secs()).unwrap_or(i64::MAX);
        Timestamp { seconds, nanos: self.0.subsec_nanos().cast_signed() }
    }
}

impl From<SystemTime> for Time {
    fn from(time: SystemTime) -> Self {
        Self(time.duration_since(UNIX_EPOCH).unwrap_or_default())
    }
}

impl std::ops::Add<Duration> for Time {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(duration))
    }
}
