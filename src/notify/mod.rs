//! How workers are woken: the [`Notifier`] and what it delivers.
//!
//! A notifier carries notifications and nothing else; it is never asked what work there is, and nothing depends on it
//! keeping what it was given. It must never read or write the store.

mod local;
mod mailbox;
#[cfg(feature = "pubsub")]
mod pubsub;

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;

use crate::broadcast::{Broadcasts, ListenError, Signals};
use crate::event::{MalformedNotification, Notification};

pub use local::{LocalNotifier, NoNotifier};
#[cfg(feature = "testing")]
pub(crate) use mailbox::{Content, Mailbox, Messages};
#[cfg(feature = "pubsub")]
pub use pubsub::{
    DEVELOPMENT_PROJECT, PubSub, PubSubConfig, PushSettings, SettingDifference, TopicState, TopicsReport,
    create_topics, describe_topics,
};
#[cfg(feature = "cli")]
pub(crate) use pubsub::{MissingPermission, PubSubRights, missing_permissions};

/// Publishes notifications and lets a worker receive them.
#[async_trait]
pub trait Notifier: Send + Sync + 'static {
    /// Publishes every notification, in requests of at most 1,000. Returns when the broker has them all, or with the
    /// first error; what was published before it stays published.
    async fn publish(&self, notifications: &[Notification]) -> Result<(), NotifyError>;

    /// Whether publishing can work: the broker answers, and has what is published to.
    async fn check(&self) -> Result<(), NotifyError> {
        Ok(())
    }

    /// Whether what is published here can reach a worker. Where it can't, nothing is published, and the promises on the
    /// rows are left to the processes where it can.
    fn wakes(&self) -> bool {
        true
    }

    /// Where emitted events are broadcast to, for whoever listens. Default none: nothing is broadcast.
    fn broadcasts(&self) -> Option<Broadcasts> {
        None
    }

    /// The signals of this process, over the broadcasts if there are any. Default: new ones each time, which only what is
    /// made of the same ones shares; those of this crate keep theirs.
    fn signals(&self) -> Signals {
        Signals::over(self.broadcasts())
    }

    /// Opens a stream of deliveries that holds at most `max_outstanding` unanswered ones.
    async fn subscribe(&self, max_outstanding: usize) -> Result<Box<dyn Subscription>, NotifyError>;
}

/// A stream of deliveries. It repairs itself: after an interruption it subscribes again.
#[async_trait]
pub trait Subscription: Send {
    /// The next delivery; `None` once [`Subscription::stop`] was called and all that had been sent is handed out. Cancel safe.
    async fn next(&mut self) -> Option<Delivery>;

    /// Takes no more from the broker. What it has sent already is still handed out by [`Subscription::next`].
    fn stop(&mut self);

    /// Why nothing can be received now, in words that say what to do; `None` while all is well.
    fn trouble(&self) -> Option<String>;

    /// Stops receiving and gives back what was received but not yet handed out by [`Subscription::next`]. Deliveries
    /// handed out before can still be answered; returns once their answers have been sent, or after `grace`.
    async fn close(self: Box<Self>, grace: Duration);
}

/// One delivered message. Dropped without an answer, it is put back.
#[derive(Debug)]
pub struct Delivery {
    /// What the message says.
    pub notification: Result<Notification, MalformedNotification>,
    answer: Option<Box<dyn Answer>>,
}

/// Tells the broker what became of a message.
pub trait Answer: Send + fmt::Debug {
    /// The message is done with.
    fn acknowledge(self: Box<Self>);
    /// Deliver it again, after the subscription's retry delay.
    fn put_back(self: Box<Self>);
}

impl Delivery {
    /// A delivery with the body of a message and the way to answer it.
    pub fn new(body: &[u8], answer: Box<dyn Answer>) -> Self {
        Self { notification: Notification::parse(body), answer: Some(answer) }
    }

    /// The message is done with.
    pub fn acknowledge(mut self) {
        if let Some(answer) = self.answer.take() {
            answer.acknowledge();
        }
    }

    /// Deliver it again, after the subscription's retry delay.
    pub fn put_back(self) {
        drop(self);
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        if let Some(answer) = self.answer.take() {
            answer.put_back();
        }
    }
}

/// Why a notification could not be published or a subscription not be opened.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub struct NotifyError {
    /// What failed, and what to do about it.
    pub what: String,
    /// The cause, as the client library tells it.
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
