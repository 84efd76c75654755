//! Where handlers leave what the next attempt of their event gets.

use std::fmt;
use std::sync::Arc;

use sqlx::postgres::PgConnection;

use super::leases::RunningClaim;
use crate::event::{CanvasId, Checkpoint, InvalidCheckpoint};
use crate::store::{Store, StoreError, checkpoint_in};

/// Why a checkpoint was not stored, or could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// Another attempt has begun, because the lease ran out, or the event was removed.
    #[error("the event is no longer this attempt's: nothing was stored, and the handler has to stop")]
    ClaimLost,
    /// The value can't be a checkpoint.
    #[error(transparent)]
    Value(#[from] InvalidCheckpoint),
    /// The checkpoint that is there has another shape than the handler expects.
    #[error("the event's checkpoint does not fit the handler")]
    Shape(#[source] serde_json::Error),
    /// An error of the database.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Where the checkpoints of running events are.
#[derive(Clone)]
pub(super) struct Checkpoints(Arc<Store>);

impl Checkpoints {
    pub(super) fn new(store: &Store) -> Self {
        Self(Arc::new(store.clone()))
    }

    /// Whether the queue is in memory, where there are no transactions.
    pub(super) fn are_in_memory(&self) -> bool {
        !self.0.has_server()
    }

    pub(super) async fn store(
        &self,
        canvas: CanvasId,
        claim: &RunningClaim,
        json: &str,
    ) -> Result<(), CheckpointError> {
        claim.leave_checkpoint();
        stored(self.0.store_checkpoint(canvas, claim.claim(), json).await?)
    }

    /// Stores it on the handler's connection, or at once if there are no transactions.
    pub(super) async fn store_in(
        &self,
        transaction: &mut PgConnection,
        (canvas, claim): (CanvasId, &RunningClaim),
        json: &str,
    ) -> Result<(), CheckpointError> {
        if self.are_in_memory() {
            return self.store(canvas, claim, json).await;
        }
        claim.leave_checkpoint();
        stored(checkpoint_in(transaction, claim.claim(), json).await?)
    }

    /// The checkpoint of the claimed event. Before its second claim nobody can have stored one but
    /// this attempt.
    pub(super) async fn last(
        &self,
        canvas: CanvasId,
        claim: &RunningClaim,
    ) -> Result<Option<Checkpoint>, CheckpointError> {
        let held = claim.claim();
        if held.claims == 1 && !claim.has_checkpoint() {
            return Ok(None);
        }
        let found = self.0.checkpoint(canvas, held.id).await?;
        if found.is_some() {
            claim.leave_checkpoint();
        }
        Ok(found)
    }
}

impl fmt::Debug for Checkpoints {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Checkpoints")
    }
}

fn stored(stood: bool) -> Result<(), CheckpointError> {
    if stood { Ok(()) } else { Err(CheckpointError::ClaimLost) }
}
