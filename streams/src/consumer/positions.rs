//! Positions: how far a group has come in each of its sources.

use async_trait::async_trait;

use super::ConsumerError;
use wakeq::Name;
use wakeq::log::{EventSource, LogEvent};

/// The key of a position: a group and one of its sources.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PositionKey {
    /// The consumer group.
    pub group: Name,
    /// The source.
    pub source: EventSource,
}

/// An event that a group has given up, or that keeps failing, and its error.
#[derive(Clone, Copy, Debug)]
pub struct DeadLetter<'a> {
    /// The event.
    pub event: &'a LogEvent,
    /// How often it was tried.
    pub attempts: u32,
    /// Why the last attempt failed.
    pub error: &'a str,
}

/// Stores positions: the `seq` of the last event that is done with, 0 before the first.
///
/// Each position has an epoch, which never decreases. An owner that opens a position under a higher
/// epoch takes it over: commits of the previous owner are refused from then on.
#[async_trait]
pub trait PositionStore: Send + Sync + 'static {
    /// Opens a position under an epoch and returns it. It can be opened again under the same epoch,
    /// and then shows the outcome of the last write, even of one that is still in flight.
    ///
    /// Errors: [`ConsumerError::Fenced`] if the position has a higher epoch.
    async fn open(&self, key: &PositionKey, epoch: i64) -> Result<i64, ConsumerError>;

    /// Moves a position forward from where its owner expects it: compare-and-set.
    ///
    /// Errors: [`ConsumerError::Fenced`] if it is elsewhere, or has another epoch;
    /// [`ConsumerError::Unavailable`] if there was no answer: it may have been moved, and its owner
    /// [opens](Self::open) it again.
    async fn commit(&self, key: &PositionKey, epoch: i64, from: i64, to: i64) -> Result<(), ConsumerError>;

    /// Stores an event among the dead events of its group and moves the position past it,
    /// atomically.
    ///
    /// Errors: as for [`commit`](Self::commit). If fenced, the event is not stored; without an
    /// answer, it is stored if the position is past it.
    async fn skip(
        &self,
        key: &PositionKey,
        epoch: i64,
        from: i64,
        dead: &DeadLetter<'_>,
    ) -> Result<(), ConsumerError>;

    /// Notes for operators that this event is failing and being retried. The note is valid until
    /// the position is moved. Default: nothing is noted.
    ///
    /// Errors: as for [`commit`](Self::commit). A consumer continues after
    /// [`ConsumerError::Unavailable`].
    async fn note(
        &self,
        key: &PositionKey,
        epoch: i64,
        failing: &DeadLetter<'_>,
    ) -> Result<(), ConsumerError> {
        let _ = (key, epoch, failing);
        Ok(())
    }

    /// The `seq`s of events that the group has given up and an operator wants retried; they are
    /// handled when nothing else is left to read. After a page of 100 it is called again at once,
    /// so [`redone`](Self::redone) must remove each of them. Default: none.
    async fn redriven(&self, key: &PositionKey) -> Result<Vec<i64>, ConsumerError> {
        let _ = key;
        Ok(Vec::new())
    }

    /// Records the outcome of retrying such an event: without an error the event is handled and no
    /// longer dead, otherwise it has failed again.
    ///
    /// Errors: [`ConsumerError::Fenced`] if the position has another epoch.
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
