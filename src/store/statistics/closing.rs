//! The end of a store: what was counted is written, then its connections are closed.

use std::time::Duration;

use crate::store::kernel::Store;

impl Store {
    /// Writes what was counted for the statistics, and closes every connection, after the running
    /// statements have ended; those of a caller's pool stay open. If the server does not answer,
    /// each of the two takes the time that a statement may take.
    pub async fn close(&self) {
        self.write_statistics_within(self.answer_limit()).await;
        self.close_connections(self.answer_limit()).await;
    }

    /// The same, after this time at the latest, of which writing has half.
    #[doc(hidden)]
    pub async fn close_within(&self, limit: Duration) {
        self.write_statistics_within(limit / 2).await;
        self.close_connections(limit / 2).await;
    }
}
