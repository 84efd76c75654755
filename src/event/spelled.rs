//! Durations as people write them, and as they can be given back: `365d`, `1h 30m`, `100ms`.

use std::fmt;
use std::time::Duration;

/// A duration in days, hours, minutes, seconds and fractions of them, without those that are zero.
#[derive(Clone, Copy, Debug)]
pub struct Spelled(pub Duration);

impl fmt::Display for Spelled {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, nanos) = (self.0.as_secs(), u64::from(self.0.subsec_nanos()));
        let parts = [
            (seconds / 86_400, "d"),
            (seconds / 3600 % 24, "h"),
            (seconds / 60 % 60, "m"),
            (seconds % 60, "s"),
            (nanos / 1_000_000, "ms"),
            (nanos / 1_000 % 1_000, "us"),
            (nanos % 1_000, "ns"),
        ];
        let mut separator = "";
        for (number, unit) in parts.into_iter().filter(|(number, _)| *number > 0) {
            write!(formatter, "{separator}{number}{unit}")?;
            separator = " ";
        }
        if separator.is_empty() { formatter.write_str("0s") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_spelled_in_its_own_units() {
        for (millis, spelled) in [
            (0, "0s"),
            (100, "100ms"),
            (60_000, "1m"),
            (5_400_500, "1h 30m 500ms"),
            (365 * 86_400_000, "365d"),
            (86_401_000, "1d 1s"),
        ] {
            assert_eq!(Spelled(Duration::from_millis(millis)).to_string(), spelled);
        }
        assert_eq!(Spelled(Duration::new(0, 1_002)).to_string(), "1us 2ns");
    }
}
