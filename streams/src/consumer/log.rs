//! The log in Postgres as a provider of events.

use async_trait::async_trait;
use tokio::sync::watch;

use super::{ConsumerError, EventProvider};
use wakeq::log::{EventSource, Log, LogPage, PageLimit};

#[async_trait]
impl EventProvider for Log {
    async fn read(
        &self,
        source: &EventSource,
        after: i64,
        limit: PageLimit,
    ) -> Result<LogPage, ConsumerError> {
        let page = self.read_within(source, after, limit).await;
        page.map_err(|error| ConsumerError::unavailable("the log was not read", error))
    }

    fn watch(&self, source: &EventSource) -> watch::Receiver<u64> {
        Log::watch(self, source)
    }
}
