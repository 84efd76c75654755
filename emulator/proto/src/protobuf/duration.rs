//! `google.protobuf.Duration`: in JSON decimal seconds and an `s`, as `1.500s`.

use std::fmt;
use std::str::FromStr;

use serde::de::{Deserialize, Deserializer, Visitor};
use serde::ser::{Error as _, Serialize, Serializer};

use super::{NANOS_PER_SECOND, fraction, nanos};

/// Ten thousand years, either way.
const SECONDS_MAX: i64 = 315_576_000_000;

/// A span of time, perhaps a negative one.
///
/// ```
/// use wakeq_emulator_proto::protobuf::Duration;
///
/// let duration: Duration = "1.5s".parse().unwrap();
/// assert_eq!(duration, Duration { seconds: 1, nanos: 500_000_000 });
/// assert_eq!(serde_json::to_string(&duration).unwrap(), r#""1.500s""#);
/// ```
#[derive(Clone, Copy, Eq, Hash, PartialEq, prost::Message)]
pub struct Duration {
    /// Whole seconds.
    #[prost(int64, tag = "1")]
    pub seconds: i64,
    /// The rest, below a second, of the same sign.
    #[prost(int32, tag = "2")]
    pub nanos: i32,
}

/// A duration, or its text, that is none.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum InvalidDuration {
    /// The text has another form.
    #[error(
        "a duration is written in seconds, with at most nine digits after the point, and ends in s: 1.5s"
    )]
    Form,
    /// More than ten thousand years; of a message also: a second or more of nanoseconds, or with
    /// another sign than the seconds.
    #[error(
        "a duration must be within 315576000000 s of zero, with less than a second of nanoseconds of the same sign"
    )]
    Range,
}

impl Duration {
    fn text(self) -> Result<String, InvalidDuration> {
        let nanos = self.nanos.unsigned_abs();
        let opposed = i64::from(self.nanos.signum()) * self.seconds.signum() < 0;
        if opposed || nanos >= NANOS_PER_SECOND || !is_in_range(self.seconds, nanos) {
            return Err(InvalidDuration::Range);
        }
        let sign = if self.seconds < 0 || self.nanos < 0 { "-" } else { "" };
        Ok(format!("{sign}{}{}s", self.seconds.unsigned_abs(), fraction(nanos)))
    }
}

fn is_in_range(seconds: i64, nanos: u32) -> bool {
    let seconds = seconds.unsigned_abs();
    seconds < SECONDS_MAX.unsigned_abs() || (seconds == SECONDS_MAX.unsigned_abs() && nanos == 0)
}

impl FromStr for Duration {
    type Err = InvalidDuration;

    fn from_str(text: &str) -> Result<Self, InvalidDuration> {
        let number = text.strip_suffix('s').ok_or(InvalidDuration::Form)?;
        let (negative, number) = number.strip_prefix('-').map_or((false, number), |number| (true, number));
        let (whole, rest) = number.split_once('.').unwrap_or((number, "0"));
        let nanos = nanos(rest).ok_or(InvalidDuration::Form)?;
        if whole.is_empty() || !whole.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(InvalidDuration::Form);
        }
        // Digits that are too many for a number are out of range, too.
        let seconds = whole.parse::<i64>().map_err(|_| InvalidDuration::Range)?;
        if !is_in_range(seconds, nanos) {
            return Err(InvalidDuration::Range);
        }
        let nanos = nanos.cast_signed();
        Ok(if negative { Self { seconds: -seconds, nanos: -nanos } } else { Self { seconds, nanos } })
    }
}

impl Serialize for Duration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text().map_err(S::Error::custom)?)
    }
}

impl<'de> Deserialize<'de> for Duration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;

        impl Visitor<'_> for Text {
            type Value = Duration;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a duration as a string: \"1.5s\"")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Duration, E> {
                text.parse().map_err(|error| E::custom(format_args!("{text:?}: {error}")))
            }
        }
        deserializer.deserialize_str(Text)
    }
}
