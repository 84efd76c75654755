//! Where a consumer's events come from, and where they go.

use async_trait::async_trait;
use tokio::sync::watch;

use super::ConsumerError;
use crate::event::{EventSource, LogEvent, LogPage, PageLimit};

/// Where events come from: the log in Postgres, one in memory, or what somebody else brings.
#[async_trait]
pub trait EventProvider: Send + Sync + 'static {
    /// The events of a source after this `seq`, in their order: no more than the limit says, in events and in bytes, but always one if there is
    /// one. Never one that is followed, later, by one that stands before it.
    async fn read(
        &self,
        source: &EventSource,
        after: i64,
        limit: PageLimit,
    ) -> Result<LogPage, ConsumerError>;

    /// Changes whenever the source may have grown. It may change for nothing, and it may miss something: the consumer's poll
    /// interval makes up for that.
    fn watch(&self, source: &EventSource) -> watch::Receiver<u64>;
}

/// What is done with each event.
#[async_trait]
pub trait EventProcessor: Send + Sync + 'static {
    /// Handles an event: when it returns, the event is done with. It may be handed the same event again, after a crash or under
    /// another owner, so what it does has to stand that.
    ///
    /// An error, or a panic, makes the consumer do what its error strategy says.
    async fn handle_event(&self, event: &LogEvent) -> Result<(), Box<dyn std::error::Error + Send + Sync>>;
}
