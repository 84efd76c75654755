//! Positions: how far a group has come in each of its sources.

use async_trait::async_trait;

use super::ConsumerError;
use crate::event::{EventSource, LogEvent, Name};

/// Whose position: that of a group in one of its sources.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PositionKey {
    /// The consumer group.
    pub group: Name,
    /// The source.
    pub source: EventSource,
}

/// An event that a group gives up, or that fails, and why.
#[derive(Clone, Copy, Debug)]
pub struct DeadLetter<'a> {
    /// The event.
    pub event: &'a LogEvent,
    /// How often it was tried.
    pub attempts: u32,
    /// Why the last attempt failed.
    pub error: &'a str,
}

/// Where positions are kept: the `seq` of the last event that is done with, 0 before the first. A position has an epoch, which only
/// grows; who opens it under a higher one takes it from whoever had it before, whose commits are refused from then on.
#[async_trait]
pub trait PositionStore: Send + Sync + 'static {
    /// Takes a position for an epoch, and reads it. The same epoch may open it again, and sees what came of its last write, also of one that
    /// is still under way.
    ///
    /// Errors: [`ConsumerError::Fenced`] under a lower epoch than the position's.
    async fn open(&self, key: &PositionKey, epoch: i64) -> Result<i64, ConsumerError>;

    /// Moves a position on, from where its owner knows it to be: compare and set.
    ///
    /// Errors: [`ConsumerError::Fenced`] if it stands elsewhere, or under another epoch; [`ConsumerError::Unavailable`] if there was no answer:
    /// then it may have been moved, and its owner [opens](Self::open) it again.
    async fn commit(&self, key: &PositionKey, epoch: i64, from: i64, to: i64) -> Result<(), ConsumerError>;

    /// Keeps an event among the dead of its group, and moves the position past it, in one step.
    ///
    /// Errors: as of [`commit`](Self::commit). Fenced, the event is not among the dead; without an answer it is if the position is past it.
    async fn skip(
        &self,
        key: &PositionKey,
        epoch: i64,
        from: i64,
        dead: &DeadLetter<'_>,
    ) -> Result<(), ConsumerError>;

    /// Notes for operators that this event fails, and is tried again: until the position is moved. Default: it is noted nowhere.
    ///
    /// Errors: as of [`commit`](Self::commit). Whoever is told one goes on.
    async fn note(
        &self,
        key: &PositionKey,
        epoch: i64,
        failing: &DeadLetter<'_>,
    ) -> Result<(), ConsumerError> {
        let _ = (key, epoch, failing);
        Ok(())
    }

    /// The numbers of events that the group gave up, and that an operator has asked to have tried again: those are handled when there is
    /// nothing else. After 100 it is asked again at once, so that [`redone`](Self::redone) has to take each away. Default: none.
    async fn redriven(&self, key: &PositionKey) -> Result<Vec<i64>, ConsumerError> {
        let _ = key;
        Ok(Vec::new())
    }

    /// An event that was to be tried again is handled, and no longer among the dead; or it has failed once more, for this reason.
    ///
    /// Errors: [`ConsumerError::Fenced`] under another epoch than the position's.
    async fn redone(
        &self,
        key: &PositionKey,
        epoch: i64,
        seq: i64,
        error: Option<&str>,
    ) -> Result<(), ConsumerError> {
        let _ = (key, epoch, seq, error);
        Ok(())
    }
}
