//! The broker's time: passed in by its callers, never read from a clock here.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::proto::protobuf::Timestamp;

const NANOS_PER_SECOND: u128 = 1_000_000_000;

/// A point in time: the duration since 1970 (UTC).
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
    /// This many seconds after the beginning of 1970.
    pub const fn from_secs(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }

    /// The duration since an earlier time; zero if that is not earlier.
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// This much earlier, but not before 1970.
    pub fn before(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(duration))
    }

    /// This time without what is less than a millisecond.
    pub(crate) fn in_whole_millis(self) -> Self {
        Self(Duration::new(self.0.as_secs(), self.0.subsec_millis() * 1_000_000))
    }

    /// Microseconds since 1970.
    pub(crate) fn micros(self) -> u64 {
        u64::try_from(self.0.as_micros()).unwrap_or(u64::MAX)
    }

    /// The time of this machine's clock.
    pub(crate) fn now() -> Self {
        SystemTime::now().into()
    }

    /// Converts from protobuf. `None` if it is before 1970, or the nanoseconds are invalid.
    pub(crate) fn from_timestamp(timestamp: &Timestamp) -> Option<Self> {
        let seconds = u64::try_from(timestamp.seconds).ok()?;
        let nanos =
            u32::try_from(timestamp.nanos).ok().filter(|nanos| u128::from(*nanos) < NANOS_PER_SECOND)?;
        Some(Self(Duration::new(seconds, nanos)))
    }

    /// Converts to protobuf.
    pub(crate) fn timestamp(self) -> Timestamp {
        let seconds = i64::try_from(self.0.as_secs()).unwrap_or(i64::MAX);
        Timestamp { seconds, nanos: self.0.subsec_nanos().cast_signed() }
    }

    /// Formats the time like `2023-11-14T22:13:20.000+00:00`.
    pub(crate) fn rfc3339(self) -> String {
        let (days, seconds) = (self.0.as_secs() / 86_400, self.0.as_secs() % 86_400);
        let (year, month, day) = date(days);
        format!(
            "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{:03}+00:00",
            seconds / 3_600,
            seconds / 60 % 60,
            seconds % 60,
            self.0.subsec_millis()
        )
    }
}

/// The date this many days after the beginning of 1970. Years are counted from 1 March, so that a
/// leap day is the last of its year (and every five months have 153 days).
fn date(days: u64) -> (u64, u64, u64) {
    const DAYS_IN_400_YEARS: u64 = 146_097;
    const FROM_MARCH_OF_YEAR_0_TO_1970: u64 = 719_468;
    let days = days + FROM_MARCH_OF_YEAR_0_TO_1970;
    let (cycle, day_of_cycle) = (days / DAYS_IN_400_YEARS, days % DAYS_IN_400_YEARS);
    let leap_days = day_of_cycle / 1_460 + day_of_cycle / (DAYS_IN_400_YEARS - 1);
    let year_of_cycle = (day_of_cycle + day_of_cycle / 36_524 - leap_days) / 365;
    let day_of_year = day_of_cycle - (365 * year_of_cycle + year_of_cycle / 4 - year_of_cycle / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = 400 * cycle + year_of_cycle + u64::from(month <= 2);
    (year, month, day)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_dates() {
        let table = [
            (0, "1970-01-01T00:00:00.000+00:00"),
            (951_782_399, "2000-02-28T23:59:59.000+00:00"),
            (951_782_400, "2000-02-29T00:00:00.000+00:00"),
            (951_868_800, "2000-03-01T00:00:00.000+00:00"),
            (1_709_164_800, "2024-02-29T00:00:00.000+00:00"),
            (1_735_689_599, "2024-12-31T23:59:59.000+00:00"),
            (1_735_689_600, "2025-01-01T00:00:00.000+00:00"),
            (4_107_542_400, "2100-03-01T00:00:00.000+00:00"),
        ];
        for (seconds, text) in table {
            assert_eq!(Time::from_secs(seconds).rfc3339(), text);
        }
        let fraction = Time::from_secs(1_700_000_000) + Duration::from_millis(7);
        assert_eq!(fraction.rfc3339(), "2023-11-14T22:13:20.007+00:00");
    }
}
