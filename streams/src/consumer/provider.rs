//! Where a consumer's events come from, and what handles them.

use async_trait::async_trait;
use tokio::sync::watch;

use super::ConsumerError;
use wakeq::log::{EventSource, LogEvent, LogPage, PageLimit};

/// A provider of events: the log in Postgres, one in memory, or the user's own.
#[async_trait]
pub trait EventProvider: Send + Sync + 'static {
    /// Reads the events of a source after this `seq`, in order: at most as many, in events and
    /// bytes, as the limit says, but always one if there is one. It must not return an event while
    /// an earlier one may still appear.
    async fn read(
        &self,
        source: &EventSource,
        after: i64,
        limit: PageLimit,
    ) -> Result<LogPage, ConsumerError>;

    /// Changes whenever the source may have grown. It may change for nothing, and may miss changes:
    /// the consumer also polls.
    fn watch(&self, source: &EventSource) -> watch::Receiver<u64>;
}

/// Handles the events of a consumer.
#[async_trait]
pub trait EventProcessor: Send + Sync + 'static {
    /// Handles an event, which is done when this returns `Ok`. After a crash, or under another
    /// owner, the same event may be handled again, so this should be idempotent.
    ///
    /// After an error, a panic or the time-out the consumer follows its error strategy.
    async fn handle_event(&self, event: &LogEvent) -> Result<(), Box<dyn std::error::Error + Send + Sync>>;
}
