//! Notifications that the broker does not hold: of events whose turn came here, and of events that
//! wait for their time after being acknowledged. Putting one back means publishing it. What this
//! worker leaves to others is published as well: the broker would hold what is put back for the
//! retry delay.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use crate::event::Notification;
use crate::notify::{Answer, Delivery, Notifier, Subscription};

/// Most notifications published at once.
const BATCH_MAX: usize = 1_000;

/// Publishes notifications that this worker has no use for, to any worker that has room. If the
/// process ends in the meantime, or the broker refuses, the event's promise makes up for it.
#[derive(Debug)]
pub(super) struct Onward {
    others: Others,
    publishing: AbortOnDropHandle<()>,
}

impl Onward {
    /// Holds up to `waiting_max` notifications that are not yet published.
    pub(super) fn start(notifier: Arc<dyn Notifier>, waiting_max: usize) -> Self {
        let (others, given) = mpsc::channel(waiting_max.max(1));
        let publishing = AbortOnDropHandle::new(tokio::spawn(publish_all(notifier, given)));
        Self { others: Others(others), publishing }
    }

    /// The other workers.
    pub(super) fn others(&self) -> Others {
        self.others.clone()
    }

    /// A delivery of this notification that did not come from the broker.
    pub(super) fn delivery(&self, notification: Notification) -> Delivery {
        let answer = OnwardAnswer { others: self.others.clone(), notification };
        Delivery::new(&notification.body(), Box::new(answer))
    }

    /// Leaves to the other workers what the broker sent to this one.
    pub(super) fn leave(&self, notification: Notification, delivery: Delivery) {
        self.others.leave(notification, delivery);
    }

    /// Returns once every notification is published whose delivery was dropped or answered, or
    /// after `within`.
    pub(super) async fn close(self, within: Duration) {
        drop(self.others);
        if tokio::time::timeout(within, self.publishing).await.is_err() {
            tracing::warn!(
                "not all notifications that waited here were published; the probe will \
                            publish the rest"
            );
        }
    }
}

/// The other workers. They receive everything given to them before the last clone is dropped.
#[derive(Clone, Debug)]
pub(super) struct Others(mpsc::Sender<Notification>);

impl Others {
    fn give(&self, notification: Notification) {
        if self.0.try_send(notification).is_err() {
            tracing::warn!(event = %notification.id, "too many notifications wait to be published; \
                                                      the probe will publish this one");
        }
    }

    fn leave(&self, notification: Notification, delivery: Delivery) {
        delivery.acknowledge();
        self.give(notification);
    }
}

/// Closes a subscription, and leaves to the other workers what it had received and not handed out.
/// A message that is not a notification is delivered again, to one of them.
pub(super) async fn close(mut subscription: Box<dyn Subscription>, others: Others, grace: Duration) {
    subscription.stop();
    let mut rest = Vec::new();
    // Answered only when all are collected: the broker would send more in place of those answered.
    while let Some(delivery) = subscription.next().await {
        rest.push(delivery);
    }
    for delivery in rest {
        if let Ok(notification) = delivery.notification {
            others.leave(notification, delivery);
        }
    }
    drop(others);
    subscription.close(grace).await;
}

struct OnwardAnswer {
    others: Others,
    notification: Notification,
}

impl std::fmt::Debug for OnwardAnswer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("OnwardAnswer").field(&self.notification.id).finish()
    }
}

impl Answer for OnwardAnswer {
    fn acknowledge(self: Box<Self>) {}

    fn put_back(self: Box<Self>) {
        self.others.give(self.notification);
    }
}

async fn publish_all(notifier: Arc<dyn Notifier>, mut given: mpsc::Receiver<Notification>) {
    let mut batch = Vec::new();
    while given.recv_many(&mut batch, BATCH_MAX).await > 0 {
        if notifier.wakes()
            && let Err(error) = notifier.publish(&batch).await
        {
            tracing::warn!(
                notifications = batch.len(),
                error = &error as &dyn std::error::Error,
                "the notifications that waited here were not published; the probe will publish them"
            );
        }
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
