//! The secret that each deployment has of its own.

use super::{ServiceStore, StoreError};

impl ServiceStore {
    /// The HMAC secret behind the checks in the texts of keys. It is never disclosed. Read over a
    /// lookup connection.
    pub(crate) async fn key_check_secret(&self) -> Result<Vec<u8>, StoreError> {
        let query = sqlx::query_scalar!("select key_check_secret from wakeq.deployment");
        self.lookup_session().await?.one("read the secret that checks keys", query).await
    }
}
