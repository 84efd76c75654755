//! Quotas: what a canvas has no room for is refused before anything of it is written.

use super::Queue;
use crate::store::{Added, NewEvent, StoreError};

impl Queue {
    /// Whether quotas count for what goes this way.
    pub(crate) fn has_quotas(&self) -> bool {
        self.config.quotas
    }

    /// Refuses what there is no room for on its canvas, before anything is written.
    pub(super) async fn admit(&self, events: &[NewEvent]) -> Result<(), StoreError> {
        if !self.config.quotas {
            return Ok(());
        }
        for (canvas, added) in Added::by(events) {
            let admitted = self.store.admit(canvas, &added).await;
            admitted.inspect_err(|error| self.not_sent(events, error))?;
        }
        Ok(())
    }
}
