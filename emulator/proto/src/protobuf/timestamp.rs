//! `google.protobuf.Timestamp`: in JSON a date and time of RFC 3339, as `2026-11-21T17:38:07.195Z`.

use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, SecondsFormat, Timelike, Utc};
use serde::de::{Deserialize, Deserializer, Visitor};
use serde::ser::{Error as _, Serialize, Serializer};

use super::NANOS_PER_SECOND;

/// The first and the last second of the years 1 to 9999.
const SECONDS: std::ops::RangeInclusive<i64> = -62_135_596_800..=253_402_300_799;

/// A point in time.
///
/// ```
/// use wakeq_emulator_proto::protobuf::Timestamp;
///
/// let time: Timestamp = "1970-01-01T01:00:07.5+01:00".parse().unwrap();
/// assert_eq!(time, Timestamp { seconds: 7, nanos: 500_000_000 });
/// assert_eq!(serde_json::to_string(&time).unwrap(), r#""1970-01-01T00:00:07.500Z""#);
/// ```
#[derive(Clone, Copy, Eq, Hash, PartialEq, prost::Message)]
pub struct Timestamp {
    /// Whole seconds since the beginning of 1970 (UTC); negative before it.
    #[prost(int64, tag = "1")]
    pub seconds: i64,
    /// Nanoseconds after that second, 0 to 999,999,999.
    #[prost(int32, tag = "2")]
    pub nanos: i32,
}

/// A time, or its text, that is none.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum InvalidTimestamp {
    /// The text has another form.
    #[error(
        "a timestamp is written as in RFC 3339, with an offset or Z and at most nine digits of a second: \
         2026-11-21T17:38:07.195Z"
    )]
    Form,
    /// Before the year 1 or after 9999; of a message also: a second or more of nanoseconds, or
    /// negative ones.
    #[error("a timestamp must be in the years 1 to 9999 (UTC), with 0 to 999999999 nanoseconds")]
    Range,
}

impl Timestamp {
    fn text(self) -> Result<String, InvalidTimestamp> {
        let nanos = u32::try_from(self.nanos).ok().filter(|nanos| *nanos < NANOS_PER_SECOND);
        let nanos = nanos.filter(|_| SECONDS.contains(&self.seconds)).ok_or(InvalidTimestamp::Range)?;
        let time = DateTime::<Utc>::from_timestamp(self.seconds, nanos).ok_or(InvalidTimestamp::Range)?;
        Ok(time.to_rfc3339_opts(SecondsFormat::AutoSi, true))
    }
}

impl FromStr for Timestamp {
    type Err = InvalidTimestamp;

    fn from_str(text: &str) -> Result<Self, InvalidTimestamp> {
        let time = DateTime::parse_from_rfc3339(text).map_err(|_| InvalidTimestamp::Form)?;
        let fraction = text.split_once('.').map_or("", |(_, rest)| rest);
        let digits = fraction.bytes().take_while(u8::is_ascii_digit).count();
        // A leap second, which is read as nanoseconds beyond a second, has no number.
        if digits > 9 || time.nanosecond() >= NANOS_PER_SECOND {
            return Err(InvalidTimestamp::Form);
        }
        if !SECONDS.contains(&time.timestamp()) {
            return Err(InvalidTimestamp::Range);
        }
        Ok(Self { seconds: time.timestamp(), nanos: time.nanosecond().cast_signed() })
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text().map_err(S::Error::custom)?)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;

        impl Visitor<'_> for Text {
            type Value = Timestamp;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a timestamp as a string: \"2026-11-21T17:38:07.195Z\"")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Timestamp, E> {
                text.parse().map_err(|error| E::custom(format_args!("{text:?}: {error}")))
            }
        }
        deserializer.deserialize_str(Text)
    }
}
