//! Emit: rows, ids that callers chose, unique keys, idempotency keys, and the room that a canvas
//! has.

use std::sync::Arc;

use super::{Backing, on_backing};
use crate::event::{CanvasId, IdempotencyKey, LimitKey, NewEvent, WaitingMaxReached};
use crate::store::events::{IdempotencyOutcome, InsertOutcome, NewState};
use crate::store::kernel::{Store, StoreError};
use crate::store::quotas::Additions;

impl Store {
    /// Whether a canvas has room for all of this; if so, it counts as added. Errors:
    /// [`StoreError::Quota`].
    #[doc(hidden)]
    pub async fn admit(&self, canvas: CanvasId, added: &Additions<'_>) -> Result<(), StoreError> {
        on_backing!(self.admit(canvas, added))
    }

    /// The first of these keys for whose limit as many events wait as its `waiting_max` says.
    pub(crate) async fn waiting_max_reached(
        &self,
        keys: &[(CanvasId, &LimitKey)],
    ) -> Result<Option<WaitingMaxReached>, StoreError> {
        on_backing!(self.waiting_max_reached(keys))
    }

    /// Inserts events with generated ids and without objects, all or none, in one statement.
    pub(crate) async fn insert(&self, events: &[Arc<NewEvent>]) -> Result<Vec<InsertOutcome>, StoreError> {
        match self.backing() {
            Backing::Postgres(sql) => sql.insert(events).await,
            #[cfg(feature = "testing")]
            Backing::Memory(memory) => memory.tables().insert(events.iter().map(AsRef::as_ref)),
        }
    }

    /// Inserts one event in a statement of its own.
    pub(crate) async fn insert_alone(&self, event: &Arc<NewEvent>) -> Result<InsertOutcome, StoreError> {
        self.insert(std::slice::from_ref(event)).await.map(InsertOutcome::only)
    }

    /// Inserts an event whose id the caller chose, unless it is known.
    pub(crate) async fn insert_chosen(&self, event: &NewEvent) -> Result<InsertOutcome, StoreError> {
        on_backing!(self.insert_chosen(event))
    }

    /// Inserts an event with a unique key, or does what it says to the event that has the key.
    pub(crate) async fn insert_unique(&self, event: &NewEvent) -> Result<InsertOutcome, StoreError> {
        on_backing!(self.insert_unique(event))
    }

    /// Inserts events, all or none; `chosen` says which ids the caller chose.
    pub(crate) async fn insert_all(
        &self,
        events: &[NewEvent],
        chosen: &[bool],
    ) -> Result<Vec<InsertOutcome>, StoreError> {
        on_backing!(self.insert_all(events, chosen))
    }

    /// Inserts events and sets an object's state in one transaction. The state belongs to the first
    /// event: if that was emitted before, the state is not set again.
    pub(crate) async fn insert_on(
        &self,
        events: &[NewEvent],
        chosen: &[bool],
        state: Option<NewState<'_>>,
    ) -> Result<Vec<InsertOutcome>, StoreError> {
        on_backing!(self.insert_on(events, chosen, state))
    }

    /// Inserts events and the answer to them in one transaction, unless the key was used within the
    /// last day. A call that does not complete leaves nothing behind; a second one waits for the
    /// first up to the lock timeout.
    pub(crate) async fn insert_once(
        &self,
        key: &IdempotencyKey,
        events: &[NewEvent],
        chosen: &[bool],
        state: Option<NewState<'_>>,
        answer: impl FnOnce(&[InsertOutcome]) -> String + Send,
    ) -> Result<IdempotencyOutcome, StoreError> {
        on_backing!(self.insert_once(key, events, chosen, state, answer))
    }
}
