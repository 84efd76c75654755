//! Objects, by which events are ordered: their keys, the links of their chains, and their lanes.

use std::fmt;
use std::str::FromStr;

use super::handler::is_dots;
use serde::{Deserialize, Serialize};

use super::{CanvasId, HandlerScope, Name};

/// Longest key of an object, in characters.
const KEY_MAX: usize = 200;

/// The partition key by which events are ordered, such as `work:1`: 1 to 200 of the characters
/// `A-Z a-z 0-9 _ . : @ = + ~ -`, but neither `.` nor `..`, which no path can contain.
///
/// A part of an object is written after a `/` and belongs to its main object: events about the
/// object and about its parts form one chain.
///
/// ```
/// use wakeq::order::ObjectKey;
///
/// let work: ObjectKey = "work:1".parse().unwrap();
/// assert_eq!("work:1/post:7".parse::<ObjectKey>().unwrap(), work);
/// assert!("no spaces".parse::<ObjectKey>().is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct ObjectKey(Box<str>);

/// A text that is not a valid object key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is not a valid object: use 1 to 200 of the characters A-Z a-z 0-9 _ . : @ = + ~ -, \
     not . or .. alone, and, before a part of it, /"
)]
pub struct InvalidObjectKey {
    /// The refused text, cut to 128 characters.
    pub text: String,
}

impl ObjectKey {
    /// The key as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ObjectKey {
    type Err = InvalidObjectKey;

    fn from_str(text: &str) -> Result<Self, InvalidObjectKey> {
        let valid = |byte: u8| byte.is_ascii_alphanumeric() || b"_.:@=+~-".contains(&byte);
        let is_key =
            |part: &str| (1..=KEY_MAX).contains(&part.len()) && part.bytes().all(valid) && !is_dots(part);
        let mut parts = text.split('/');
        let main = parts.next().filter(|main| is_key(main));
        match main.filter(|_| parts.all(is_key)) {
            Some(main) => Ok(Self(main.into())),
            None => Err(InvalidObjectKey { text: text.chars().take(128).collect() }),
        }
    }
}

impl TryFrom<String> for ObjectKey {
    type Error = InvalidObjectKey;

    fn try_from(text: String) -> Result<Self, InvalidObjectKey> {
        text.parse()
    }
}

displayed_as_text!(ObjectKey);

/// An event's link in the chain of its object. `prev` is always smaller than `id`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Link {
    /// The event's number, from one sequence for all objects.
    pub id: i64,
    /// The number of the event before it on the object; 0 for the first.
    pub prev: i64,
}

/// An event's object and its link in the object's chain.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The main object.
    pub object: ObjectKey,
    /// The event's link in the object's chain.
    pub link: Link,
}

impl Place {
    /// Built from an event's columns, on which the schema enforces the same rules; `None` if the
    /// event is not on an object.
    pub(crate) fn of(object: Option<&str>, seq: Option<i64>, prev: Option<i64>) -> Option<Self> {
        let (object, id, prev) = (object?.parse().ok()?, seq?, prev?);
        Some(Self { object, link: Link { id, prev } })
    }
}

/// The events of an object in one queue: they run one at a time, in the order of the chain. A queue
/// is a handler with all its modifiers, or a registered queue, whatever handlers its events name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lane {
    /// The handler; in a registered queue, that of one of the lane's events.
    pub scope: HandlerScope,
    /// The object.
    pub object: ObjectKey,
    /// The registered queue, if the lane is in one.
    pub queue: Option<Name>,
}

impl Lane {
    pub(crate) fn canvas(&self) -> CanvasId {
        self.scope.canvas
    }
}

impl fmt::Display for Lane {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.queue {
            Some(queue) => formatter.pad(&format!("queue {queue} on {}", self.object)),
            None => formatter.pad(&format!("{} on {}", self.scope, self.object)),
        }
    }
}

/// Whether it is an event's turn in its lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Turn {
    /// Yes: it is the first event left in its lane, or not on an object.
    First,
    /// No: an earlier event of its lane is left.
    Behind,
    /// No: the lane is halted, because one of its events died.
    Halted,
    /// No: its canvas receives nothing from its queue at present, because it is paused there or at
    /// its limit in flight.
    Held,
    /// No, as for `Held`, and turns have passed over it: it has to be recalled before its
    /// notification may be acknowledged.
    Passed,
}

impl Turn {
    /// Parses the word in the statements' results: none, `behind`, `halted`, `held` or `passed`.
    pub(crate) fn parse(word: Option<&str>) -> Self {
        match word {
            Some("halted") => Self::Halted,
            Some("held") => Self::Held,
            Some("passed") => Self::Passed,
            Some(_) => Self::Behind,
            None => Self::First,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Shows: ORD-06
    #[test]
    fn a_part_of_an_object_belongs_to_its_main_object() {
        for text in ["work:1", "work:1/post:7", "work:1/source:2/page:3"] {
            assert_eq!(text.parse::<ObjectKey>().unwrap().as_str(), "work:1");
        }
    }

    #[test]
    fn texts_that_name_no_object_are_refused() {
        let long = "x".repeat(201);
        for text in ["", "/", "/post:7", "work:1/", "work:1//post", "a b", "é", "a%b", "a\"b", "a\n", &long]
        {
            assert!(text.parse::<ObjectKey>().is_err(), "{text:?}");
        }
        assert!(long[1..].parse::<ObjectKey>().is_ok());
    }
}
