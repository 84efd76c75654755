//! The subscription as a worker sees it: deliveries, trouble, and an orderly end.
//!
//! The stream and its repair are in `stream`; nothing here talks to the broker.

use std::sync::{Arc, Once};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::mpsc::Receiver;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::access::BrokerAccess;
use super::config::{Class, PubSubConfig};
use super::stream::StreamReader;
use super::trouble::Trouble;
use crate::notify::{Delivery, NotifyError, Subscription};

/// Opens a subscription. If it is missing or unreachable, that is not an error but trouble, which
/// the stream repairs.
pub(super) async fn open(
    config: Arc<PubSubConfig>,
    broker: Arc<BrokerAccess>,
    class: Class,
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
        class,
        max_outstanding,
        permits: Arc::new(Semaphore::new(max_outstanding)),
        deliveries: sender,
        trouble: trouble.clone(),
        closing: closing.clone(),
        said_filter: Once::new(),
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
