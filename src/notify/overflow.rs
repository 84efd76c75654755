//! Notifications for which the mailbox of a process had no room. Their events are looked for once
//! most of the others have been handled.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::sleep;

use super::mailbox::{Mailbox, Messages};

/// A mailbox is drained when this part of what it holds at most is left: enough for the workers of
/// a process while it looks for more.
const LEFT_PART: usize = 8;
/// How soon a process that waits for that counts again, in its memory.
const COUNT_PERIOD: Duration = Duration::from_millis(100);

/// Whether notifications were dropped whose events nobody has looked for.
#[derive(Debug, Default)]
pub(super) struct Overflow {
    is_noted: AtomicBool,
    noted: Notify,
}

impl Overflow {
    /// Notifications were dropped that were this process's to handle.
    pub(super) fn note(&self) {
        if !self.is_noted.swap(true, Ordering::Relaxed) {
            tracing::info!(
                "this process has no room for more notifications: it looks for the events beyond them once it has \
                 handled most of them"
            );
            self.noted.notify_one();
        }
    }

    /// Waits until notifications were dropped. Cancel safe.
    pub(super) async fn noted(&self) {
        while !self.is_noted.load(Ordering::Relaxed) {
            self.noted.notified().await;
        }
    }

    /// Their events are looked for from now on.
    pub(super) fn look(&self) {
        self.is_noted.store(false, Ordering::Relaxed);
    }
}

/// Whether this mailbox, which holds this many messages at most, is drained. Messages in reserve do
/// not count, since those that are the process's own to handle take their room.
pub(super) fn is_drained(mailbox: &Mailbox, most: usize) -> bool {
    mailbox.read(Messages::own_waiting) <= most / LEFT_PART
}

/// Waits for that. Cancel safe.
pub(super) async fn drained(mailbox: &Mailbox, most: usize) {
    while !is_drained(mailbox, most) {
        sleep(COUNT_PERIOD).await;
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;
    use crate::event::{CanvasId, EventId, Notification};
    use crate::notify::mailbox::Content;

    #[tokio::test(start_paused = true)]
    async fn an_overflow_is_noted_until_the_dropped_notifications_are_looked_for() {
        let (overflow, long) = (Overflow::default(), Duration::from_secs(3_600));
        assert!(timeout(long, overflow.noted()).await.is_err(), "nothing was dropped");
        overflow.note();
        overflow.note();
        overflow.noted().await;
        overflow.noted().await;
        overflow.look();
        assert!(timeout(long, overflow.noted()).await.is_err(), "it is looked for");
        overflow.note();
        overflow.noted().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_mailbox_is_drained_when_an_eighth_is_left_whatever_is_in_reserve() {
        let mailbox = Mailbox::new(Duration::from_secs(10));
        let content = || Content::Notification(Notification::new(EventId::new(), CanvasId::DEFAULT));
        mailbox.change(|messages| {
            (0..4).for_each(|_| messages.push(content()));
            (0..20).for_each(|_| messages.push_reserve(content()));
        });
        assert!(!is_drained(&mailbox, 24) && is_drained(&mailbox, 32));
        let mut subscription = mailbox.subscribe(1).unwrap();
        let taken = async {
            drained(&mailbox, 24).await;
            mailbox.read(Messages::own_waiting)
        };
        let take = async { subscription.next().await.unwrap().acknowledge() };
        assert_eq!(tokio::join!(taken, take), (3, ()));
    }
}
