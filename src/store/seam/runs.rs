//! Runs: load, claim, and the fenced writes of an owner; and what becomes of events that can't run.

use super::Backing;
use crate::event::Claim;
use crate::store::kernel::{Store, StoreError};

impl Store {
    /// Deletes completed events that are on objects, and renews the promises of their successors:
    /// if this process dies before it has woken them, the probe does so after the grace, however
    /// long they have waited.
    pub(crate) async fn complete_links(&self, claims: &[Claim]) -> Result<Vec<bool>, StoreError> {
        match self.backing() {
            Backing::Postgres(sql) => sql.complete_links(claims).await,
            #[cfg(feature = "testing")]
            Backing::Memory(memory) => memory.tables().complete(claims),
        }
    }
}
