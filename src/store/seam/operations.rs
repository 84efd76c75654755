//! Operations on all events that match a filter.

use super::on_backing;
use crate::event::{Actor, CanvasId, IdempotencyKey, NewOperation, Operation, OperationId, OperationPreview};
use crate::store::events::{
    BegunOperation, KeyedBegin, Looked, OperationEvents, OperationPosition, OperationsAfter,
};
use crate::store::kernel::{Store, StoreError};

impl Store {
    /// Looks at up to `limit` events after a position, and says how many of them an operation would
    /// change; with `wants_ids` also which. Where it looks at fewer, there are no more.
    pub(crate) async fn look_for_operation(
        &self,
        events: OperationEvents<'_>,
        after: Option<&OperationPosition>,
        limit: u64,
        wants_ids: bool,
    ) -> Result<Looked, StoreError> {
        on_backing!(self.look_for_operation(events, after, limit, wants_ids))
    }

    /// Adds an operation with the job that carries it on, and forgets the oldest ended ones of the
    /// canvas beyond those that may be kept. `None` if as many are open as may be. With `copies`,
    /// dead copies are meant that their queue does not show.
    pub(crate) async fn begin_operation(
        &self,
        canvas: CanvasId,
        new: &NewOperation,
        (preview, copies): (&OperationPreview, bool),
        actor: &Actor,
    ) -> Result<Option<BegunOperation>, StoreError> {
        on_backing!(self.begin_operation(canvas, new, (preview, copies), actor))
    }

    /// The same on the canvas of an idempotency key, unless the key was used within the last day. A
    /// call that does not complete leaves nothing behind.
    pub(crate) async fn begin_operation_once(
        &self,
        key: &IdempotencyKey,
        new: &NewOperation,
        (preview, copies): (&OperationPreview, bool),
        actor: &Actor,
    ) -> Result<KeyedBegin, StoreError> {
        on_backing!(self.begin_operation_once(key, new, (preview, copies), actor))
    }

    /// An operation of the canvas.
    pub(crate) async fn operation(
        &self,
        canvas: CanvasId,
        id: OperationId,
    ) -> Result<Option<Operation>, StoreError> {
        on_backing!(self.operation(canvas, id))
    }

    /// The operations of a canvas after a position, the latest first. At most `limit`.
    pub(crate) async fn operations(
        &self,
        canvas: CanvasId,
        after: Option<OperationsAfter>,
        limit: i64,
    ) -> Result<Vec<Operation>, StoreError> {
        on_backing!(self.operations(canvas, after, limit))
    }

    /// Ends an operation, unless it has ended; returns it as it is then, `None` if the canvas has
    /// no such operation, or none that this release can read. A page that is being done is waited
    /// for, and no other begins after it.
    pub(crate) async fn cancel_operation(
        &self,
        canvas: CanvasId,
        id: OperationId,
        actor: &Actor,
    ) -> Result<Option<Operation>, StoreError> {
        on_backing!(self.cancel_operation(canvas, id, actor))
    }
}
