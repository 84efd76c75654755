//! Positions: how far a group has come in each of its sources.

use async_trait::async_trait;

use super::ConsumerError;
use crate::event::{EventSource, Name};

/// Whose position: that of a group in one of its sources.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PositionKey {
    /// The consumer group.
    pub group: Name,
    /// The source.
    pub source: EventSource,
}

/// A position that was opened: where to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenedPosition {
    /// The `seq` of the last event that is done with; 0 before the first.
    pub position: i64,
}

/// Where positions are kept. A position has an epoch, which only grows; who opens it under a higher one takes it from whoever had
/// it before, whose commits are refused from then on.
#[async_trait]
pub trait PositionStore: Send + Sync + 'static {
    /// Takes a position for an epoch, and reads it; a position that is new begins at 0. The same epoch may open it again.
    ///
    /// Errors: [`ConsumerError::Fenced`] under a lower epoch than the position's.
    async fn open(&self, key: &PositionKey, epoch: i64) -> Result<OpenedPosition, ConsumerError>;

    /// Moves a position on, from where its owner knows it to be: compare and set.
    ///
    /// Errors: [`ConsumerError::Fenced`] if it stands elsewhere, or under another epoch.
    async fn commit(&self, key: &PositionKey, epoch: i64, from: i64, to: i64) -> Result<(), ConsumerError>;
}
