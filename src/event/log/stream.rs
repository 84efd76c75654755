//! Categories and streams, and an event that stands in one.

use std::fmt;
use std::str::FromStr;

use crate::event::{CanvasId, EventId, Name, Place, Timestamp};

/// The most characters of a category's or a stream's name.
const NAME_MAX: usize = 200;

/// A text that names no category and no stream.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} names no {what}: use 1 to 200 of the characters A-Z a-z 0-9 _ . : @ = + ~ -")]
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

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.pad(&self.0)
            }
        }
    )*};
}

names! {
    /// What kind of streams belong together, such as `companies`: 1 to 200 of the characters `A-Z a-z 0-9 _ . : @ = + ~ -`.
    ///
    /// ```
    /// assert!("companies".parse::<wakeq::Category>().is_ok());
    /// assert!("no spaces".parse::<wakeq::Category>().is_err());
    /// ```
    Category "category";
    /// One thing's events within a category, such as `company-7`: 1 to 200 of the characters `A-Z a-z 0-9 _ . : @ = + ~ -`.
    ///
    /// ```
    /// assert!("company-7".parse::<wakeq::StreamName>().is_ok());
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
    /// The stream's name in it.
    pub name: StreamName,
}

impl Category {
    /// What the categories of entities begin with: nobody else appends there.
    pub(crate) const ENTITIES_PREFIX: &'static str = "entities:";

    /// Whether it is one of the entities'.
    pub(crate) fn is_reserved(&self) -> bool {
        self.0.starts_with(Self::ENTITIES_PREFIX)
    }
}

impl StreamId {
    /// The stream `name` of a category.
    ///
    /// ```
    /// use wakeq::{CanvasId, StreamId};
    ///
    /// let company = StreamId::new(CanvasId::DEFAULT, "companies", "company-7").unwrap();
    /// assert_eq!(company.category.as_str(), "companies");
    /// ```
    pub fn new(canvas: CanvasId, category: &str, name: &str) -> Result<Self, InvalidLogName> {
        Ok(Self { canvas, category: category.parse()?, name: name.parse()? })
    }

    /// A number of 16 bits that this stream has for ever: partitions are made of it, so it must never be computed otherwise.
    pub fn bucket(&self) -> u16 {
        let parts = [self.canvas.0.as_bytes().as_slice(), self.category.0.as_bytes(), self.name.0.as_bytes()];
        u16::try_from(stable_hash(&parts) >> 48).unwrap_or_default()
    }
}

/// As `CATEGORY/STREAM`, without its canvas.
impl fmt::Display for StreamId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.category, self.name)
    }
}

/// A hash that is the same in every process and every release: FNV-1a over the parts, each with its end, then mixed so that
/// all of its bits depend on all of the text.
pub(crate) fn stable_hash(parts: &[&[u8]]) -> u64 {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in parts.iter().flat_map(|part| part.iter().chain(&[0xff])) {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

/// An event of the log. It never changes; that of an entity may be erased.
#[derive(Clone, Debug, PartialEq)]
pub struct LogEvent {
    /// Its number in the log. Within a stream it grows with the position; numbers may be missing.
    pub seq: i64,
    /// The `seq` of the event before it in its stream; 0 for the first.
    pub prev: i64,
    /// Its own id.
    pub id: EventId,
    /// Where it stands.
    pub stream: StreamId,
    /// Its place in the stream: 0, 1, 2, …
    pub position: i64,
    /// What happened, such as `opened`.
    pub name: Name,
    /// Its value, as JSON.
    pub payload: String,
    /// What is known about it besides, a JSON object.
    pub metadata: String,
    /// The object it was emitted on, and its link there, if it was.
    pub place: Option<Place>,
    /// When it was appended: the beginning of that transaction.
    pub appended_at: Timestamp,
}

impl LogEvent {
    /// Bytes of its payload and its metadata.
    pub fn size_bytes(&self) -> usize {
        self.payload.len() + self.metadata.len()
    }
}

/// How much of a source is read at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageLimit {
    /// Most events.
    pub events: usize,
    /// Most bytes of their payloads and metadata. One event comes in any case.
    pub bytes: usize,
}

impl PageLimit {
    /// Most bytes of a page, where nothing else is said: 4 MiB.
    pub const BYTES: usize = 4 * 1024 * 1024;
}

/// A part of a source, in its order.
#[derive(Clone, Debug, PartialEq)]
pub struct LogPage {
    /// The events, the earliest first.
    pub events: Vec<LogEvent>,
    /// Up to which `seq` the source was looked through: where the next page begins. Never less than what was asked for.
    pub through: i64,
    /// Whether there may be more beyond it now.
    pub more: bool,
    /// Whether there is more beyond it that can't be read yet, because a transaction that appends is still open.
    pub held: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Partitions of running deployments are made of these: other numbers would lose events.
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
    fn a_name_that_is_none_is_refused() {
        for text in ["", "a b", "a/b", "é", &"x".repeat(201)] {
            assert!(text.parse::<Category>().is_err() && text.parse::<StreamName>().is_err(), "{text:?}");
        }
        assert!("x".repeat(200).parse::<Category>().is_ok());
    }
}
