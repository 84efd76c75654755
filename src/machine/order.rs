//! What a consumer elsewhere does with an event of an object, from what it has seen of the object: the whole protocol.
//!
//! A consumer keeps one number per object: the id of the last event that it consumed, 0 before the first. It writes it
//! together with the event's effect, in one transaction. For each event that it is sent, however often and in whatever
//! order, [`consume`] says what to do. `docs/order.md` says it in words, for consumers in other languages.

use crate::event::Link;

/// What to do with an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Consumption {
    /// Consume it now, and remember its id as the last.
    Consume,
    /// An event before it was not consumed yet: put it back, and take it later.
    Delay,
    /// It was consumed before: confirm it, and do nothing.
    Done,
}

impl Consumption {
    /// In one word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Consume => "consume",
            Self::Delay => "delay",
            Self::Done => "done",
        }
    }
}

/// What `last` is once these tombstones, in the order of the chain, are passed over: each is consumed like an event, without an
/// effect. One whose predecessor is still to come is not, nor what follows it.
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

/// Decides by `last`, the id of the object's event that was consumed last, or 0.
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
