//! What makes a deployment this one.

use uuid::Uuid;

use super::{Store, StoreError};

impl Store {
    /// What the ids of CloudEvents are made in. Nobody outside is told it.
    pub(crate) async fn namespace(&self) -> Result<Uuid, StoreError> {
        let mut session = self.session().await?;
        let query = sqlx::query_scalar!("select namespace from wakeq.deployment");
        let namespace = session.limit(|connection| query.fetch_one(connection)).await;
        session.answered("read the deployment's namespace", namespace)
    }

    /// What the checks in the texts of keys are made with. Nobody outside is told it. Over the connections of look-ups.
    #[cfg(feature = "http")]
    pub(crate) async fn key_check_secret(&self) -> Result<Vec<u8>, StoreError> {
        let mut session = self.lookup_session().await?;
        let query = sqlx::query_scalar!("select key_check_secret from wakeq.deployment");
        let secret = session.limit(|connection| query.fetch_one(connection)).await;
        session.answered("read what keys are checked with", secret)
    }
}
