//! The row of a batch, and how a member leaves it.

use crate::event::{BatchCounts, NewEvent, Timestamp};

/// A batch.
#[derive(Clone, Debug)]
pub(super) struct Batch {
    /// The event for its end, with the value that it was opened with.
    pub(super) event: NewEvent,
    pub(super) opened_at: Timestamp,
    pub(super) closed_at: Option<Timestamp>,
    pub(super) over_at: Option<Timestamp>,
    pub(super) counts: BatchCounts,
}

/// How a member ends.
#[derive(Clone, Copy, Debug)]
pub(super) enum MemberEnd {
    Completed,
    Dead,
    Cancelled,
}
