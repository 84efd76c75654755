//! A second stream of the subscription, opened for a while: the broker sends more on it.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::task::{JoinError, JoinSet};
use tokio_util::task::AbortOnDropHandle;

use super::republisher::{self, RepublishSender};
use crate::notify::{Delivery, Notifier, NotifyError, Subscription};

/// Longer than any handler runs.
const ANSWERED: Duration = Duration::from_secs(7 * 24 * 3_600);

type OpenResult = Result<Box<dyn Subscription>, NotifyError>;

pub(super) struct PrefetchStream {
    notifier: Arc<dyn Notifier>,
    /// Maximum number of unanswered notifications of this stream.
    size: usize,
    stream: StreamState,
    closing: JoinSet<()>,
}

enum StreamState {
    Closed,
    Opening(AbortOnDropHandle<OpenResult>),
    Open(Box<dyn Subscription>),
}

impl PrefetchStream {
    /// Closed; with a size of 0 it stays closed.
    pub(super) fn new(notifier: Arc<dyn Notifier>, size: usize) -> Self {
        Self { notifier, size, stream: StreamState::Closed, closing: JoinSet::new() }
    }

    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// How many more notifications may be held because of this stream.
    pub(super) fn extra(&self) -> usize {
        if matches!(self.stream, StreamState::Open(_)) { self.size } else { 0 }
    }

    /// Opens or closes the stream. Deliveries that a closed stream has handed out can still be
    /// answered; those that it has not are left to the other workers.
    pub(super) fn keep_open(&mut self, wanted: bool, sender: RepublishSender) {
        while self.closing.try_join_next().is_some() {}
        match (std::mem::replace(&mut self.stream, StreamState::Closed), wanted && self.size > 0) {
            (StreamState::Closed, true) => {
                let (notifier, size) = (Arc::clone(&self.notifier), self.size);
                let opening = tokio::spawn(async move { notifier.subscribe(size).await });
                self.stream = StreamState::Opening(AbortOnDropHandle::new(opening));
            }
            (StreamState::Open(stream), false) => {
                _ = self.closing.spawn(republisher::close(stream, sender, ANSWERED))
            }
            (StreamState::Opening(mut opening), true) => {
                // Nothing waits for it as long as the first stream brings enough.
                self.stream = match (&mut opening).now_or_never() {
                    Some(opened) => opened_stream(opened),
                    None => StreamState::Opening(opening),
                };
            }
            (stream @ StreamState::Open(_), true) => self.stream = stream,
            (StreamState::Closed | StreamState::Opening(_), false) => {}
        }
    }

    /// The next delivery; pending while the stream is closed. Cancel safe.
    pub(super) async fn next(&mut self) -> Delivery {
        loop {
            match &mut self.stream {
                StreamState::Closed => std::future::pending().await,
                StreamState::Opening(opening) => {
                    self.stream = opened_stream(opening.await);
                }
                StreamState::Open(stream) => match stream.next().await {
                    Some(delivery) => return delivery,
                    None => self.stream = StreamState::Closed,
                },
            }
        }
    }

    /// Closes the stream. The returned tasks end once every delivery it handed out is answered.
    pub(super) fn close(&mut self, sender: RepublishSender) -> JoinSet<()> {
        self.keep_open(false, sender);
        std::mem::take(&mut self.closing)
    }
}

/// The result of opening it; after a failure, the next look tries again.
fn opened_stream(opened: Result<OpenResult, JoinError>) -> StreamState {
    match opened {
        Ok(Ok(stream)) => StreamState::Open(stream),
        Ok(Err(error)) => {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "no second stream can be opened; this worker prefetches less"
            );
            StreamState::Closed
        }
        Err(_) => StreamState::Closed,
    }
}
