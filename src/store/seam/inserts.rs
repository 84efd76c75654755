//! Emit: rows, ids that callers chose, idempotency keys, and the room that a canvas has.

use super::Backing;
use crate::event::CanvasId;
use crate::store::kernel::{Store, StoreError};
use crate::store::quotas::Additions;

impl Store {
    /// Whether a canvas has room for all of this; if so, it counts as added. Errors:
    /// [`StoreError::Quota`].
    #[doc(hidden)]
    pub async fn admit(&self, canvas: CanvasId, added: &Additions<'_>) -> Result<(), StoreError> {
        match self.backing() {
            Backing::Postgres(sql) => sql.admit(canvas, added).await,
            #[cfg(feature = "testing")]
            Backing::Memory(memory) => memory.tables().admit(canvas, added),
        }
    }
}
