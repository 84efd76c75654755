//! The subscription as a worker sees it: deliveries, answers, trouble, and an orderly end.
//!
//! The stream and its repair are in `stream`; nothing here talks to the broker.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use google_cloud_pubsub::subscriber::handler::Handler;
use tokio::sync::mpsc::Receiver;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::BrokerAccess;
use super::config::PubSubConfig;
use super::stream::StreamReader;
use crate::notify::{AckHandle, Delivery, NotifyError, Subscription};

/// Opens a subscription. If it is missing or unreachable, that is not an error but trouble, which
/// the stream repairs.
pub(super) async fn open(
    config: Arc<PubSubConfig>,
    broker: Arc<BrokerAccess>,
    max_outstanding: usize,
) -> Result<PubSubSubscription, NotifyError> {
    if max_outstanding == 0 || max_outstanding > 100_000 {
        return Err(NotifyError::new(format!("max_outstanding is {max_outstanding}; use 1 to 100,000")));
    }
    let (sender, deliveries) = mpsc::channel(max_outstanding);
    let trouble = Trouble::default();
    let closing = CancellationToken::new();
    let reader = StreamReader {
        config,
        broker,
        max_outstanding,
        permits: Arc::new(Semaphore::new(max_outstanding)),
        deliveries: sender,
        trouble: trouble.clone(),
        closing: closing.clone(),
    };
    reader.check_subscription().await;
    let reader = tokio::spawn(reader.run());
    Ok(PubSubSubscription { deliveries, trouble, _at_drop: closing.clone().drop_guard(), closing, reader })
}

/// An open subscription. If it is dropped without [`Subscription::close`], messages that were not
/// handed out are put back in the background.
pub(super) struct PubSubSubscription {
    /// Bounded by the permits that the deliveries in it hold.
    deliveries: Receiver<Delivery>,
    trouble: Trouble,
    closing: CancellationToken,
    _at_drop: DropGuard,
    reader: JoinHandle<JoinSet<()>>,
}

#[async_trait]
impl Subscription for PubSubSubscription {
    async fn next(&mut self) -> Option<Delivery> {
        self.deliveries.recv().await
    }

    fn stop(&mut self) {
        self.closing.cancel();
    }

    fn trouble(&self) -> Option<String> {
        self.trouble.words()
    }

    async fn close(self: Box<Self>, grace: Duration) {
        let Self { mut deliveries, closing, reader, .. } = *self;
        closing.cancel();
        let orderly_end = async {
            let endings = reader.await;
            deliveries.close();
            while let Ok(delivery) = deliveries.try_recv() {
                delivery.put_back();
            }
            if let Ok(mut endings) = endings {
                while endings.join_next().await.is_some() {}
            }
        };
        if timeout(grace, orderly_end).await.is_err() {
            tracing::warn!(
                grace_ms = grace.as_millis() as u64,
                "some deliveries were not answered within the grace"
            );
        }
    }
}

/// Why nothing can be received now, shared between the stream and its reader.
#[derive(Clone, Debug, Default)]
pub(super) struct Trouble(Arc<Mutex<Option<String>>>);

impl Trouble {
    pub(super) fn words(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Logs a change once, and not every repetition.
    pub(super) fn begin(&self, words: String) {
        let mut current = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if current.as_ref() != Some(&words) {
            tracing::warn!(reason = %words, "no notifications can be received");
            *current = Some(words);
        }
    }

    pub(super) fn end(&self) {
        if self.0.lock().unwrap_or_else(PoisonError::into_inner).take().is_some() {
            tracing::info!("notifications can be received again");
        }
    }
}

/// Answers one delivery, and so allows the stream another one.
pub(super) struct StreamAck {
    pub(super) handler: Handler,
    pub(super) _permit: OwnedSemaphorePermit,
}

impl fmt::Debug for StreamAck {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("StreamAck")
    }
}

impl AckHandle for StreamAck {
    fn acknowledge(self: Box<Self>) {
        self.handler.ack();
    }

    fn put_back(self: Box<Self>) {
        self.handler.nack();
    }
}
