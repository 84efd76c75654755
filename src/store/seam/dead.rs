//! The dead events, single events and their values, and the clock.

use super::Backing;
use crate::event::{CanvasId, EventId};
use crate::store::kernel::{Store, StoreError};

impl Store {
    /// The value of a canvas's event, live or dead.
    pub(crate) async fn value(&self, canvas: CanvasId, id: EventId) -> Result<Option<String>, StoreError> {
        match self.backing() {
            Backing::Postgres(sql) => sql.value(canvas, id).await,
            #[cfg(feature = "testing")]
            Backing::Memory(memory) => memory.tables().value(canvas, id),
        }
    }
}
