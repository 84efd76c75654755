//! How far an inbox is read, and how far its position is.

use std::time::Duration;

use crate::machine::FencedPosition;

/// Events of other types are read and skipped. The stored position may fall behind what was read by
/// fewer numbers of the log than these. At this many it is stored at once, otherwise once per poll
/// interval.
const IDLE_MOVE: i64 = 10_000;

/// An inbox, as its owner reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Inbox {
    position: FencedPosition,
    /// It was read up to this `seq`.
    read_through: i64,
    /// When the position was last moved past what was not for this type.
    caught_up: Duration,
}

impl Inbox {
    pub(super) fn new() -> Self {
        Self { position: FencedPosition::UNOPENED, read_through: 0, caught_up: Duration::ZERO }
    }

    pub(super) fn position(&self) -> FencedPosition {
        self.position
    }

    pub(super) fn read_through(&self) -> i64 {
        self.read_through
    }

    /// The position was opened.
    pub(super) fn open(&mut self, at: i64) {
        (self.position, self.read_through) = (FencedPosition::At(at), at);
    }

    /// A batch was committed.
    pub(super) fn commit(&mut self, to: i64) {
        (self.position, self.read_through) = (FencedPosition::At(to), self.read_through.max(to));
    }

    /// The position was moved without a commit.
    pub(super) fn move_to(&mut self, to: i64) {
        self.position = FencedPosition::At(to);
    }

    /// A page is done.
    pub(super) fn read(&mut self, through: i64) {
        self.read_through = self.read_through.max(through);
    }

    /// The position may have been moved from outside.
    pub(super) fn doubt(&mut self) {
        self.position = self.position.doubted();
    }

    /// The answer to a commit was lost.
    pub(super) fn lose_answer(&mut self) {
        self.position = self.position.unanswered();
    }

    /// Whether the position is not this far yet, as far as is known.
    pub(super) fn is_behind(&self, to: i64) -> bool {
        self.position.known().unwrap_or_default() < to
    }

    /// Whether the position has to follow what was read: once per poll interval, or if it lags far
    /// behind.
    pub(super) fn catches_up(&mut self, now: Duration, poll_interval: Duration) -> bool {
        let is_due = now.saturating_sub(self.caught_up) >= poll_interval;
        let least = if is_due { 1 } else { IDLE_MOVE };
        let lags = self.position.known().is_some_and(|from| from + least <= self.read_through);
        if lags {
            self.caught_up = now;
        }
        lags
    }
}
