//! Whether anything was written at all: one look at a counter of the server, at no table.

use super::{ServiceStore, StoreError};

impl ServiceStore {
    /// Which transactions have ended, in the server's words. As long as these stay the same, every
    /// statement reads the same rows, whatever it is about.
    pub(crate) async fn snapshot(&self) -> Result<String, StoreError> {
        let query = sqlx::query_scalar!(r#"select pg_current_snapshot()::text as "snapshot!""#);
        self.session().await?.one("look for changes", query).await
    }
}
