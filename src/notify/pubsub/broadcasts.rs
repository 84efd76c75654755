//! The topic of broadcasts: publishes to it, and gives each listener a subscription of its own,
//! which is deleted at its end.
//!
//! Nothing is retained: what can't be published is lost, and what a listener receives is
//! acknowledged at once.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::{BoxFuture, join_all};
use google_cloud_gax::options::RequestOptionsBuilder;
use google_cloud_pubsub::client::Publisher;
use google_cloud_pubsub::model::{ExpirationPolicy, Message, Subscription};
use google_cloud_pubsub::subscriber::{MessageStream, ShutdownBehavior};
use tokio::sync::RwLock;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::clients::{self, Admins};
use super::config::PubSubConfig;
use super::failure::{FailureKind, failed, in_one_line};
use super::publisher::{MARGIN, PublishFailure};
use super::stream::BackOff;
use super::topics::{REQUEST_TIMEOUT, create_topic};
use crate::broadcast::{Channel, Inbox, ListenError, PublishOutcome};
use crate::event::Broadcast;
use crate::notify::NotifyError;

/// When Pub/Sub deletes the subscription of a listener that died: the minimum that it allows.
const EXPIRES_AFTER: Duration = Duration::from_secs(24 * 60 * 60);
/// How long a subscription retains what its listener did not take: the minimum that Pub/Sub allows.
const KEPT_FOR: Duration = Duration::from_secs(10 * 60);
/// The most that may be in flight to a listener.
const OUTSTANDING: i64 = 1_000;
const OUTSTANDING_BYTES: i64 = 16 * 1024 * 1024;
/// Ids have at most 255 characters; that of a subscription ends with a dash and 32 digits.
const ID_MAX: usize = 255 - 33;
/// The time limit for ending a stream.
const STREAM_END: Duration = Duration::from_secs(1);

/// A topic of broadcasts.
#[derive(Debug)]
pub(super) struct BroadcastTopic {
    path: String,
    config: Arc<PubSubConfig>,
    admins: Admins,
    /// Replaced after an attempt without an answer: its connection may be dead without noticing.
    publisher: RwLock<Publisher>,
}

impl BroadcastTopic {
    pub(super) async fn new(
        path: String,
        config: Arc<PubSubConfig>,
        admins: Admins,
    ) -> Result<Self, NotifyError> {
        let publisher = RwLock::new(clients::publisher(&config, path.clone()).await?);
        Ok(Self { path, config, admins, publisher })
    }

    /// Publishes once. Returns how many messages failed, and why the first of them did.
    async fn attempt(&self, messages: &[Message]) -> Result<(), (usize, PublishFailure)> {
        let publisher = self.publisher.read().await.clone();
        let answers = join_all(messages.iter().map(|message| publisher.publish(message.clone())));
        let Ok(answers) = timeout(self.config.publish_timeout + MARGIN, answers).await else {
            return Err((messages.len(), PublishFailure::NoAnswer));
        };
        let mut failures: Vec<_> = answers.into_iter().filter_map(Result::err).collect();
        match failures.len() {
            0 => Ok(()),
            lost => Err((lost, PublishFailure::Refused(failures.swap_remove(0)))),
        }
    }

    async fn renew_publisher(&self) {
        if let Ok(fresh) = clients::publisher(&self.config, self.path.clone()).await {
            *self.publisher.write().await = fresh;
        }
    }
}

#[async_trait]
impl Channel for BroadcastTopic {
    async fn publish(&self, broadcasts: &[Broadcast]) -> PublishOutcome {
        let messages: Vec<_> = broadcasts.iter().map(message).collect();
        let mut attempt = self.attempt(&messages).await;
        if self.config.create_missing
            && let Err((_, failure)) = &attempt
            && failure.is_missing()
            && create_topic(&self.admins, &self.config, &self.path).await.is_ok()
        {
            self.renew_publisher().await;
            attempt = self.attempt(&messages).await;
        }
        let Err((lost, failure)) = attempt else { return PublishOutcome::default() };
        if failure.kind() == FailureKind::Unreachable {
            self.renew_publisher().await;
        }
        PublishOutcome { lost, error: Some(failure.error(&self.path, &self.config).into()) }
    }

    async fn open(
        &self,
        inbox: Arc<Inbox>,
        closing: CancellationToken,
    ) -> Result<BoxFuture<'static, ()>, ListenError> {
        let topic = self.path.rsplit('/').next().unwrap_or_default();
        let id = format!("{}-{}", topic.get(..ID_MAX).unwrap_or(topic), Uuid::new_v4().simple());
        let subscription = ListenerSubscription {
            path: format!("projects/{}/subscriptions/{id}", self.config.project),
            topic: self.path.clone(),
            config: Arc::clone(&self.config),
            admins: self.admins.clone(),
            inbox,
            closing,
        };
        subscription.create().await?;
        Ok(Box::pin(subscription.run()))
    }
}

fn message(broadcast: &Broadcast) -> Message {
    Message::new().set_data(broadcast.body().into_bytes()).set_attributes(broadcast.attributes())
}

/// The subscription of one listener.
struct ListenerSubscription {
    path: String,
    topic: String,
    config: Arc<PubSubConfig>,
    admins: Admins,
    inbox: Arc<Inbox>,
    closing: CancellationToken,
}

impl ListenerSubscription {
    /// Creates the subscription. Returns whether it did not exist.
    async fn create(&self) -> Result<bool, NotifyError> {
        let wanted = self.wanted()?;
        let request = || {
            let request = self.admins.subscriptions.create_subscription().with_request(wanted.clone());
            request.with_attempt_timeout(REQUEST_TIMEOUT).send()
        };
        let mut created = request().await;
        if self.config.create_missing
            && let Err(error) = &created
            && FailureKind::of(error) == FailureKind::Missing
        {
            create_topic(&self.admins, &self.config, &self.topic).await?;
            created = request().await;
        }
        match created {
            Ok(_) => Ok(true),
            Err(error) if FailureKind::of(&error) == FailureKind::AlreadyThere => Ok(false),
            Err(error) if FailureKind::of(&error) == FailureKind::Denied => Err(NotifyError {
                what: format!(
                    "a listener needs a subscription of its own on {}, and may not create one: grant \
                     pubsub.subscriptions.create, .consume, .get and .delete in the project, and \
                     pubsub.topics.attachSubscription on the topic",
                    self.topic
                ),
                source: Some(Box::new(error)),
            }),
            Err(error) => Err(failed(&self.topic, &self.config, error)),
        }
    }

    fn wanted(&self) -> Result<Subscription, NotifyError> {
        let unfit = |_| NotifyError::new("a setting of the subscription is out of the range of a duration");
        let mut wanted = Subscription::new()
            .set_name(&self.path)
            .set_topic(&self.topic)
            .set_filter(self.inbox.selection().filter())
            .set_ack_deadline_seconds(10);
        let mut expiration = ExpirationPolicy::new();
        expiration.ttl = Some(EXPIRES_AFTER.try_into().map_err(unfit)?);
        wanted.expiration_policy = Some(expiration);
        wanted.message_retention_duration = Some(KEPT_FOR.try_into().map_err(unfit)?);
        Ok(wanted)
    }

    /// Listens until it is closed, and then deletes the subscription.
    async fn run(self) {
        let mut back_off = BackOff::new(self.config.longest_back_off);
        while !self.closing.is_cancelled() {
            let failure = match self.stream().await {
                Ok(mut stream) => {
                    let ended = tokio::select! {
                        biased;
                        () = self.closing.cancelled() => None,
                        failure = self.watch() => Some(failure),
                        failure = self.receive(&mut stream, &mut back_off) => Some(failure),
                    };
                    let token = stream.shutdown_token();
                    drop(stream);
                    // If it takes longer, it ends in the background.
                    drop(timeout(STREAM_END, token.shutdown()).await);
                    ended
                }
                Err(error) => Some(error),
            };
            if let Some(failure) = failure {
                self.recover(failure, &mut back_off).await;
            }
        }
        self.delete().await;
    }

    async fn stream(&self) -> Result<MessageStream, NotifyError> {
        let subscriber = clients::subscriber(&self.config).await?;
        let builder = subscriber
            .subscribe(&self.path)
            .set_max_outstanding_messages(OUTSTANDING)
            .set_max_outstanding_bytes(OUTSTANDING_BYTES)
            .set_max_lease_extension(Duration::from_secs(10))
            .set_shutdown_behavior(ShutdownBehavior::NackImmediately);
        Ok(builder.build())
    }

    /// Reads the stream until it ends.
    async fn receive(&self, stream: &mut MessageStream, back_off: &mut BackOff) -> NotifyError {
        loop {
            match stream.next().await {
                Some(Ok((message, handler))) => {
                    handler.ack();
                    back_off.reset();
                    self.inbox.in_trouble(None);
                    match Broadcast::parse(&message.data) {
                        Ok(broadcast) => self.inbox.offer(&broadcast),
                        Err(error) => {
                            tracing::debug!(error = &error as &dyn std::error::Error, "passed over");
                        }
                    }
                }
                Some(Err(error)) => return failed(&self.path, &self.config, error),
                None => return NotifyError::new("the broker ended the stream; subscribing again"),
            }
        }
    }

    /// Checks with requests of its own whether the subscription exists, because the client does not
    /// report that the broker is away. Returns when the stream should be replaced: when the broker
    /// is away twice in a row.
    async fn watch(&self) -> NotifyError {
        let mut was_away = false;
        loop {
            sleep(self.config.effective_check_period()).await;
            match self.check_subscription().await {
                Ok(()) => {
                    was_away = false;
                    self.inbox.in_trouble(None);
                }
                Err(error) if was_away => return error,
                Err(error) => {
                    was_away = true;
                    self.inbox.in_trouble(Some(in_one_line(&error)));
                }
            }
        }
    }

    async fn check_subscription(&self) -> Result<(), NotifyError> {
        let request = self.admins.subscriptions.get_subscription().set_subscription(&self.path);
        match request.with_attempt_timeout(REQUEST_TIMEOUT).send().await {
            Ok(_) => Ok(()),
            // The account may be allowed to read the subscription but not to describe it; the
            // stream will show it.
            Err(error) if FailureKind::of(&error) == FailureKind::Denied => Ok(()),
            Err(error) => Err(failed(&self.path, &self.config, error)),
        }
    }

    /// Reports what is wrong, and waits until the subscription exists again.
    async fn recover(&self, failure: NotifyError, back_off: &mut BackOff) {
        let mut failure = failure;
        loop {
            let words = in_one_line(&failure);
            tracing::warn!(reason = %words, "a listener receives nothing");
            self.inbox.in_trouble(Some(words));
            if self.closing.run_until_cancelled(sleep(back_off.next())).await.is_none() {
                return;
            }
            match self.closing.run_until_cancelled(self.create()).await {
                None => return,
                Some(Ok(anew)) => {
                    if anew {
                        self.inbox.lost();
                    }
                    return;
                }
                Some(Err(error)) => failure = error,
            }
        }
    }

    async fn delete(&self) {
        let request = self.admins.subscriptions.delete_subscription().set_subscription(&self.path);
        if let Err(error) = request.with_attempt_timeout(REQUEST_TIMEOUT).send().await {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                subscription = %self.path,
                "the subscription of a listener is left to expire"
            );
        }
    }
}
