//! What an owner needs done, and why it ends.

/// The one thing that has to be done before the owner can go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OwnerEffect {
    /// Read where the position is: it may have been moved from outside, which an owner with nothing
    /// to commit would not notice.
    LookAgain,
    /// Open the position under the epoch, and note the owner. If the position is not where it was,
    /// what is in memory is older.
    Open,
    /// Abort the attempt at an isolated entity, and read which entities are isolated.
    ReadIsolated {
        /// Where the position is.
        at: i64,
    },
    /// Load the entities, unless they are in memory.
    Load,
    /// Read a page of the inbox.
    Read {
        /// After this `seq`.
        after: i64,
        /// Most events.
        events: usize,
        /// Most bytes.
        bytes: usize,
    },
    /// Drop the events of isolated entities from the page, and choose its first events, at most
    /// this many, as the next batch.
    Choose {
        /// Most events of the batch.
        most: usize,
    },
    /// Carry out the erasure that is the batch.
    Erase,
    /// Count an attempt at an event, which may end the process.
    CountAttempt {
        /// The event.
        seq: i64,
    },
    /// Uncount it: whatever failed, it was not the event.
    UncountAttempt {
        /// The event.
        seq: i64,
    },
    /// Isolate the entity of an event at the current position.
    Isolate {
        /// The event.
        seq: i64,
        /// The events of the entity up to here are processed one at a time.
        single_through: i64,
        /// How many attempts at the event count already.
        losses: u32,
    },
    /// Load the entities of the batch, and look up what is recorded of its events.
    Prepare {
        /// If the batch is only its first event: how many attempts at that have had no outcome.
        losses: Option<u32>,
    },
    /// Have the first events of the batch processed, at most this many; the others leave it.
    Work {
        /// Most events.
        most: usize,
    },
    /// Commit the batch; memory follows.
    Commit {
        /// It is an erasure, which can always be stored: nothing follows from it.
        is_erasure: bool,
    },
    /// Move the position without a commit.
    Move {
        /// Up to this `seq`.
        to: i64,
    },
    /// Take the outcome of the attempt at the first isolated entity, if it has ended.
    TakeOutcome,
    /// End the isolation of the first one, if nothing that was sent to it is left.
    TakeBack,
    /// Carry out the erasure that is next for the first one.
    EraseIsolated,
    /// Commit what the attempt has made.
    CommitIsolated {
        /// The first one is done up to this `seq` then.
        through: i64,
    },
    /// Uncount the attempt at the first one.
    UncountIsolated,
    /// Start an attempt at the first one.
    StartAttempt {
        /// Most events.
        most: usize,
        /// Most bytes.
        bytes: usize,
    },
    /// Read under which epoch the position is.
    CheckEpoch,
    /// Nothing more for now: wait until the inbox has grown.
    Wait {
        /// An open transaction holds more back.
        held: bool,
    },
    /// Begin again after a delay.
    Retry,
    /// Nothing more.
    End(OwnerEnd),
}

/// Why an owner ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OwnerEnd {
    /// The inbox was withdrawn.
    Withdrawn,
    /// Another owner has the inbox.
    Fenced,
    /// Even the smallest requests took too long, this many times in a row.
    TimedOut {
        /// How often.
        times: u32,
    },
    /// The database refused the same again and again.
    Refused {
        /// In these words.
        why: String,
        /// How often.
        times: u32,
    },
    /// A person has to act first.
    Fatal,
}
