//! Checkpoints.

use super::on_backing;
use crate::event::{CanvasId, Checkpoint, Claim, EventId};
use crate::store::kernel::{Store, StoreError};

impl Store {
    /// Stores the checkpoint of a claimed event of the canvas, in place of the one before; `false`
    /// if the claim does not stand.
    pub(crate) async fn store_checkpoint(
        &self,
        canvas: CanvasId,
        claim: Claim,
        json: &str,
    ) -> Result<bool, StoreError> {
        on_backing!(self.store_checkpoint(canvas, claim, json))
    }

    /// The checkpoints of those of these events, live or dead, that have one.
    pub(crate) async fn checkpoints(
        &self,
        events: &[(CanvasId, EventId)],
    ) -> Result<Vec<(EventId, Checkpoint)>, StoreError> {
        on_backing!(self.checkpoints(events))
    }

    /// The checkpoint of an event, live or dead.
    pub(crate) async fn checkpoint(
        &self,
        canvas: CanvasId,
        id: EventId,
    ) -> Result<Option<Checkpoint>, StoreError> {
        Ok(self.checkpoints(&[(canvas, id)]).await?.pop().map(|(_, checkpoint)| checkpoint))
    }

    /// Deletes the checkpoint of an event that has ended.
    pub(crate) async fn drop_checkpoint(&self, canvas: CanvasId, id: EventId) -> Result<(), StoreError> {
        on_backing!(self.drop_checkpoint(canvas, id))
    }
}
