//! Notifications that no broker has: of events whose turn came here, or that were acknowledged while they wait for their
//! time. To put one back is to publish it. What this worker leaves to others becomes one: the broker would keep what is put back
//! for the retry delay.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use crate::event::Notification;
use crate::notify::{Answer, Delivery, Notifier, Subscription};

/// Most notifications that are published at once.
const BATCH_MAX: usize = 1_000;

/// Publishes what this worker has no use for, for whichever worker has room. Should the process end meanwhile, or the
/// broker refuse, the promise of the event makes up for it.
#[derive(Debug)]
pub(super) struct Onward {
    others: Others,
    publishing: AbortOnDropHandle<()>,
}

impl Onward {
    /// With room for so many that are not published yet.
    pub(super) fn start(notifier: Arc<dyn Notifier>, waiting_max: usize) -> Self {
        let (others, given) = mpsc::channel(waiting_max.max(1));
        let publishing = AbortOnDropHandle::new(tokio::spawn(publish_all(notifier, given)));
        Self { others: Others(others), publishing }
    }

    /// The other workers.
    pub(super) fn others(&self) -> Others {
        self.others.clone()
    }

    /// A delivery of this notification that came from no broker.
    pub(super) fn delivery(&self, notification: Notification) -> Delivery {
        let answer = OnwardAnswer { others: self.others.clone(), notification };
        Delivery::new(&notification.body(), Box::new(answer))
    }

    /// Leaves to the other workers what a broker sent to this one.
    pub(super) fn leave(&self, notification: Notification, delivery: Delivery) {
        self.others.leave(notification, delivery);
    }

    /// Returns once all is published whose delivery was dropped or answered, or after so long.
    pub(super) async fn close(self, within: Duration) {
        drop(self.others);
        if tokio::time::timeout(within, self.publishing).await.is_err() {
            tracing::warn!("not all that waited here was published; the probe will publish it");
        }
    }
}

/// The other workers; they get all that is given to them before the last of its clones is dropped.
#[derive(Clone, Debug)]
pub(super) struct Others(mpsc::Sender<Notification>);

impl Others {
    fn give(&self, notification: Notification) {
        if self.0.try_send(notification).is_err() {
            tracing::warn!(event = %notification.id, "too many wait to be published; the probe will publish it");
        }
    }

    fn leave(&self, notification: Notification, delivery: Delivery) {
        delivery.acknowledge();
        self.give(notification);
    }
}

/// Closes a subscription, and leaves to the others what it was sent and did not hand out. A message that says nothing comes again to
/// one of them.
pub(super) async fn close(mut subscription: Box<dyn Subscription>, others: Others, grace: Duration) {
    subscription.stop();
    let mut rest = Vec::new();
    // Kept until it is all: the broker would send more in the place of what is answered.
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
                "what waited here was not published; the probe will publish it"
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
