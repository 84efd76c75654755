//! One subscription's messages.

use std::sync::Arc;
use std::time::Duration;

use super::{Message, StreamId, Time};

/// How it delivers.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Settings {
    pub(crate) ack_deadline: Duration,
    pub(crate) ordering: bool,
    pub(crate) exactly_once: bool,
    pub(crate) retry: Option<RetryPolicy>,
    pub(crate) dead_letter_after: Option<u32>,
    pub(crate) retention: Duration,
    pub(crate) retain_acked: bool,
}

/// Back-off.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RetryPolicy {
    pub(crate) minimum: Duration,
    pub(crate) maximum: Duration,
}

/// Who holds a lease.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Holder {
    Pull,
    Stream(StreamId),
    Push,
}

/// A message on its way.
#[derive(Debug)]
pub(crate) struct Delivered {
    pub(crate) ack_id: String,
    pub(crate) attempt: Option<u32>,
    pub(crate) message: Arc<Message>,
}

/// The messages.
#[derive(Debug)]
pub(crate) struct Delivery {
    settings: Settings,
}

impl Delivery {
    pub(crate) fn new(settings: Settings) -> Self {
        Self { settings }
    }
    pub(crate) fn configure(&mut self, _now: Time, settings: Settings) {
        self.settings = settings;
    }
    pub(crate) fn next_due(&self) -> Option<Time> {
        None
    }
}
