//! The notifier over NATS JetStream. It must never know what a notification is about.
//!
#![doc = include_str!("../README.md")]

mod subscription;

use std::fmt;
use std::time::Duration;

use async_nats::Client;
use async_nats::jetstream::consumer::{AckPolicy, PullConsumer, pull};
use async_nats::jetstream::context::ContextBuilder;
use async_nats::jetstream::{Context, stream};
use async_trait::async_trait;
use wakeq::listeners::Signals;
use wakeq::notify::{Notification, Notifier, NotifyError, Subscription};

/// The durable consumer that all workers share.
const CONSUMER: &str = "workers";
/// How long a message may go without an answer or an extension before another worker gets it. A
/// consumer that was made in advance has its own.
const ACK_WAIT: Duration = Duration::from_secs(30);
/// Maximum number of messages that are sent before their answers are awaited.
const WINDOW: usize = 1_000;
/// Longest wait for an answer of the server.
const ANSWER: Duration = Duration::from_secs(5);
/// Maximum number of messages in the stream, about 200 MB. The oldest go first; their events are
/// woken by their promises.
const MESSAGES_MAX: i64 = 1_000_000;
/// The age at which a message is dropped: its event has long been woken by its promise.
const AGE_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// Maximum number of unanswered messages of a subscription.
const OUTSTANDING_MAX: usize = 50_000;

/// The names and the size of what [`NatsNotifier::open`] creates.
///
/// ```
/// let mut config = wakeq_nats::NatsConfig::default();
/// config.stream = "wakeq-staging".to_owned();
/// config.replicas = 3;
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NatsConfig {
    /// The name of the stream. Its only subject is this name with `.notifications`. Default
    /// `wakeq`.
    pub stream: String,
    /// Whether urgent notifications have a stream of their own, so that they do not wait behind
    /// others: it has the name of the first one with `-urgent`, and the subject of the first one's
    /// name with `.urgent`. All processes need the same, workers first. Default false: they go with
    /// the others, and are first only within a worker.
    pub urgent: bool,
    /// How many servers of a cluster keep the stream, if it is created: 1 to 5. Default 1.
    pub replicas: usize,
}

impl Default for NatsConfig {
    fn default() -> Self {
        Self { stream: "wakeq".to_owned(), urgent: false, replicas: 1 }
    }
}

/// The stream and the subject of notifications.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    /// Those of all, or of those that are not urgent.
    Ordinary,
    Urgent,
}

impl NatsConfig {
    /// The streams that there are.
    fn lines(&self) -> impl Iterator<Item = Line> {
        // The urgent one first, so that a worker never has the other alone.
        self.urgent.then_some(Line::Urgent).into_iter().chain([Line::Ordinary])
    }

    fn line_of(&self, notification: &Notification) -> Line {
        if self.urgent && notification.urgent { Line::Urgent } else { Line::Ordinary }
    }

    fn stream_of(&self, line: Line) -> String {
        match line {
            Line::Ordinary => self.stream.clone(),
            Line::Urgent => format!("{}-urgent", self.stream),
        }
    }

    fn subject_of(&self, line: Line) -> String {
        match line {
            Line::Ordinary => format!("{}.notifications", self.stream),
            Line::Urgent => format!("{}.urgent", self.stream),
        }
    }
}

/// A notifier over NATS JetStream. Clones share the client and the stream.
#[derive(Clone)]
pub struct NatsNotifier {
    context: Context,
    config: NatsConfig,
    signals: Signals,
}

impl NatsNotifier {
    /// A notifier over this client. Creates the streams and their consumers if they are missing.
    /// Existing ones are left as they are.
    ///
    /// Fails if the server does not answer within 5 s, has no JetStream, or refuses the names.
    pub async fn open(client: Client, config: NatsConfig) -> Result<Self, NotifyError> {
        let context = ContextBuilder::new().timeout(ANSWER).ack_timeout(ANSWER).build(client);
        let notifier = Self { context, config, signals: Signals::alone() };
        for line in notifier.config.lines() {
            notifier.consumer(line).await?;
        }
        Ok(notifier)
    }

    /// The consumer of a stream; both are created if they are missing.
    async fn consumer(&self, line: Line) -> Result<PullConsumer, NotifyError> {
        let name = self.config.stream_of(line);
        let wanted = stream::Config {
            name: name.clone(),
            subjects: vec![self.config.subject_of(line)],
            retention: stream::RetentionPolicy::WorkQueue,
            max_messages: MESSAGES_MAX,
            max_age: AGE_MAX,
            num_replicas: self.config.replicas,
            ..stream::Config::default()
        };
        let opened = self.context.get_or_create_stream(wanted).await;
        let stream =
            opened.map_err(|error| failed(format!("the stream {name} of NATS can't be opened"), error))?;
        let wanted = pull::Config {
            durable_name: Some(CONSUMER.to_owned()),
            ack_policy: AckPolicy::Explicit,
            ack_wait: ACK_WAIT,
            max_ack_pending: -1,
            ..pull::Config::default()
        };
        let opened = stream.get_or_create_consumer(CONSUMER, wanted).await;
        opened.map_err(|error| {
            failed(format!("the consumer {CONSUMER} of the stream {name} can't be opened"), error)
        })
    }
}

impl fmt::Debug for NatsNotifier {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("NatsNotifier").field("config", &self.config).finish_non_exhaustive()
    }
}

#[async_trait]
impl Notifier for NatsNotifier {
    async fn publish(&self, notifications: &[Notification]) -> Result<(), NotifyError> {
        let refused =
            |subject: &str, error| failed(format!("NATS did not take a message for {subject}"), error);
        for window in notifications.chunks(WINDOW) {
            let mut answers = Vec::with_capacity(window.len());
            for notification in window {
                let subject = self.config.subject_of(self.config.line_of(notification));
                let sent = self.context.publish(subject.clone(), notification.body().into()).await;
                answers.push((sent.map_err(|error| refused(&subject, error))?, subject));
            }
            for (answer, subject) in answers {
                answer.await.map_err(|error| refused(&subject, error))?;
            }
        }
        Ok(())
    }

    async fn check(&self) -> Result<(), NotifyError> {
        for line in self.config.lines() {
            let name = self.config.stream_of(line);
            let found = self.context.get_stream(&name).await;
            found.map_err(|error| failed(format!("the stream {name} of NATS can't be read"), error))?;
        }
        Ok(())
    }

    fn signals(&self) -> Signals {
        self.signals.clone()
    }

    async fn subscribe(&self, max_outstanding: usize) -> Result<Box<dyn Subscription>, NotifyError> {
        self.subscribed(Line::Ordinary, max_outstanding)
    }

    async fn subscribe_urgent(
        &self,
        max_outstanding: usize,
    ) -> Result<Option<Box<dyn Subscription>>, NotifyError> {
        if !self.config.urgent {
            return Ok(None);
        }
        self.subscribed(Line::Urgent, max_outstanding).map(Some)
    }
}

impl NatsNotifier {
    fn subscribed(&self, line: Line, max_outstanding: usize) -> Result<Box<dyn Subscription>, NotifyError> {
        if !(1..=OUTSTANDING_MAX).contains(&max_outstanding) {
            let words = format!("max_outstanding is {max_outstanding}; use 1 to {OUTSTANDING_MAX}");
            return Err(NotifyError::new(words));
        }
        Ok(Box::new(subscription::open(self.clone(), line, max_outstanding)))
    }
}

fn failed(what: String, source: impl std::error::Error + Send + Sync + 'static) -> NotifyError {
    NotifyError { what, source: Some(Box::new(source)) }
}
