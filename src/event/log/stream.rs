//! Categories and streams, and the events in them.

use std::fmt;
use std::str::FromStr;

use crate::event::{CanvasId, EventId, Name, Place, Timestamp};

/// Longest name of a category or a stream, in characters.
const NAME_MAX: usize = 200;

/// A text that is not a valid name of a category or a stream.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a valid {what}: use 1 to 200 of the characters A-Z a-z 0-9 _ . : @ = + ~ -")]
pub struct InvalidLogName {
    what: &'static str,
    /// The refused text, cut to 128 characters.
    pub text: String,
}

fn checked(what: &'static str, text: &str) -> Result<Box<str>, InvalidLogName> {
    let valid = |byte: u8| byte.is_ascii_alphanumeric() || b"_.:@=+~-".contains(&byte);
    if (1..=NAME_MAX).contains(&text.len()) && text.bytes().all(valid) {
        Ok(text.into())
    } else {
        Err(InvalidLogName { what, text: text.chars().take(128).collect() })
    }
}

macro_rules! names {
    ($($(#[$doc:meta])* $name:ident $what:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Box<str>);

        impl $name {
            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = InvalidLogName;

            fn from_str(text: &str) -> Result<Self, InvalidLogName> {
                checked($what, text).map(Self)
            }
        }

        displayed_as_text!($name);
    )*};
}

names! {
    /// The kind that a stream belongs to, such as `companies`: 1 to 200 of the characters
    /// `A-Z a-z 0-9 _ . : @ = + ~ -`.
    ///
    /// ```
    /// assert!("companies".parse::<wakeq::log::Category>().is_ok());
    /// assert!("no spaces".parse::<wakeq::log::Category>().is_err());
    /// ```
    Category "category";
    /// The name of a stream within its category, such as `company-7`: 1 to 200 of the characters
    /// `A-Z a-z 0-9 _ . : @ = + ~ -`.
    ///
    /// ```
    /// assert!("company-7".parse::<wakeq::log::StreamName>().is_ok());
    /// ```
    StreamName "stream";
}

/// A stream: the events of one thing, in the order in which they were appended.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId {
    /// The tenant.
    pub canvas: CanvasId,
    /// The category.
    pub category: Category,
    /// The stream's name within the category.
    pub name: StreamName,
}

impl Category {
    /// Prefix of the categories of entities; only entities append to these.
    #[doc(hidden)]
    pub const ENTITIES_PREFIX: &'static str = "entities:";

    /// Whether the category is reserved for entities.
    #[doc(hidden)]
    pub fn is_reserved(&self) -> bool {
        self.0.starts_with(Self::ENTITIES_PREFIX)
    }
}

impl StreamId {
    /// The stream `name` of a category.
    ///
    /// ```
    /// use wakeq::CanvasId;
    /// use wakeq::log::StreamId;
    ///
    /// let company = StreamId::new(CanvasId::DEFAULT, "companies", "company-7").unwrap();
    /// assert_eq!(company.category.as_str(), "companies");
    /// ```
    pub fn new(canvas: CanvasId, category: &str, name: &str) -> Result<Self, InvalidLogName> {
        Ok(Self { canvas, category: category.parse()?, name: name.parse()? })
    }

    /// The stream's 16-bit bucket, which must never change: partitions are derived from it.
    pub fn bucket(&self) -> u16 {
        let parts = [self.canvas.0.as_bytes().as_slice(), self.category.0.as_bytes(), self.name.0.as_bytes()];
        u16::try_from(stable_hash(&parts) >> 48).unwrap_or_default()
    }
}

/// `CATEGORY/STREAM`, without the canvas.
impl fmt::Display for StreamId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.category, self.name)
    }
}

/// A hash that is the same in every process and every release: FNV-1a over the parts, each with a
/// terminator, then mixed so that every bit depends on the whole text.
pub fn stable_hash(parts: &[&[u8]]) -> u64 {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in parts.iter().flat_map(|part| part.iter().chain(&[0xff])) {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

/// An event of the log. It never changes, but the events of an entity may be erased.
#[derive(Clone, Debug, PartialEq)]
pub struct LogEvent {
    /// Its sequence number in the log. It grows with the position in a stream, possibly with gaps.
    pub seq: i64,
    /// The `seq` of the event before it in its stream; 0 for the first.
    pub prev: i64,
    /// Its id.
    pub id: EventId,
    /// The stream it is in.
    pub stream: StreamId,
    /// Its position in the stream: 0, 1, 2, …
    pub position: i64,
    /// What happened, such as `opened`.
    pub name: Name,
    /// Its value as JSON.
    pub payload: String,
    /// Its metadata, a JSON object.
    pub metadata: String,
    /// The object it was emitted on and its link there, if any.
    pub place: Option<Place>,
    /// When the transaction that appended it began.
    pub appended_at: Timestamp,
}

impl LogEvent {
    /// Size of its payload and metadata in bytes.
    pub fn size_bytes(&self) -> usize {
        self.payload.len() + self.metadata.len()
    }
}

/// The limits of one read of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageLimit {
    /// Maximum number of events.
    pub events: usize,
    /// Maximum bytes of payloads and metadata. The first event is returned whatever its size.
    pub bytes: usize,
}

impl PageLimit {
    /// Default limit of a page in bytes: 4 MiB.
    pub const BYTES: usize = 4 * 1024 * 1024;
}

/// A page of a source, in order.
#[derive(Clone, Debug, PartialEq)]
pub struct LogPage {
    /// The events, earliest first.
    pub events: Vec<LogEvent>,
    /// The `seq` up to which the source was scanned, where the next page begins. Never less than
    /// the position that was asked for.
    pub through: i64,
    /// Whether more may be readable beyond it now.
    pub more: bool,
    /// Whether there are events beyond it that can't be read yet, because a transaction that
    /// appends is still open.
    pub held: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Partitions of running deployments are derived from these: other values would lose events.
    // Shows: SUB-34
    #[test]
    fn buckets_are_the_same_for_ever() {
        let bucket = |name: &str| StreamId::new(CanvasId::DEFAULT, "companies", name).unwrap().bucket();
        assert_eq!(["company-1", "company-2", "company-3"].map(bucket), BUCKETS);
    }

    const BUCKETS: [u16; 3] = [5_849, 28_941, 25_101];

    #[test]
    fn buckets_are_even() {
        let mut counts = [0_u32; 16];
        for number in 0..16_000 {
            let stream = StreamId::new(CanvasId::DEFAULT, "companies", &format!("company-{number}")).unwrap();
            counts[usize::from(stream.bucket() % 16)] += 1;
        }
        assert!(counts.iter().all(|count| (850..1150).contains(count)), "{counts:?}");
    }

    #[test]
    fn rejects_invalid_stream_and_category_names() {
        for text in ["", "a b", "a/b", "é", &"x".repeat(201)] {
            assert!(text.parse::<Category>().is_err() && text.parse::<StreamName>().is_err(), "{text:?}");
        }
        assert!("x".repeat(200).parse::<Category>().is_ok());
    }
}
