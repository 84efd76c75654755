//! The partitions of the history: attempts by the day on which they ended, and ended events by the
//! week in which they expire.

use std::time::Duration;

use crate::store::kernel::{Store, StoreError, interval};

/// For how many days ahead partitions are created.
const DAYS_AHEAD: i32 = 3;

impl Store {
    /// Creates the partitions that will be needed next; returns how many.
    pub(crate) async fn add_history_partitions(&self) -> Result<i32, StoreError> {
        let query = sqlx::query_scalar!(r#"select wakeq.add_history_partitions($1) as "made!""#, DAYS_AHEAD);
        self.session().await?.one("make partitions of the history", query).await
    }

    /// Drops the first partition of which nothing is kept any longer, where attempts are kept for
    /// this long; returns its name, or that of the rest if there may be more to delete from it.
    pub(crate) async fn drop_history_partition(&self, kept: Duration) -> Result<Option<String>, StoreError> {
        let query = sqlx::query_scalar!("select wakeq.drop_history_partition($1) as part", interval(kept));
        self.session().await?.one("drop a partition of the history", query).await
    }
}
