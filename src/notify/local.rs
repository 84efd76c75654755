//! Notifiers without a broker: for a process that wakes itself, and for processes that wake no
//! worker.
//!
//! Nothing here reaches another process. An event of another process waits for the promise on its
//! row, which is kept by the minute's pass of a process with a [`LocalNotifier`]. Several processes
//! need a [`PostgresNotifier`](super::PostgresNotifier) or [`PubSub`](super::PubSub).

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::mailbox::{Content, Mailbox};
use super::overflow::{self, Overflow};
use super::{Notifier, NotifyError, Subscription};
use crate::broadcast::{Broadcasts, Signals};
use crate::event::{CanvasId, Notification};

/// Maximum number of waiting notifications. They take about 30 MB; events beyond them are looked
/// for when most of these have been handled.
const WAITING_MAX: usize = 250_000;

/// The delay before a message that was put back is delivered again: the same as for the
/// subscription that `wakeq topics create` makes.
const RETRY_DELAY: Duration = Duration::from_secs(10);

/// A notifier that wakes the workers of its own process and needs nothing but Postgres. Clones
/// share their messages.
///
/// An event has one waiting notification, however often it is published, so nothing piles up when a
/// handler was woken too early or the backlog is long. At most 250,000 wait, and the worker looks
/// for the events beyond them when it has room again. Notifications end with the process: when it
/// starts, call [`Admin::wake`](crate::Admin::wake) with `true` for the events that are waiting.
/// Events of another process are found by the minute's pass, at most one and a half minutes later
/// with the default durations.
///
/// ```
/// use wakeq::notify::{LocalNotifier, Notification, Notifier};
/// use wakeq::{CanvasId, EventId};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), wakeq::notify::NotifyError> {
/// let notifier = LocalNotifier::new();
/// let notification = Notification::new(EventId::new(), CanvasId::DEFAULT);
/// notifier.publish(&[notification, notification]).await?;
/// assert_eq!(notifier.waiting(), 1);
/// let mut subscription = notifier.subscribe(10).await?;
/// let delivery = subscription.next().await.expect("it is open");
/// assert_eq!(delivery.notification.as_ref().unwrap(), &notification);
/// delivery.acknowledge();
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct LocalNotifier {
    mailbox: Mailbox,
    /// How many notifications of each class wait at most.
    most: usize,
    overflow: Arc<Overflow>,
    broadcasts: Option<Broadcasts>,
    signals: Signals,
}

impl Default for LocalNotifier {
    fn default() -> Self {
        Self::new()
    }
}

impl LocalNotifier {
    /// An empty notifier.
    pub fn new() -> Self {
        Self::holding(WAITING_MAX)
    }

    /// An empty notifier in which this many notifications wait at most.
    pub(crate) fn holding(most: usize) -> Self {
        let (mailbox, overflow) = (Mailbox::new(RETRY_DELAY), Arc::default());
        Self { mailbox, most, overflow, broadcasts: None, signals: Signals::alone() }
    }

    /// An empty notifier that also broadcasts what is emitted, to the listeners of this process.
    ///
    /// ```
    /// use wakeq::notify::{LocalNotifier, Notifier};
    ///
    /// assert!(LocalNotifier::broadcasting().broadcasts().is_some());
    /// assert!(LocalNotifier::new().broadcasts().is_none());
    /// ```
    pub fn broadcasting() -> Self {
        Self { broadcasts: Some(Broadcasts::local()), ..Self::new() }
    }

    /// How many notifications wait to be delivered, now or later.
    pub fn waiting(&self) -> usize {
        self.mailbox.read(super::mailbox::Messages::waiting)
    }

    /// Keeps these notifications. Returns the canvases of those for which there is no room.
    fn take_in(&self, notifications: &[Notification]) -> HashSet<CanvasId> {
        self.mailbox.change(|messages| {
            let mut refused = HashSet::new();
            for notification in notifications.iter().copied() {
                // A worker that takes the waiting one sees everything that was committed before
                // this call.
                if messages.names(notification.id) {
                    continue;
                }
                // Each class has as much room, so that a backlog of one does not take the other's.
                if messages.waiting_of(notification.urgent) < self.most {
                    messages.push(Content::Notification(notification));
                } else {
                    refused.insert(notification.canvas);
                }
            }
            refused
        })
    }
}

#[async_trait]
impl Notifier for LocalNotifier {
    async fn publish(&self, notifications: &[Notification]) -> Result<(), NotifyError> {
        if !self.take_in(notifications).is_empty() {
            self.overflow.note();
        }
        Ok(())
    }

    async fn overflowed(&self) {
        self.overflow.noted().await;
        self.drained().await;
        self.overflow.look();
    }

    async fn drained(&self) {
        overflow::drained(&self.mailbox, self.most).await;
    }

    async fn publish_again(&self, notifications: &[Notification]) -> Result<HashSet<CanvasId>, NotifyError> {
        Ok(self.take_in(notifications))
    }

    async fn starts_empty(&self) -> bool {
        true
    }

    fn broadcasts(&self) -> Option<Broadcasts> {
        self.broadcasts.clone()
    }

    /// Within this process only, like its notifications: its broadcasts would not reach further.
    fn signals(&self) -> Signals {
        self.signals.clone()
    }

    async fn subscribe(&self, max_outstanding: usize) -> Result<Box<dyn Subscription>, NotifyError> {
        self.mailbox.subscribe(max_outstanding)
    }

    async fn subscribe_urgent(
        &self,
        max_outstanding: usize,
    ) -> Result<Option<Box<dyn Subscription>>, NotifyError> {
        self.mailbox.subscribe_urgent(max_outstanding).map(Some)
    }
}

/// For a process that can't reach a worker, such as a command line beside a process with a
/// [`LocalNotifier`]: nothing is published, and no promise is taken from processes that can keep
/// it.
///
/// ```
/// use wakeq::notify::{NoNotifier, Notifier};
///
/// assert!(!NoNotifier.wakes());
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct NoNotifier;

#[async_trait]
impl Notifier for NoNotifier {
    async fn publish(&self, _notifications: &[Notification]) -> Result<(), NotifyError> {
        Err(NotifyError::new(
            "this process wakes no workers: the minute's pass of a worker finds the events by their promises",
        ))
    }

    fn wakes(&self) -> bool {
        false
    }

    async fn subscribe(&self, _max_outstanding: usize) -> Result<Box<dyn Subscription>, NotifyError> {
        Err(NotifyError::new(
            "this process receives no notifications: give its worker a notifier that wakes it",
        ))
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;
    use crate::event::EventId;

    fn notification() -> Notification {
        Notification::new(EventId::new(), CanvasId::DEFAULT)
    }

    async fn next(subscription: &mut dyn Subscription) -> crate::notify::Delivery {
        subscription.next().await.unwrap()
    }

    /// A notification that was handed out may have been looked at before the new reason to look, so
    /// the event is published again.
    #[tokio::test(start_paused = true)]
    async fn an_event_has_one_waiting_notification() {
        let notifier = LocalNotifier::new();
        let again = notification();
        notifier.publish(&[again, notification(), again]).await.unwrap();
        assert_eq!(notifier.waiting(), 2);
        let mut subscription = notifier.subscribe(10).await.unwrap();
        let first = next(subscription.as_mut()).await;
        notifier.publish(&[again]).await.unwrap();
        assert_eq!(notifier.waiting(), 2, "the one that is handed out does not count");
        first.put_back();
        assert_eq!(notifier.waiting(), 3);
        for _ in 0..3 {
            next(subscription.as_mut()).await.acknowledge();
        }
        notifier.publish(&[again]).await.unwrap();
        assert_eq!(notifier.waiting(), 1, "nothing is remembered of what is over");
    }

    /// What is beyond its limit is dropped, and the worker learns of that once most of the others
    /// have been handled. Looking for it is no overflow.
    #[tokio::test(start_paused = true)]
    async fn a_full_notifier_reports_dropped_notifications_once_it_is_drained() {
        let (notifier, long) = (LocalNotifier::holding(16), Duration::from_secs(3_600));
        let many: Vec<_> = (0..20).map(|_| notification()).collect();
        notifier.publish(&many[..16]).await.unwrap();
        notifier.publish(&many[..1]).await.unwrap();
        let mut subscription = notifier.subscribe(20).await.unwrap();
        let mut overflowed = notifier.overflowed();
        assert!(timeout(long, &mut overflowed).await.is_err(), "each of them waits");
        notifier.publish(&many).await.unwrap();
        assert_eq!(notifier.waiting(), 16);
        for _ in 0..13 {
            next(subscription.as_mut()).await.acknowledge();
        }
        assert!(timeout(long, &mut overflowed).await.is_err(), "three are left, which is too many");
        next(subscription.as_mut()).await.acknowledge();
        overflowed.await;

        assert!(notifier.publish_again(&many[14..]).await.unwrap().is_empty());
        assert_eq!(notifier.waiting(), 6, "those that waited and those that were dropped");
        let more: Vec<_> = (0..20).map(|_| notification()).collect();
        let refused = notifier.publish_again(&more).await.unwrap();
        assert_eq!((refused, notifier.waiting()), (HashSet::from([CanvasId::DEFAULT]), 16));
        while notifier.waiting() > 0 {
            next(subscription.as_mut()).await.acknowledge();
        }
        assert!(timeout(long, notifier.overflowed()).await.is_err(), "the one that looks knows it");
    }

    /// Neither a backlog nor a flood of urgent notifications leaves no room for the others.
    #[tokio::test(start_paused = true)]
    async fn each_class_has_as_much_room() {
        let notifier = LocalNotifier::holding(4);
        for urgent in [true, false, true] {
            let many: Vec<_> = (0..10).map(|_| notification().urgent_if(urgent)).collect();
            let refused = notifier.publish_again(&many).await.unwrap();
            assert_eq!(refused.len(), 1, "six have no room");
        }
        assert_eq!(notifier.waiting(), 8);
        let mut urgent = notifier.subscribe_urgent(10).await.unwrap().unwrap();
        let held = [next(urgent.as_mut()).await, next(urgent.as_mut()).await];
        assert!(notifier.publish_again(&[notification().urgent_if(true); 1]).await.unwrap().is_empty());
        assert_eq!(notifier.publish_again(&[notification()]).await.unwrap().len(), 1);
        held.into_iter().for_each(crate::notify::Delivery::put_back);
        assert_eq!(notifier.waiting(), 9, "those that come back have their room");
    }

    #[tokio::test(start_paused = true)]
    async fn a_returned_notification_comes_again_after_ten_seconds() {
        let notifier = LocalNotifier::new();
        notifier.publish(&[notification()]).await.unwrap();
        let mut subscription = notifier.subscribe(1).await.unwrap();
        next(subscription.as_mut()).await.put_back();
        let since = tokio::time::Instant::now();
        next(subscription.as_mut()).await.acknowledge();
        assert!(since.elapsed() >= RETRY_DELAY);
    }
}
