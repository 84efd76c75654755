//! What carries broadcasts: a broker, or this process alone.

use std::error::Error;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use super::inbox::Inbox;
use super::pattern::InvalidTopicPattern;
use crate::event::Broadcast;

/// The transport of broadcasts.
#[async_trait]
pub(crate) trait Channel: Send + Sync + 'static {
    /// Publishes once, and reports what was lost.
    async fn publish(&self, broadcasts: &[Broadcast]) -> PublishOutcome;

    /// Starts receiving what the inbox selects. The returned future has to be polled: it fills the
    /// inbox until it is cancelled, and then leaves nothing behind.
    async fn open(
        &self,
        inbox: Arc<Inbox>,
        closing: CancellationToken,
    ) -> Result<BoxFuture<'static, ()>, ListenError>;
}

/// The outcome of publishing a batch.
#[derive(Debug, Default)]
pub(crate) struct PublishOutcome {
    /// How many were not published.
    pub(crate) lost: usize,
    /// The error of the first of them.
    pub(crate) error: Option<ListenError>,
}

/// Why it is not possible to listen.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    /// The pattern is not valid.
    #[error(transparent)]
    Pattern(#[from] InvalidTopicPattern),
    /// Events are not broadcast here.
    #[error(
        "events are not broadcast here: set WAKEQ_BROADCAST=1 for every process that emits or listens, and run `wakeq \
         topics create`"
    )]
    Off,
    /// This process is shutting down.
    #[error("this process is shutting down")]
    Ending,
    /// The broker failed.
    #[error("{what}")]
    Broker {
        /// What failed, and what to do about it.
        what: String,
        /// The cause, as reported by the client library.
        #[source]
        source: Option<Box<dyn Error + Send + Sync>>,
    },
}
