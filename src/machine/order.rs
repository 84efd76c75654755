//! The protocol for consumers outside wakeq that process the events of an object in order.
//!
//! A consumer stores one number per object, in the same transaction as an event's effect: the id of
//! the last event that it consumed, 0 before the first. Events may arrive any number of times and
//! in any order: for each one, [`consume`] says what to do. `docs/order.md` describes the protocol
//! for other languages.

use crate::event::Link;

/// What to do with an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Consumption {
    /// Consume it now, and store its id as the last.
    Consume,
    /// An event before it has not been consumed: put it back and process it later.
    Delay,
    /// It has already been consumed: acknowledge it and do nothing.
    Done,
}

impl Consumption {
    /// The decision as one word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Consume => "consume",
            Self::Delay => "delay",
            Self::Done => "done",
        }
    }
}

/// Advances `last` over tombstones, given in the order of the chain: each is consumed like an event
/// without an effect. A tombstone whose predecessor has not been consumed is not, nor what follows
/// it.
///
/// ```
/// use wakeq::machine::{Consumption, Link, consume, pass_over};
///
/// let (event, cancelled) = (Link { id: 12, prev: 9 }, Link { id: 9, prev: 7 });
/// assert_eq!(consume(7, event), Consumption::Delay);
/// assert_eq!(consume(pass_over(7, [cancelled]), event), Consumption::Consume);
/// assert_eq!(pass_over(3, [cancelled]), 3);
/// ```
pub fn pass_over(last: i64, tombstones: impl IntoIterator<Item = Link>) -> i64 {
    tombstones.into_iter().fold(last, |last, link| match consume(last, link) {
        Consumption::Consume => link.id,
        Consumption::Delay | Consumption::Done => last,
    })
}

/// Decides what to do with an event. `last` is the id of the object's last consumed event, or 0.
///
/// ```
/// use wakeq::machine::{Consumption, Link, consume};
///
/// assert_eq!(consume(0, Link { id: 7, prev: 0 }), Consumption::Consume);
/// assert_eq!(consume(7, Link { id: 12, prev: 9 }), Consumption::Delay);
/// assert_eq!(consume(7, Link { id: 9, prev: 7 }), Consumption::Consume);
/// assert_eq!(consume(9, Link { id: 7, prev: 0 }), Consumption::Done);
/// ```
pub fn consume(last: i64, link: Link) -> Consumption {
    if link.id <= last {
        Consumption::Done
    } else if link.prev <= last {
        Consumption::Consume
    } else {
        Consumption::Delay
    }
}
