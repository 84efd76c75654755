//! The answers to the effects of an owner.

use crate::event::IsolatedEntity;

/// The answer to an effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OwnerInput {
    /// To `OwnerEffect::Wait` and `OwnerEffect::Retry`.
    Woken {
        /// The time was over before there was a signal.
        is_due: bool,
    },
    /// To `OwnerEffect::LookAgain`: where the position is, if it exists.
    Seen(Option<i64>),
    /// To `OwnerEffect::LookAgain`: there was no answer.
    NotSeen,
    /// To `OwnerEffect::Open`.
    Opened {
        /// Where the position is.
        at: i64,
        /// Whether the previous owner was lost. That is answered once.
        was_lost: bool,
    },
    /// To `OwnerEffect::ReadIsolated`: the first one is tried next.
    IsolatedRead(Vec<IsolatedEntity>),
    /// To `OwnerEffect::Load`.
    Loaded,
    /// To `OwnerEffect::Read`.
    Read {
        /// The page goes up to this `seq`.
        through: i64,
        /// Whether there is more after it.
        more: bool,
        /// Whether an open transaction holds more back.
        held: bool,
    },
    /// To `OwnerEffect::Choose`.
    Chosen {
        /// Whether events of isolated entities were dropped.
        passes: bool,
        /// The first event of the batch; `None` if nothing is left of the page.
        first: Option<FirstEvent>,
    },
    /// To `OwnerEffect::CountAttempt`: how many attempts have had no outcome, this one included.
    Counted(u32),
    /// To `OwnerEffect::Isolate`.
    Isolated(IsolatedEntity),
    /// To `OwnerEffect::Prepare`.
    Prepared,
    /// To `OwnerEffect::Work`.
    Worked(WorkEnd),
    /// To `OwnerEffect::Erase` and `OwnerEffect::EraseIsolated`.
    Erased,
    /// To `OwnerEffect::Commit` and `OwnerEffect::CommitIsolated`: where the position is now.
    Committed(i64),
    /// To `OwnerEffect::Commit`, unless it is an erasure: nothing was committed, because there are
    /// events that must not be stored, which were marked.
    Unstorable,
    /// To `OwnerEffect::CommitIsolated`: nothing was committed, because this event must not be
    /// stored, and why.
    IsolatedUnstorable(Option<(i64, String)>),
    /// To `OwnerEffect::Move`.
    Moved,
    /// To `OwnerEffect::TakeOutcome`; `None` if the attempt has not ended.
    Outcome(Option<AttemptEnd>),
    /// To `OwnerEffect::TakeBack`: whether the isolation has ended.
    TakenBack(bool),
    /// To `OwnerEffect::StartAttempt`.
    Started,
    /// To `OwnerEffect::UncountAttempt` and `OwnerEffect::UncountIsolated`, also without an
    /// answer.
    Uncounted,
    /// To `OwnerEffect::CheckEpoch`.
    Epoch {
        /// Whether it is still the owner's.
        is_own: bool,
    },
    /// To any effect.
    Failed(OwnerFailure),
}

/// The first event of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FirstEvent {
    /// Its `seq`.
    pub(crate) seq: i64,
    /// It erases its entity, and is the whole batch.
    pub(crate) is_erasure: bool,
}

/// How work on a batch ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WorkEnd {
    /// It can be committed.
    Done,
    /// It would write more than a batch may.
    TooMuch {
        /// How many events it has.
        events: usize,
    },
    /// It was held up for too long, and was given up.
    Stalled {
        /// How many events it has.
        events: usize,
        /// The last of them.
        last: i64,
        /// The events that hang, one of each entity.
        hanging: Vec<i64>,
    },
}

/// How an attempt at an isolated entity ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AttemptEnd {
    /// Nothing that was sent to it is left.
    Nothing,
    /// Events up to this `seq` can be committed.
    Processed {
        /// The last of them.
        through: i64,
    },
    /// An erasure is next.
    Erasure {
        /// The erasure.
        seq: i64,
    },
    /// Its events would write more than a batch may.
    TooMuch,
    /// Its events hang.
    Hung {
        /// The last of them.
        last: i64,
    },
}

/// Why an effect had no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OwnerFailure {
    /// The database took too long.
    TimedOut,
    /// The database refused what it was asked, in these words.
    Refused(String),
    /// It may succeed later.
    Unavailable,
    /// The position is not where the owner expects it, or under another epoch.
    Elsewhere,
    /// Another owner has the inbox.
    Fenced,
    /// The inbox was withdrawn.
    Withdrawn,
    /// A person has to act first.
    Fatal,
}
