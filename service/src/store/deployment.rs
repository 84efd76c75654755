//! The secret that each deployment has of its own.

use super::{ServiceStore, StoreError};

impl ServiceStore {
    /// The HMAC secret behind the checks in the texts of keys. It is never disclosed. Read over a
    /// lookup connection.
    pub(crate) async fn key_check_secret(&self) -> Result<Vec<u8>, StoreError> {
        let mut session = self.lookup_session().await?;
        let query = sqlx::query_scalar!("select key_check_secret from wakeq.deployment");
        let secret = session.limit(|connection| query.fetch_one(connection)).await;
        session.answered("read the secret that checks keys", secret).await
    }
}
