//! The notification of an event whose turn came here: no broker has it, so to put it back is to publish it.

use std::sync::Arc;

use tokio::runtime::Handle;

use crate::event::Notification;
use crate::notify::{Answer, Delivery, Notifier};

/// A delivery of this notification that came from no broker.
pub(super) fn onward(notifier: &Arc<dyn Notifier>, notification: Notification) -> Delivery {
    let answer = Onward { notifier: Arc::clone(notifier), notification };
    Delivery::new(&notification.body(), Box::new(answer))
}

struct Onward {
    notifier: Arc<dyn Notifier>,
    notification: Notification,
}

impl std::fmt::Debug for Onward {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("Onward").field(&self.notification.id).finish()
    }
}

impl Answer for Onward {
    fn acknowledge(self: Box<Self>) {}

    /// Not waited for, and should the process end meanwhile, the promise of the event makes up for it.
    fn put_back(self: Box<Self>) {
        let Ok(runtime) = Handle::try_current() else { return };
        if self.notifier.wakes() {
            runtime.spawn(async move { publish(self.notifier.as_ref(), self.notification).await });
        }
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
