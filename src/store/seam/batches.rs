//! Batches: opened, closed and shown, and ended.

use super::on_backing;
use crate::event::{BatchName, CanvasId, NewEvent};
use crate::store::batches::{BatchClosing, BatchKey, BatchOpening, BatchProgress, EndedBatch, LookedBatches};
use crate::store::kernel::{Store, StoreError};

impl Store {
    /// Opens a batch of the event's canvas, at the end of which this event is emitted. Its value
    /// becomes a part of what is emitted.
    pub(crate) async fn open_batch(
        &self,
        name: &BatchName,
        event: &NewEvent,
    ) -> Result<BatchOpening, StoreError> {
        on_backing!(self.open_batch(name, event))
    }

    /// Closes a batch: it is over once no member is left. The caller looks for that afterwards.
    pub(crate) async fn close_batch(
        &self,
        canvas: CanvasId,
        name: &BatchName,
    ) -> Result<BatchClosing, StoreError> {
        on_backing!(self.close_batch(canvas, name))
    }

    /// A batch of the canvas by its name, with what is known of its members.
    pub(crate) async fn batch(
        &self,
        canvas: CanvasId,
        name: &BatchName,
    ) -> Result<Option<BatchProgress>, StoreError> {
        on_backing!(self.batch(canvas, name))
    }

    /// Which of these batches are closed, and have no member left. For use after the end of a
    /// member was committed.
    pub(crate) async fn are_over(&self, batches: &[BatchKey]) -> Result<Vec<bool>, StoreError> {
        on_backing!(self.are_over(batches))
    }

    /// Emits the event of a batch that is over; `None` if it is not, or its event was emitted
    /// before. Of several processes that call this at once, one emits it.
    pub(crate) async fn end_batch(&self, batch: &BatchKey) -> Result<Option<EndedBatch>, StoreError> {
        on_backing!(self.end_batch(batch))
    }

    /// For the minute's pass: looks at a page of batches that are not over, the ones that it has
    /// not looked at for longest.
    pub(crate) async fn look_at_batches(&self) -> Result<LookedBatches, StoreError> {
        on_backing!(self.look_at_batches())
    }

    /// Replaces rows with ends of a batch by one with their sum, a page; returns whether there may
    /// be more.
    pub(crate) async fn sum_batch_ends(&self, batch: &BatchKey) -> Result<bool, StoreError> {
        on_backing!(self.sum_batch_ends(batch))
    }

    /// Deletes a page of the rows with ends of a batch whose event was emitted; returns whether
    /// there may be more.
    pub(crate) async fn forget_batch_ends(&self, batch: &BatchKey) -> Result<bool, StoreError> {
        on_backing!(self.forget_batch_ends(batch))
    }
}
