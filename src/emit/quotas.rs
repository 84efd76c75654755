//! Quotas: events that exceed a quota of their canvas are refused before anything is written.

use super::Queue;
use crate::event::NewEvent;
use crate::store::{Additions, StoreError};

impl Queue {
    /// Whether quotas apply to this queue.
    #[doc(hidden)]
    pub fn has_quotas(&self) -> bool {
        self.config.quotas
    }

    /// Refuses events that exceed a quota of their canvas, before anything is written.
    pub(super) async fn admit(&self, events: &[NewEvent]) -> Result<(), StoreError> {
        if !self.config.quotas {
            return Ok(());
        }
        for (canvas, added) in Additions::by(events) {
            let admitted = self.store.admit(canvas, &added).await;
            admitted.inspect_err(|error| self.not_sent(events, error))?;
        }
        Ok(())
    }
}
