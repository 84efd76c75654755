//! The phases of an owner, each with what is known in it and nothing else.

use super::effect::OwnerEnd;
use super::input::OwnerFailure;

/// How far an owner is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OwnerPhase {
    /// Everything is read, except what an open transaction holds back.
    Wait { held: bool },
    /// Something failed that may succeed later.
    Retry,
    /// The position may have been moved from outside.
    LookAgain,
    /// The position has to be opened.
    Open,
    /// It was opened here: which entities are isolated?
    ReadIsolated { at: i64 },
    /// The entities have to be in memory.
    Load,
    /// A page is next.
    Read,
    /// A page is processed.
    Batch(PageState, BatchPhase),
    /// The position moves past the events of isolated entities.
    PassOver(PageState),
    /// The position moves past what was not for this type.
    CatchUp(PageState),
    /// It is the turn of the isolated entities.
    Attempt(AttemptPhase, Next),
    /// Something failed during an attempt that was counted.
    Uncount(Attempted, OwnerFailure),
    /// Another owner may have the inbox. Otherwise, a fatal failure ends this one.
    CheckEpoch { is_fatal: bool },
    /// Nothing more.
    End(OwnerEnd),
}

/// The page that is processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PageState {
    /// It goes up to this `seq`.
    pub(super) through: i64,
    /// There is more after it.
    pub(super) more: bool,
    /// An open transaction holds more back.
    pub(super) held: bool,
    /// Events of isolated entities were dropped from it.
    pub(super) passes: bool,
}

/// How far a batch is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BatchPhase {
    /// Which events are it?
    Choose,
    /// It is an erasure.
    Erase,
    /// It is an event that may have ended the previous owner: the attempt is counted first.
    Count { seq: i64 },
    /// Events hang, or have ended owners.
    Isolate(Suspects),
    /// It was one event, which hung and could not be isolated: that counts, too.
    CountStall { seq: i64 },
    /// Its entities have to be in memory.
    Prepare(Option<SingleEvent>),
    /// It is processed.
    Work { single: Option<SingleEvent>, most: usize },
    /// It was processed.
    Commit { single: Option<SingleEvent>, is_erasure: bool },
}

/// The event of a batch of one, with the number of attempts that have had no outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SingleEvent {
    pub(super) seq: i64,
    pub(super) losses: u32,
}

/// Events whose entities are isolated one after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Suspects {
    /// The events that are left, one of each entity.
    pub(super) left: Vec<i64>,
    /// The events of their entities up to here are processed one at a time.
    pub(super) single_through: i64,
    /// How many attempts at each of the events count already.
    pub(super) losses: u32,
    /// How many events the batch has.
    pub(super) events: usize,
    /// The attempt that is under way.
    pub(super) single: Option<SingleEvent>,
}

/// How far the turn of the isolated entities is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AttemptPhase {
    /// Has the attempt ended?
    Outcome,
    /// Nothing that was sent to the entity is left.
    TakeBack,
    /// An erasure is next.
    Erase { seq: i64 },
    /// Its events were processed, up to this `seq`.
    Commit { through: i64 },
    /// One of its events must not be stored: that was no attempt.
    Uncount,
    /// The next attempt may begin.
    Start,
}

/// Where an owner goes on after the turn of the isolated entities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// With the next batch of this page.
    InPage(PageState),
    /// With what follows this page.
    AfterPage(PageState),
}

/// An attempt that was counted before it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attempted {
    /// At an event of the inbox.
    Single { seq: i64 },
    /// At the first isolated entity.
    Isolated,
}

impl OwnerPhase {
    /// Whether a lost answer leaves open whether the position was moved by a commit.
    pub(super) fn is_commit(&self) -> bool {
        matches!(
            self,
            Self::Batch(_, BatchPhase::Commit { .. }) | Self::Attempt(AttemptPhase::Commit { .. }, _)
        )
    }

    /// The attempt that does not count if something fails now: whatever failed, it was not the
    /// event.
    pub(super) fn attempted(&self) -> Option<Attempted> {
        match self {
            Self::Batch(_, batch) => batch.single().map(|SingleEvent { seq, .. }| Attempted::Single { seq }),
            Self::Attempt(AttemptPhase::Uncount | AttemptPhase::Start, _) => None,
            Self::Attempt(
                AttemptPhase::Outcome
                | AttemptPhase::TakeBack
                | AttemptPhase::Erase { .. }
                | AttemptPhase::Commit { .. },
                _,
            ) => Some(Attempted::Isolated),
            Self::Wait { .. }
            | Self::Retry
            | Self::LookAgain
            | Self::Open
            | Self::ReadIsolated { .. }
            | Self::Load
            | Self::Read
            | Self::PassOver(_)
            | Self::CatchUp(_)
            | Self::Uncount(..)
            | Self::CheckEpoch { .. }
            | Self::End(_) => None,
        }
    }
}

impl BatchPhase {
    /// The event that is processed on its own, if the attempt has begun.
    fn single(&self) -> Option<SingleEvent> {
        match self {
            Self::Prepare(single) | Self::Work { single, .. } | Self::Commit { single, .. } => *single,
            Self::Isolate(suspects) => suspects.single,
            Self::Choose | Self::Erase | Self::Count { .. } | Self::CountStall { .. } => None,
        }
    }
}

impl Next {
    /// Whether the owner has nothing else to do.
    pub(super) fn is_idle(self) -> bool {
        match self {
            Self::InPage(_) => false,
            Self::AfterPage(page) => !page.more,
        }
    }
}
