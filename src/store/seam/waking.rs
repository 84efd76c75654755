//! The minute's pass, resume jobs, and promises that are moved.

use super::Backing;
use crate::event::Notification;
use crate::store::kernel::{Store, StoreError};
use crate::store::queues::PulledSplit;

impl Store {
    /// Tells copies of pulled queues from the other events, of which workers have to be notified.
    pub(crate) async fn split_pulled(
        &self,
        notifications: &[Notification],
    ) -> Result<PulledSplit, StoreError> {
        match self.backing() {
            Backing::Postgres(sql) => sql.split_pulled(notifications).await,
            #[cfg(feature = "testing")]
            Backing::Memory(memory) => memory.tables().split_pulled(notifications),
        }
    }
}
