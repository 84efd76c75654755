//! Publishes messages to the topic, in batches.
//!
//! It keeps nothing: what could not be published is reported, and published again because of its
//! promise.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use google_cloud_pubsub::Error;
use google_cloud_pubsub::client::Publisher;
use google_cloud_pubsub::error::PublishError;
use google_cloud_pubsub::model::Message;
use tokio::sync::RwLock;
use tokio::time::timeout;

use super::access::BrokerAccess;
use super::clients;
use super::config::PubSubConfig;
use super::failure::{FailureKind, cause_of};
use crate::notify::NotifyError;

/// Maximum number of messages that are handed to the client before their answers are awaited.
const WINDOW: usize = 10_000;

/// How much longer than the client's own limit an answer is awaited.
pub(super) const MARGIN: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub(super) struct TopicPublisher {
    config: Arc<PubSubConfig>,
    broker: Arc<BrokerAccess>,
    /// Replaced after an attempt without an answer: its connection may be dead without noticing.
    publisher: RwLock<Publisher>,
}

impl TopicPublisher {
    pub(super) async fn new(
        config: Arc<PubSubConfig>,
        broker: Arc<BrokerAccess>,
    ) -> Result<Self, NotifyError> {
        let publisher = RwLock::new(clients::publisher(&config, config.topic_path()).await?);
        Ok(Self { config, broker, publisher })
    }

    /// Publishes all messages; after an error, some of them may have been published.
    pub(super) async fn publish(&self, messages: &[Message]) -> Result<(), NotifyError> {
        for window in messages.chunks(WINDOW) {
            let (left, failure) = match self.attempt(window).await {
                Ok(()) => continue,
                Err(refused) => refused,
            };
            if !(failure.is_missing() && self.config.create_missing) {
                return Err(self.give_up(failure).await);
            }
            self.broker.create(&self.config).await?;
            if let Err((_, failure)) = self.attempt(&left).await {
                return Err(self.give_up(failure).await);
            }
        }
        Ok(())
    }

    /// Publishes once. Returns the messages that failed, and why the first of them did.
    async fn attempt(&self, messages: &[Message]) -> Result<(), (Vec<Message>, PublishFailure)> {
        let _both_or_neither = self.broker.creating.read().await;
        let publisher = self.publisher.read().await.clone();
        let answers = join_all(messages.iter().map(|message| publisher.publish(message.clone())));
        let Ok(answers) = timeout(self.config.publish_timeout + MARGIN, answers).await else {
            return Err((messages.to_vec(), PublishFailure::NoAnswer));
        };
        let mut left = Vec::new();
        let mut first = None;
        for (message, answer) in messages.iter().zip(answers) {
            if let Err(error) = answer {
                left.push(message.clone());
                first.get_or_insert(error);
            }
        }
        match first {
            None => Ok(()),
            Some(error) => Err((left, PublishFailure::Refused(error))),
        }
    }

    /// Describes the failure, and replaces a connection that may be dead before the next publish.
    async fn give_up(&self, failure: PublishFailure) -> NotifyError {
        let kind = failure.kind();
        if kind == FailureKind::Unreachable
            && let Ok(fresh) = clients::publisher(&self.config, self.config.topic_path()).await
        {
            *self.publisher.write().await = fresh;
        }
        failure.error(&self.config.topic_path(), &self.config)
    }
}

pub(super) enum PublishFailure {
    NoAnswer,
    Refused(PublishError),
}

impl PublishFailure {
    /// What went wrong with this topic, and what to do about it.
    pub(super) fn error(self, topic: &str, config: &PubSubConfig) -> NotifyError {
        let what = format!("could not publish: {}", self.kind().words(topic, config));
        match self {
            Self::NoAnswer => NotifyError::new(what),
            Self::Refused(error) => NotifyError { what, source: Some(Box::new(error)) },
        }
    }

    pub(super) fn is_missing(&self) -> bool {
        self.kind() == FailureKind::Missing
    }

    pub(super) fn kind(&self) -> FailureKind {
        match self {
            Self::NoAnswer => FailureKind::Unreachable,
            Self::Refused(error) => cause_of(error)
                .as_deref()
                .map_or(FailureKind::Unreachable, |cause: &Error| FailureKind::of(cause)),
        }
    }
}
