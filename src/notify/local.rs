//! Notifiers without a broker: for a process that wakes itself, and for processes that wake no
//! worker.
//!
//! Nothing here reaches another process. An event of another process waits for the promise on its
//! row, which is kept by the minute's pass of a process with a [`LocalNotifier`]. Several processes
//! need a [`PostgresNotifier`](super::PostgresNotifier) or [`PubSub`](super::PubSub).

use std::time::Duration;

use async_trait::async_trait;

use super::mailbox::{Content, Mailbox};
use super::{Notifier, NotifyError, Subscription};
use crate::broadcast::{Broadcasts, Signals};
use crate::event::Notification;

/// Maximum number of waiting notifications. They take about 30 MB; events beyond them are woken by
/// their promises.
const WAITING_MAX: usize = 250_000;

/// The delay before a message that was put back is delivered again: the same as for the
/// subscription that `wakeq topics create` makes.
const RETRY_DELAY: Duration = Duration::from_secs(10);

/// A notifier that wakes the workers of its own process and needs nothing but Postgres. Clones
/// share their messages.
///
/// An event has one waiting notification, however often it is published, so nothing piles up when a
/// handler was woken too early or the backlog is long. Notifications end with the process: when it
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
/// let notification = Notification { id: EventId::new(), canvas: CanvasId::DEFAULT };
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
        Self { mailbox: Mailbox::new(RETRY_DELAY), broadcasts: None, signals: Signals::alone() }
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
}

#[async_trait]
impl Notifier for LocalNotifier {
    async fn publish(&self, notifications: &[Notification]) -> Result<(), NotifyError> {
        self.mailbox.change(|messages| {
            for notification in notifications.iter().copied() {
                // A worker that takes the waiting one sees everything that was committed before
                // this call.
                if messages.names(notification.id) {
                    continue;
                }
                if messages.waiting() >= WAITING_MAX {
                    return Err(NotifyError::new(format!(
                        "{WAITING_MAX} notifications wait in this process already; the minute's pass wakes the rest: \
                         raise the worker's capacity, or run several workers with Pub/Sub"
                    )));
                }
                messages.push(Content::Notification(notification));
            }
            Ok(())
        })
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
    use super::*;
    use crate::event::{CanvasId, EventId};

    fn notification() -> Notification {
        Notification { id: EventId::new(), canvas: CanvasId::DEFAULT }
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

    #[tokio::test]
    async fn rejects_notifications_beyond_its_limit_and_keeps_the_waiting_ones() {
        let notifier = LocalNotifier::new();
        let first = notification();
        notifier.publish(&[first]).await.unwrap();
        let many: Vec<_> = (0..WAITING_MAX).map(|_| notification()).collect();
        let error = notifier.publish(&many).await.unwrap_err();
        assert!(error.to_string().contains("raise the worker's capacity"), "{error}");
        assert_eq!(notifier.waiting(), WAITING_MAX);
        notifier.publish(&[first]).await.expect("it waits already");
        notifier.subscribe(1).await.unwrap().next().await.unwrap().acknowledge();
        notifier.publish(&many[WAITING_MAX - 1..]).await.expect("there is room again");
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
