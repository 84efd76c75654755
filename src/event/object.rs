//! Objects: what events are ordered by. Their keys, the links of their chains, and the lanes in which they wait.

use std::fmt;
use std::str::FromStr;

use super::{CanvasId, HandlerScope, Name};

/// The most characters of an object's key.
const KEY_MAX: usize = 200;

/// What events are ordered by: 1 to 200 of the characters `A-Z a-z 0-9 _ . : @ = + ~ -`, such as `work:1`.
///
/// A part of an object is written after a `/`, and belongs to its main object: all events about either are in one chain.
///
/// ```
/// use wakeq::ObjectKey;
///
/// let work: ObjectKey = "work:1".parse().unwrap();
/// assert_eq!("work:1/post:7".parse::<ObjectKey>().unwrap(), work);
/// assert!("no spaces".parse::<ObjectKey>().is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey(Box<str>);

/// A text that names no object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} names no object: use 1 to 200 of the characters A-Z a-z 0-9 _ . : @ = + ~ - and, before a part of it, /"
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
        let is_key = |part: &str| (1..=KEY_MAX).contains(&part.len()) && part.bytes().all(valid);
        let mut parts = text.split('/');
        let main = parts.next().filter(|main| is_key(main));
        match main.filter(|_| parts.all(is_key)) {
            Some(main) => Ok(Self(main.into())),
            None => Err(InvalidObjectKey { text: text.chars().take(128).collect() }),
        }
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(&self.0)
    }
}

/// An event's link in the chain of its object. `prev` is always smaller than `id`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Link {
    /// The event's number, from one sequence for all objects.
    pub id: i64,
    /// The number of the object's event before it; 0 for its first.
    pub prev: i64,
}

/// An event's place: its object, and its link in the object's chain.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The main object.
    pub object: ObjectKey,
    /// Its link there.
    pub link: Link,
}

impl Place {
    /// The columns of an event, which the schema holds to the same rules; none, if it is on no object.
    pub(crate) fn of(object: Option<&str>, seq: Option<i64>, prev: Option<i64>) -> Option<Self> {
        let (object, id, prev) = (object?.parse().ok()?, seq?, prev?);
        Some(Self { object, link: Link { id, prev } })
    }
}

/// The events of an object in one queue: they run one after the other, in the order of the chain. A queue is a handler
/// with all its modifiers, or a registered queue, whatever handlers its events name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lane {
    /// The handler; in a registered queue the one that an event of the lane names.
    pub scope: HandlerScope,
    /// The object.
    pub object: ObjectKey,
    /// The registered queue, if it is in one.
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
    /// It is on no object, or the first that is left of its lane.
    First,
    /// An earlier one of its lane is left.
    Behind,
    /// The lane stands still: an event of it died.
    Halted,
    /// Its canvas gets nothing of its queue now: it is paused there, or has as many in flight as it may.
    Held,
    /// The same, and turns have passed it over: it has to be recalled before its notification may be answered.
    Passed,
}

impl Turn {
    /// What the statements call it: nothing, `behind`, `halted`, `held` or `passed`.
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

    // ORD-06
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
