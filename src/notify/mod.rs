//! How workers are woken: the [`Notifier`] and what it delivers.
//!
//! A notifier carries notifications and nothing else: it does not know what work there is, and
//! nothing depends on it keeping what it was given. It must never read or write a table.

mod local;
mod mailbox;
mod overflow;
mod postgres;
#[cfg(feature = "pubsub")]
mod pubsub;

use std::collections::HashSet;
use std::fmt;
use std::time::Duration;

use async_trait::async_trait;

use crate::broadcast::{Broadcasts, ListenError, Signals};
use crate::event::CanvasId;

pub use crate::event::{MalformedNotification, Notification};
pub use local::{LocalNotifier, NoNotifier};
#[cfg(feature = "testing")]
pub(crate) use mailbox::{Content, Mailbox, Messages};
pub use postgres::PostgresNotifier;
#[cfg(feature = "pubsub")]
pub use pubsub::{
    DEVELOPMENT_PROJECT, MissingPermission, PubSub, PubSubConfig, PubSubRights, PushSettings,
    SettingDifference, SubscriptionReport, TopicState, TopicsReport, create_topics, describe_topics,
    missing_permissions,
};

/// Publishes notifications and lets a worker receive them.
#[async_trait]
pub trait Notifier: Send + Sync + 'static {
    /// Publishes every notification, in requests of at most 1,000. Returns when the broker has all
    /// of them, or with the first error; what was published before the error stays published.
    async fn publish(&self, notifications: &[Notification]) -> Result<(), NotifyError>;

    /// Whether publishing can work: the broker answers, and has the topic.
    async fn check(&self) -> Result<(), NotifyError> {
        Ok(())
    }

    /// Whether what is published here can reach a worker. If not, nothing is published, and the
    /// promises on the rows are left to processes whose notifier can.
    fn wakes(&self) -> bool {
        true
    }

    /// Whether nothing that was published before this process began can still reach a worker, so
    /// that the events that wait have to be woken ([`Admin::wake`](crate::Admin::wake) with
    /// `true`). May take a second. Default false: a broker keeps what it was given.
    async fn starts_empty(&self) -> bool {
        false
    }

    /// Waits until this process has to look for notifications that it, and perhaps others with it,
    /// may have missed. Returns the time since when notifications may not have reached a worker. By
    /// default it waits for ever, as a broker keeps what it was given.
    async fn missed(&self) -> Duration {
        std::future::pending().await
    }

    /// Waits until this process had no room for notifications that were its to handle, and most of
    /// the others have been handled: it then has to look for the events that wait. By default it
    /// waits for ever, as a broker keeps what it was given.
    async fn overflowed(&self) {
        std::future::pending().await
    }

    /// Waits until most of the notifications that wait in this process have been handled. By
    /// default it does not wait.
    async fn drained(&self) {}

    /// Publishes notifications of events that were looked for. Returns the canvases for whose
    /// notifications this process has no room; that is not an [overflow](Self::overflowed), since
    /// the caller continues when they are [drained](Self::drained).
    async fn publish_again(&self, notifications: &[Notification]) -> Result<HashSet<CanvasId>, NotifyError> {
        self.publish(notifications).await.map(|()| HashSet::new())
    }

    /// The broadcasts of emitted events for listeners. Default none: nothing is broadcast.
    fn broadcasts(&self) -> Option<Broadcasts> {
        None
    }

    /// The signals of this process, over the broadcasts if there are any. By default every call
    /// makes new ones, which only their clones share; the notifiers of this crate return the same
    /// ones each time.
    fn signals(&self) -> Signals {
        Signals::over(self.broadcasts())
    }

    /// Opens a stream of deliveries that holds at most `max_outstanding` unanswered ones.
    async fn subscribe(&self, max_outstanding: usize) -> Result<Box<dyn Subscription>, NotifyError>;

    /// Opens a stream of urgent notifications alone, so that they do not wait behind others. While
    /// it is open, the streams of [`subscribe`](Self::subscribe) may leave them to it. By default
    /// there is none, and they come in those, in their order.
    async fn subscribe_urgent(
        &self,
        _max_outstanding: usize,
    ) -> Result<Option<Box<dyn Subscription>>, NotifyError> {
        Ok(None)
    }
}

/// A stream of deliveries. It repairs itself: after an interruption it subscribes again.
#[async_trait]
pub trait Subscription: Send {
    /// The next delivery; `None` once [`Subscription::stop`] was called and everything that had
    /// been sent was handed out. Cancel safe.
    async fn next(&mut self) -> Option<Delivery>;

    /// Stops receiving from the broker. Messages that it has sent already are still handed out by
    /// [`Subscription::next`].
    fn stop(&mut self);

    /// Why nothing can be received now, with what to do about it; `None` if all is well.
    fn trouble(&self) -> Option<String>;

    /// Stops receiving, and puts back what was received but not handed out by
    /// [`Subscription::next`]. Deliveries that were handed out can still be answered; returns once
    /// their answers have been sent, or after `grace`.
    async fn close(self: Box<Self>, grace: Duration);
}

/// One delivered message. If it is dropped without an answer, it is put back.
#[derive(Debug)]
pub struct Delivery {
    /// The content of the message.
    pub notification: Result<Notification, MalformedNotification>,
    ack: Option<Box<dyn AckHandle>>,
}

/// Acknowledges a message to the broker, or puts it back.
pub trait AckHandle: Send + fmt::Debug {
    /// The message is done with.
    fn acknowledge(self: Box<Self>);
    /// The message is to be delivered again, after the subscription's retry delay.
    fn put_back(self: Box<Self>);
    /// Whether a message that is put back comes again at once, because the broker does not hold it.
    fn returns_at_once(&self) -> bool {
        false
    }
}

impl Delivery {
    /// A delivery from the body of a message and the way to answer it.
    pub fn new(body: &[u8], ack: Box<dyn AckHandle>) -> Self {
        Self { notification: Notification::parse(body), ack: Some(ack) }
    }

    /// The message is done with.
    pub fn acknowledge(mut self) {
        if let Some(ack) = self.ack.take() {
            ack.acknowledge();
        }
    }

    /// The message is to be delivered again, after the subscription's retry delay.
    pub fn put_back(self) {
        drop(self);
    }

    /// Whether it comes again at once if it is put back.
    pub(crate) fn returns_at_once(&self) -> bool {
        self.ack.as_ref().is_some_and(|ack| ack.returns_at_once())
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        if let Some(ack) = self.ack.take() {
            ack.put_back();
        }
    }
}

/// Why a notification could not be published, or a subscription could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub struct NotifyError {
    /// What failed, and what to do about it.
    pub what: String,
    /// The cause, as reported by the client library.
    #[source]
    pub source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl NotifyError {
    /// An error without a cause of its own.
    pub fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), source: None }
    }
}

impl From<NotifyError> for ListenError {
    fn from(NotifyError { what, source }: NotifyError) -> Self {
        Self::Broker { what, source }
    }
}
