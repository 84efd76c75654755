//! Decides what an entity's processor does with an event that arrives for the first time or again.
//!
//! An entity stores the link of the last event that was decided, i.e. stored or rejected. An event
//! that is sent again carries its original link.

use wakeq::machine::{Consumption, Link, consume};

/// What to do with an event of an entity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EntityDecision {
    /// It is the most recent event and undecided: process it.
    Process,
    /// It is the most recent event and already decided: skip it, and send its result again.
    AnswerAgain,
    /// It is older, and in the repository: skip it, with success.
    Done,
    /// An event before it, or the first one with its link, has not arrived yet.
    Delay,
    /// It is older, and not in the repository: it must no longer be processed.
    Refuse,
}

impl EntityDecision {
    /// The decision in a word or two.
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

/// Decides what to do with the event `link`. `last` is the link of the last event that the entity
/// decided, 0 if there is none. `stored` says whether this event is in the repository, and only
/// matters for events older than `last`.
///
/// `seen` is how far the entity's inbox has been read. Events up to there that were not decided,
/// because they died or were sent again, leave no gap. The next event has the link `seen` + 1; a
/// larger link has not been assigned yet, so its event is delayed: deciding it would make all
/// events sent until then older than the last.
///
/// ```
/// use wakeq::machine::Link;
/// use wakeq_streams::machine::{EntityDecision, decide_event};
///
/// let link = Link { id: 9, prev: 7 };
/// assert_eq!(decide_event(7, 8, link, false), EntityDecision::Process);
/// assert_eq!(decide_event(9, 9, link, true), EntityDecision::AnswerAgain);
/// assert_eq!(decide_event(12, 12, link, true), EntityDecision::Done);
/// assert_eq!(decide_event(12, 12, link, false), EntityDecision::Refuse);
/// assert_eq!(decide_event(5, 6, link, false), EntityDecision::Delay);
/// assert_eq!(decide_event(0, 6, Link { id: i64::MAX, prev: 0 }, false), EntityDecision::Delay);
/// ```
pub fn decide_event(last: i64, seen: i64, link: Link, stored: bool) -> EntityDecision {
    if link.id > seen.saturating_add(1) {
        return EntityDecision::Delay;
    }
    let prev = if link.prev <= seen { link.prev.min(last) } else { link.prev };
    match consume(last, Link { id: link.id, prev }) {
        Consumption::Consume => EntityDecision::Process,
        Consumption::Delay => EntityDecision::Delay,
        Consumption::Done if link.id == last => EntityDecision::AnswerAgain,
        Consumption::Done if stored => EntityDecision::Done,
        Consumption::Done => EntityDecision::Refuse,
    }
}
