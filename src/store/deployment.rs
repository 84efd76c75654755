//! What makes a deployment this one.

use super::{Store, StoreError};

impl Store {
    /// What the checks in the texts of keys are made with. Nobody outside is told it. Over the connections of look-ups.
    pub(crate) async fn key_check_secret(&self) -> Result<Vec<u8>, StoreError> {
        let mut session = self.lookup_session().await?;
        let query = sqlx::query_scalar!("select key_check_secret from wakeq.deployment");
        let secret = session.limit(|connection| query.fetch_one(connection)).await;
        session.answered("read what keys are checked with", secret)
    }
}
