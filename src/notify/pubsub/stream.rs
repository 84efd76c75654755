//! Keeps a streaming pull open, and repairs it.
//!
//! The client library repairs brief interruptions itself, ends the stream on anything else, and
//! waits up to a minute between its own attempts without reporting it. So a stream is checked with
//! separate requests, and replaced together with its connection when the broker was away. It never
//! holds back a message: what is in flight when reading stops is handed out, and what is not handed
//! out when a stream ends is put back.

use std::fmt;
use std::sync::{Arc, Once};
use std::time::Duration;

use futures_util::FutureExt;
use google_cloud_pubsub::Error;
use google_cloud_pubsub::model::Message;
use google_cloud_pubsub::subscriber::handler::Handler;
use google_cloud_pubsub::subscriber::{MessageStream, ShutdownBehavior};
use tokio::sync::mpsc::Sender;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{JoinSet, unconstrained};
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::sync::CancellationToken;

use super::access::BrokerAccess;
use super::clients;
use super::config::{Class, PubSubConfig};
use super::failure::{FailureKind, failed, in_one_line};
use super::settings::{leaves_some_out, push_endpoint};
use super::topics::find_subscription;
use super::trouble::Trouble;
use crate::event::spread;
use crate::notify::{AckHandle, Delivery, NotifyError};

/// How long a new stream is open before it is first checked.
const SETTLING: Duration = Duration::from_secs(1);

/// Maximum bytes of messages in flight: notifications have some hundred bytes each, and anything
/// else is acknowledged at once.
const OUTSTANDING_BYTES: usize = 16 * 1024 * 1024;
/// The bytes that are allowed per notification if very many may be in flight.
const NOTIFICATION_BYTES: usize = 512;

/// The first pause before another attempt; it doubles up to the configured limit.
const FIRST_BACK_OFF: Duration = Duration::from_millis(100);

/// If nothing has arrived for this long, nothing is in flight any longer.
const QUIET: Duration = Duration::from_millis(100);
/// The longest wait for that.
const REST: Duration = Duration::from_secs(1);

/// A stream that lived this long resets the back-off when it fails.
const LONG_LIFE: Duration = Duration::from_secs(10);

/// Reads the stream into the channel of deliveries.
pub(super) struct StreamReader {
    pub(super) config: Arc<PubSubConfig>,
    pub(super) broker: Arc<BrokerAccess>,
    pub(super) class: Class,
    pub(super) max_outstanding: usize,
    /// One permit per delivery that may be unanswered; the delivery holds it.
    pub(super) permits: Arc<Semaphore>,
    pub(super) deliveries: Sender<Delivery>,
    pub(super) trouble: Trouble,
    pub(super) closing: CancellationToken,
    /// Whether it was said what the subscription's filter leaves out.
    pub(super) said_filter: Once,
}

/// Why a stream is no longer read.
enum StreamEnd {
    Closing,
    /// The subscription was missing and has been created: the stream may be attached to the old
    /// one.
    Renewed,
    /// The broker is away, so the stream is dead, whatever it reports.
    BrokerAway,
    Failed(NotifyError),
}

/// The result of a check with a separate request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SubscriptionCheck {
    /// The subscription exists, as far as can be seen.
    Available,
    /// It was missing, and was created.
    Recreated,
    /// It is missing or unreachable; the trouble says which.
    Unavailable,
}

impl StreamReader {
    /// Reads one stream after the other until it is closed. Returns the tasks that end when the
    /// last delivery of each stream has been answered.
    pub(super) async fn run(self) -> JoinSet<()> {
        let mut endings = JoinSet::new();
        let mut back_off = BackOff::new(self.config.longest_back_off);
        self.until_available(&mut back_off).await;
        while !self.closing.is_cancelled() {
            let opened = Instant::now();
            let ended = match self.open().await {
                Ok(mut stream) => {
                    let ended = self.read(&mut stream).await;
                    if matches!(ended, StreamEnd::Closing) {
                        self.hand_out_rest(&mut stream).await;
                    }
                    end(stream, &mut endings);
                    ended
                }
                Err(error) => StreamEnd::Failed(error),
            };
            while endings.try_join_next().is_some() {}
            if opened.elapsed() > LONG_LIFE {
                back_off.reset();
            }
            match ended {
                StreamEnd::Closing => break,
                StreamEnd::Renewed => {}
                StreamEnd::BrokerAway => self.until_available(&mut back_off).await,
                StreamEnd::Failed(error) => {
                    self.trouble.begin(in_one_line(&error));
                    let _ = self.closing.run_until_cancelled(sleep(back_off.next())).await;
                    self.until_available(&mut back_off).await;
                }
            }
        }
        endings
    }

    /// Waits until a stream can succeed. A stream that is opened earlier leaves the waiting to the
    /// client library, which pauses for up to a minute between its attempts.
    async fn until_available(&self, back_off: &mut BackOff) {
        while let Some(SubscriptionCheck::Unavailable) =
            self.closing.run_until_cancelled(self.check_subscription()).await
        {
            let _ = self.closing.run_until_cancelled(sleep(back_off.next())).await;
        }
    }

    /// Checks with a separate request whether the subscription exists, creates it if that is
    /// allowed, and otherwise records the trouble.
    pub(super) async fn check_subscription(&self) -> SubscriptionCheck {
        let error = match find_subscription(&self.broker.admins, &self.config, self.class).await {
            Ok(found) => {
                if leaves_some_out(&found, &self.config) {
                    self.said_filter.call_once(|| self.say_filter(&found.filter));
                }
                let Some(endpoint) = push_endpoint(&found) else { return SubscriptionCheck::Available };
                self.trouble.begin(format!(
                    "{} pushes to {endpoint}, so it can't be pulled from: run `wakeq serve` in \
                     push mode there, or give workers another subscription",
                    self.path()
                ));
                return SubscriptionCheck::Unavailable;
            }
            Err(error) => error,
        };
        let trouble = match FailureKind::of(&error) {
            // The account may be allowed to read the subscription but not to describe it; the
            // stream will show it.
            FailureKind::Denied => return SubscriptionCheck::Available,
            FailureKind::Missing if self.config.create_missing => {
                match self.broker.create(&self.config).await {
                    Ok(_) => return SubscriptionCheck::Recreated,
                    Err(error) => error,
                }
            }
            FailureKind::Missing
            | FailureKind::AlreadyThere
            | FailureKind::Unreachable
            | FailureKind::Other => self.failed(error),
        };
        self.trouble.begin(in_one_line(&trouble));
        SubscriptionCheck::Unavailable
    }

    fn say_filter(&self, filter: &str) {
        tracing::warn!(
            subscription = self.path(),
            filter,
            "this worker does not receive what the filter leaves out, and without another worker it starts with the \
             minute's pass: set WAKEQ_URGENT_SUBSCRIPTION (PubSubConfig::urgent_subscription) to the subscription of \
             urgent events, or let it pull from one without a filter"
        );
    }

    /// Opens a new stream on a connection of its own.
    async fn open(&self) -> Result<MessageStream, NotifyError> {
        let subscriber = clients::subscriber(&self.config).await?;
        let stream = subscriber
            .subscribe(self.path())
            .set_max_outstanding_messages(self.max_outstanding as i64)
            .set_max_outstanding_bytes(outstanding_bytes(self.max_outstanding))
            .set_max_lease(self.config.max_lease)
            .set_max_lease_extension(self.config.effective_lease_extension())
            .set_shutdown_behavior(ShutdownBehavior::WaitForProcessing)
            .build();
        Ok(stream)
    }

    /// Hands out deliveries until the stream ends. Reading is only abandoned for good: opening a
    /// stream is not cancel safe, and an idle one counts as opening until its first message.
    async fn read(&self, stream: &mut MessageStream) -> StreamEnd {
        tokio::select! {
            biased;
            () = self.closing.cancelled() => StreamEnd::Closing,
            ended = self.watch() => ended,
            ended = self.hand_out(stream) => ended,
        }
    }

    async fn hand_out(&self, stream: &mut MessageStream) -> StreamEnd {
        loop {
            let Ok(permit) = Arc::clone(&self.permits).acquire_owned().await else {
                return StreamEnd::Closing;
            };
            match stream.next().await {
                Some(Ok(received)) => {
                    self.trouble.end();
                    if self.deliveries.try_send(delivery(received, permit)).is_err() {
                        return StreamEnd::Closing;
                    }
                }
                Some(Err(error)) => return StreamEnd::Failed(self.failed(error)),
                None => {
                    return StreamEnd::Failed(NotifyError::new(
                        "the broker ended the stream; subscribing again",
                    ));
                }
            }
        }
    }

    /// Hands out what was sent before the broker knows that no more is wanted: when a stream ends,
    /// no one receives that for a lease.
    async fn hand_out_rest(&self, stream: &mut MessageStream) {
        let last = Instant::now() + REST;
        while let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned()
            && let Ok(Some(Ok(received))) = timeout_at(last.min(Instant::now() + QUIET), stream.next()).await
            && self.deliveries.try_send(delivery(received, permit)).is_ok()
        {}
    }

    /// Checks the broker with separate requests, and returns when the stream should be replaced.
    /// The broker must be away twice in a row: giving up a sound stream would freeze what is in
    /// flight for a lease.
    async fn watch(&self) -> StreamEnd {
        let mut pause = SETTLING.min(self.config.effective_check_period());
        let mut was_away = false;
        loop {
            sleep(pause).await;
            match self.check_subscription().await {
                SubscriptionCheck::Available => {
                    self.trouble.end();
                    was_away = false;
                    pause = self.config.effective_check_period();
                }
                SubscriptionCheck::Recreated => return StreamEnd::Renewed,
                SubscriptionCheck::Unavailable if was_away => return StreamEnd::BrokerAway,
                SubscriptionCheck::Unavailable => {
                    was_away = true;
                    pause = FIRST_BACK_OFF;
                }
            }
        }
    }

    fn failed(&self, error: Error) -> NotifyError {
        failed(&self.path(), &self.config, error)
    }

    fn path(&self) -> String {
        self.config.subscription_path(self.class)
    }
}

fn delivery((message, handler): (Message, Handler), permit: OwnedSemaphorePermit) -> Delivery {
    Delivery::new(&message.data, Box::new(StreamAck { handler, _permit: permit }))
}

fn outstanding_bytes(messages: usize) -> i64 {
    i64::try_from(messages.saturating_mul(NOTIFICATION_BYTES).max(OUTSTANDING_BYTES)).unwrap_or(i64::MAX)
}

/// The pauses between attempts: each is twice the previous one, up to a limit, and spread.
pub(super) struct BackOff {
    next: Duration,
    longest: Duration,
}

impl BackOff {
    pub(super) fn new(longest: Duration) -> Self {
        Self { next: FIRST_BACK_OFF.min(longest), longest }
    }

    pub(super) fn reset(&mut self) {
        *self = Self::new(self.longest);
    }

    pub(super) fn next(&mut self) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(self.longest);
        spread(pause)
    }
}

/// Puts back what the stream has received and not handed out, closes it, and leaves its last
/// answers to `endings`.
///
/// The client would keep extending the leases of the messages in its own buffer until the last
/// delivery that was handed out has been answered, which may be an hour. So its buffer is emptied
/// first.
fn end(mut stream: MessageStream, endings: &mut JoinSet<()>) {
    while let Some(Some(Ok((_, handler)))) = unconstrained(stream.next()).now_or_never() {
        handler.nack();
    }
    let token = stream.shutdown_token();
    endings.spawn(async move { token.shutdown().await });
}

/// Answers one delivery, and so allows the stream another one.
struct StreamAck {
    handler: Handler,
    _permit: OwnedSemaphorePermit,
}

impl fmt::Debug for StreamAck {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("StreamAck")
    }
}

impl AckHandle for StreamAck {
    fn acknowledge(self: Box<Self>) {
        self.handler.ack();
    }

    fn put_back(self: Box<Self>) {
        self.handler.nack();
    }
}
