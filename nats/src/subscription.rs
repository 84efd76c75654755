//! A subscription: asks the server for as many messages as there are places, and answers them.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_nats::connection::State;
use async_nats::jetstream::consumer::PullConsumer;
use async_nats::jetstream::message::Acker;
use async_nats::jetstream::{AckKind, Message};
use async_trait::async_trait;
use futures_util::StreamExt;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;
use wakeq::notify::{AckHandle, Delivery, NotifyError, Subscription};

use super::{Line, NatsNotifier};

/// How long a request for messages waits for them. A stop waits for its end, so that no message is
/// sent to a subscription that has gone.
const REQUEST: Duration = Duration::from_secs(2);
/// How much later the end of a request may come. The client itself gives up after 5 s.
const SILENCE: Duration = Duration::from_secs(3);
/// Maximum number of messages in a request.
const REQUEST_MAX: usize = 1_000;
/// The delay before a message that was put back is delivered again: as for the other notifiers.
const RETRY_DELAY: Duration = Duration::from_secs(10);
/// The shortest time between two extensions.
const SHORTEST: Duration = Duration::from_millis(100);
/// The shortest pause after a failed request.
const PAUSE: Duration = Duration::from_secs(1);

pub(crate) fn open(notifier: NatsNotifier, line: Line, max_outstanding: usize) -> NatsSubscription {
    let (sender, deliveries) = channel(max_outstanding);
    let (closing, held) = (CancellationToken::new(), TaskTracker::new());
    let trouble = Arc::default();
    let reader = Reader {
        notifier: notifier.clone(),
        line,
        places: Arc::new(Semaphore::new(max_outstanding)),
        deliveries: sender,
        held: held.clone(),
        trouble: Arc::clone(&trouble),
        closing: closing.clone(),
    };
    held.spawn(reader.run());
    NatsSubscription { notifier, deliveries, held, trouble, _at_drop: closing.clone().drop_guard(), closing }
}

pub(crate) struct NatsSubscription {
    notifier: NatsNotifier,
    deliveries: Receiver<Received>,
    /// The reader, and a task for each unanswered message.
    held: TaskTracker,
    trouble: Arc<Mutex<Option<String>>>,
    closing: CancellationToken,
    _at_drop: DropGuard,
}

/// A message that was not handed out yet. If it is dropped, another worker gets it at once.
struct Received {
    body: Vec<u8>,
    answer: oneshot::Sender<AckKind>,
}

#[async_trait]
impl Subscription for NatsSubscription {
    async fn next(&mut self) -> Option<Delivery> {
        let Received { body, answer } = self.deliveries.recv().await?;
        Some(Delivery::new(&body, Box::new(Answer(answer))))
    }

    fn stop(&mut self) {
        self.closing.cancel();
    }

    fn trouble(&self) -> Option<String> {
        match self.notifier.context.client().connection_state() {
            State::Connected => self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            State::Pending | State::Disconnected => {
                Some("NATS is not connected; the client goes on trying".to_owned())
            }
        }
    }

    async fn close(self: Box<Self>, grace: Duration) {
        let Self { notifier, deliveries, held, closing, .. } = *self;
        closing.cancel();
        held.close();
        let orderly_end = async {
            drop(deliveries);
            held.wait().await;
            // Messages whose answers are not flushed now are delivered again later.
            let _ = notifier.context.client().flush().await;
        };
        if timeout(grace, orderly_end).await.is_err() {
            let grace_ms = grace.as_millis() as u64;
            tracing::warn!(grace_ms, "some deliveries were not answered within the grace");
        }
    }
}

/// The task that receives.
struct Reader {
    notifier: NatsNotifier,
    line: Line,
    places: Arc<Semaphore>,
    deliveries: Sender<Received>,
    held: TaskTracker,
    trouble: Arc<Mutex<Option<String>>>,
    closing: CancellationToken,
}

impl Reader {
    async fn run(self) {
        let mut consumer = None;
        while let Some(Some(places)) = self.closing.run_until_cancelled(self.free_places()).await {
            match self.receive(&mut consumer, places).await {
                Ok(()) => self.report(None),
                Err(error) => {
                    consumer = None;
                    self.report(Some(error));
                    self.closing.run_until_cancelled(sleep(pause())).await;
                }
            }
        }
    }

    /// At least one place, once there is one.
    async fn free_places(&self) -> Option<OwnedSemaphorePermit> {
        let mut places = Arc::clone(&self.places).acquire_owned().await.ok()?;
        let more = self.places.available_permits().min(REQUEST_MAX - 1) as u32;
        if let Ok(more) = Arc::clone(&self.places).try_acquire_many_owned(more) {
            places.merge(more);
        }
        Some(places)
    }

    /// One request, until its messages or its end have come.
    async fn receive(
        &self,
        consumer: &mut Option<PullConsumer>,
        mut places: OwnedSemaphorePermit,
    ) -> Result<(), NotifyError> {
        let consumer = match consumer {
            Some(consumer) => consumer,
            None => consumer.insert(self.notifier.consumer(self.line).await?),
        };
        let request = consumer.batch().max_messages(places.num_permits()).expires(REQUEST);
        let failed = |error| NotifyError { what: "NATS sends no messages".to_owned(), source: Some(error) };
        let asked = Instant::now();
        let mut messages = request.messages().await.map_err(|error| failed(error.into()))?;
        let extended_every = (consumer.cached_info().config.ack_wait / 3).max(SHORTEST);
        while let Some(message) = messages.next().await {
            let message = message.map_err(failed)?;
            if let Some(place) = places.split(1) {
                self.hold(message, place, extended_every);
            }
        }
        // A server says when a request ends, but says nothing to one for a deleted consumer.
        if places.num_permits() > 0 && asked.elapsed() > REQUEST + SILENCE {
            return Err(NotifyError::new("NATS does not answer requests for messages"));
        }
        Ok(())
    }

    fn hold(&self, message: Message, place: OwnedSemaphorePermit, extended_every: Duration) {
        let (message, acker) = message.split();
        let (answer, answered) = oneshot::channel();
        self.held.spawn(hold(acker, answered, extended_every, place));
        // There is room, because it has a place. If nobody receives any more, it is put back.
        let _ = self.deliveries.try_send(Received { body: message.payload.into(), answer });
    }

    /// Logs a change once, and not every repetition.
    fn report(&self, error: Option<NotifyError>) {
        let words = error.as_ref().map(|error| match &error.source {
            Some(source) => format!("{error}: {source}"),
            None => error.to_string(),
        });
        let mut current = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        if *current == words {
            return;
        }
        match &words {
            Some(reason) => tracing::warn!(%reason, "no notifications can be received"),
            None => tracing::info!("notifications can be received again"),
        }
        *current = words;
    }
}

/// A pause after a failed request. Jitter makes it up to a fifth longer, since all workers lose a
/// server together.
fn pause() -> Duration {
    PAUSE + PAUSE / 1000 * (RandomState::new().hash_one(()) % 200) as u32
}

/// Extends the time of an unanswered message, then answers it and frees its place.
async fn hold(
    acker: Acker,
    mut answered: oneshot::Receiver<AckKind>,
    extended_every: Duration,
    _place: OwnedSemaphorePermit,
) {
    loop {
        let answer = timeout(extended_every, &mut answered).await;
        let is_answered = answer.is_ok();
        let kind = match answer {
            Ok(Ok(kind)) => kind,
            // It was not handed out.
            Ok(Err(_)) => AckKind::Nak(None),
            Err(_) => AckKind::Progress,
        };
        if let Err(error) = acker.ack_with(kind).await {
            tracing::debug!(%error, "an answer was not sent; the message is delivered again");
        }
        if is_answered {
            return;
        }
    }
}

/// Answers one delivery.
struct Answer(oneshot::Sender<AckKind>);

impl fmt::Debug for Answer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Answer")
    }
}

impl AckHandle for Answer {
    // Without a receiver the runtime is ending, and the message is delivered again.
    fn acknowledge(self: Box<Self>) {
        let _ = self.0.send(AckKind::Ack);
    }

    fn put_back(self: Box<Self>) {
        let _ = self.0.send(AckKind::Nak(Some(RETRY_DELAY)));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn workers_pause_for_different_times() {
        let pauses: BTreeSet<Duration> = (0..1_000).map(|_| pause()).collect();
        assert!(pauses.iter().all(|pause| (PAUSE..PAUSE * 6 / 5).contains(pause)), "{pauses:?}");
        assert!(pauses.len() > 100, "{pauses:?}");
    }
}
