//! Notifications that the broker does not hold: of events whose turn came here, and of events that
//! wait for their time after being acknowledged. Putting one back means publishing it.
//! Notifications that this worker leaves to others are published as well, because the broker would
//! hold those that are put back for the retry delay.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use crate::event::{Notification, spread};
use crate::notify::{AckHandle, Delivery, Notifier, Subscription};

/// Maximum number of notifications published at once.
const BATCH_MAX: usize = 1_000;
/// How long after a failure they are published again.
const TRY_AGAIN: Duration = Duration::from_secs(1);

/// Publishes notifications that this worker has no use for, to any worker that has room; while the
/// broker refuses, again and again. If the process ends in the meantime, or too many wait, the
/// event's promise makes up for it.
#[derive(Debug)]
pub(super) struct Republisher {
    sender: RepublishSender,
    publishing: AbortOnDropHandle<()>,
    /// The last attempt failed.
    fails: Arc<AtomicBool>,
}

impl Republisher {
    /// Holds up to `waiting_max` notifications that are not yet published.
    pub(super) fn start(notifier: Arc<dyn Notifier>, waiting_max: usize) -> Self {
        let (sender, receiver) = mpsc::channel(waiting_max.max(1));
        let fails = Arc::new(AtomicBool::new(false));
        let publishing = tokio::spawn(publish_all(notifier, receiver, Arc::clone(&fails)));
        Self { sender: RepublishSender(sender), publishing: AbortOnDropHandle::new(publishing), fails }
    }

    /// Whether the broker takes what is published.
    pub(super) fn works(&self) -> bool {
        !self.fails.load(Ordering::Relaxed)
    }

    /// A sender of notifications to the other workers.
    pub(super) fn sender(&self) -> RepublishSender {
        self.sender.clone()
    }

    /// A delivery of this notification that did not come from the broker.
    pub(super) fn delivery(&self, notification: Notification) -> Delivery {
        let ack = RepublishAck { sender: self.sender.clone(), notification };
        Delivery::new(&notification.body(), Box::new(ack))
    }

    /// Leaves notifications that the broker sent to this worker to the others.
    pub(super) fn republish(&self, notification: Notification, delivery: Delivery) {
        self.sender.republish(notification, delivery);
    }

    /// Returns once every notification is published whose delivery was dropped or answered, or
    /// after `within`.
    pub(super) async fn close(self, within: Duration) {
        drop(self.sender);
        if tokio::time::timeout(within, self.publishing).await.is_err() {
            tracing::warn!(
                "not all notifications that waited here were published; the probe will \
                            publish the rest"
            );
        }
    }
}

/// Sends notifications to the other workers. They receive everything that is sent before the last
/// clone is dropped.
#[derive(Clone, Debug)]
pub(super) struct RepublishSender(mpsc::Sender<Notification>);

impl RepublishSender {
    fn send(&self, notification: Notification) {
        if self.0.try_send(notification).is_err() {
            tracing::warn!(
                event = %notification.id,
                "too many notifications wait to be published; the probe will publish this one"
            );
        }
    }

    fn republish(&self, notification: Notification, delivery: Delivery) {
        delivery.acknowledge();
        self.send(notification);
    }
}

/// Closes a subscription, and leaves the notifications that it had received and not handed out to
/// the other workers. A message that is not a notification is delivered again, to one of them.
pub(super) async fn close(mut subscription: Box<dyn Subscription>, sender: RepublishSender, grace: Duration) {
    subscription.stop();
    let mut rest = Vec::new();
    // Answered only when all are collected: the broker would send more in place of those answered.
    while let Some(delivery) = subscription.next().await {
        rest.push(delivery);
    }
    for delivery in rest {
        if let Ok(notification) = delivery.notification {
            sender.republish(notification, delivery);
        }
    }
    drop(sender);
    subscription.close(grace).await;
}

struct RepublishAck {
    sender: RepublishSender,
    notification: Notification,
}

impl std::fmt::Debug for RepublishAck {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("RepublishAck").field(&self.notification.id).finish()
    }
}

impl AckHandle for RepublishAck {
    fn acknowledge(self: Box<Self>) {}

    fn put_back(self: Box<Self>) {
        self.sender.send(self.notification);
    }

    fn returns_at_once(&self) -> bool {
        true
    }
}

async fn publish_all(
    notifier: Arc<dyn Notifier>,
    mut receiver: mpsc::Receiver<Notification>,
    fails: Arc<AtomicBool>,
) {
    let mut batch = Vec::new();
    while receiver.recv_many(&mut batch, BATCH_MAX).await > 0 {
        while notifier.wakes()
            && let Err(error) = notifier.publish(&batch).await
        {
            if !fails.swap(true, Ordering::Relaxed) {
                tracing::warn!(
                    notifications = batch.len(),
                    error = &error as &dyn std::error::Error,
                    "notifications that waited here were not published; retrying until it works"
                );
            }
            tokio::time::sleep(spread(TRY_AGAIN)).await;
        }
        fails.store(false, Ordering::Relaxed);
        batch.clear();
    }
}

/// Publishes the notification of an event whose turn has come.
pub(super) async fn publish(notifier: &dyn Notifier, notification: Notification) {
    if let Err(error) = notifier.publish(&[notification]).await {
        tracing::warn!(
            event = %notification.id,
            error = &error as &dyn std::error::Error,
            "the next event of an object was not published; the probe will publish it"
        );
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;
    use crate::event::{CanvasId, EventId};
    use crate::notify::NotifyError;

    /// Refuses the first two requests.
    #[derive(Default)]
    struct Refusing {
        requests: AtomicUsize,
        published: AtomicUsize,
    }

    #[async_trait::async_trait]
    impl Notifier for Refusing {
        async fn publish(&self, notifications: &[Notification]) -> Result<(), NotifyError> {
            if self.requests.fetch_add(1, Ordering::Relaxed) < 2 {
                return Err(NotifyError::new("no broker"));
            }
            self.published.fetch_add(notifications.len(), Ordering::Relaxed);
            Ok(())
        }

        async fn subscribe(&self, _: usize) -> Result<Box<dyn Subscription>, NotifyError> {
            Err(NotifyError::new("no broker"))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn refused_notifications_are_published_later() {
        let notifier = Arc::new(Refusing::default());
        let republisher = Republisher::start(notifier.clone(), 10);
        for _ in 0..3 {
            let notification = Notification::new(EventId::new(), CanvasId::DEFAULT);
            republisher.delivery(notification).put_back();
        }
        tokio::time::sleep(TRY_AGAIN / 2).await;
        assert!(!republisher.works());
        // Two pauses, each with a fifth more.
        tokio::time::sleep(2 * TRY_AGAIN + 2 * TRY_AGAIN / 5).await;
        assert!(republisher.works());
        republisher.close(TRY_AGAIN).await;
        assert_eq!(notifier.published.load(Ordering::Relaxed), 3);
    }
}
