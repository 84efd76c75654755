//! What the processor of an entity does with an event that reaches it, for the first time or again.
//!
//! An entity keeps the link of the last event that was decided upon: stored or rejected. Whoever sends an event again sends
//! it with the link that it had.

use super::{Consumption, consume};
use crate::event::Link;

/// What to do with an event of an entity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Repost {
    /// It is the most recent one, and nobody decided upon it yet: process it.
    Process,
    /// It is the most recent one, and was decided upon: skip it, and send its result again.
    AnswerAgain,
    /// It is older, and is in the repository: skip it, with success.
    Done,
    /// An event before it, or the first one with its link, has not come by yet.
    Delay,
    /// It is older, and is not in the repository: it must not be processed any more.
    Refuse,
}

impl Repost {
    /// In a word or two.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Process => "process",
            Self::AnswerAgain => "answer again",
            Self::Done => "done",
            Self::Delay => "delay",
            Self::Refuse => "refuse",
        }
    }
}

/// Decides by `last`, the link of the event that the entity decided upon last (0, if there is none), and whether the event
/// with this link is in the repository; that counts only for one that is older than the last.
///
/// `seen` is how far the entity's inbox was gone through. What came by before that without being decided upon, because it
/// died or was sent again, leaves no gap. What comes next has the link `seen` + 1; a larger one was given to nobody yet, and is
/// delayed: were it decided upon, all that is sent until then would be older.
///
/// ```
/// use wakeq::machine::{Link, Repost, repost};
///
/// let link = Link { id: 9, prev: 7 };
/// assert_eq!(repost(7, 8, link, false), Repost::Process);
/// assert_eq!(repost(9, 9, link, true), Repost::AnswerAgain);
/// assert_eq!(repost(12, 12, link, true), Repost::Done);
/// assert_eq!(repost(12, 12, link, false), Repost::Refuse);
/// assert_eq!(repost(5, 6, link, false), Repost::Delay);
/// assert_eq!(repost(0, 6, Link { id: i64::MAX, prev: 0 }, false), Repost::Delay);
/// ```
pub fn repost(last: i64, seen: i64, link: Link, stored: bool) -> Repost {
    if link.id > seen.saturating_add(1) {
        return Repost::Delay;
    }
    let prev = if link.prev <= seen { link.prev.min(last) } else { link.prev };
    match consume(last, Link { id: link.id, prev }) {
        Consumption::Consume => Repost::Process,
        Consumption::Delay => Repost::Delay,
        Consumption::Done if link.id == last => Repost::AnswerAgain,
        Consumption::Done if stored => Repost::Done,
        Consumption::Done => Repost::Refuse,
    }
}
