//! The vocabulary of delivery: settings, holders, and results.

use std::sync::Arc;
use std::time::Duration;

use crate::broker::{Message, StreamId, Time};

/// The settings of one subscription's delivery.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Settings {
    /// How long a message is leased, unless its stream sets another duration; the caller passes it
    /// to `take`.
    pub(crate) ack_deadline: Duration,
    /// Whether messages with the same ordering key are delivered in order. Never changes in a
    /// subscription's life.
    pub(crate) ordering: bool,
    /// Whether acknowledgements only count within their lease, and report whether they counted.
    pub(crate) exactly_once: bool,
    /// How long a message waits after a failed delivery; `None` for not at all.
    pub(crate) retry: Option<RetryPolicy>,
    /// After how many failed deliveries a message is handed over as dead. `None` as well while
    /// there is no topic to take it.
    pub(crate) dead_letter_after: Option<u32>,
    /// How long messages are kept after their publication.
    pub(crate) retention: Duration,
    /// Whether acknowledged messages are kept as well.
    pub(crate) retain_acked: bool,
}

/// The wait after the first failed delivery, doubling up to the maximum.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct RetryPolicy {
    pub(crate) minimum: Duration,
    pub(crate) maximum: Duration,
}

/// The fault of a message that enters.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Fate {
    /// No fault.
    OnTime,
    /// It is available only after this long.
    Late(Duration),
    /// It is duplicated.
    Twice,
    /// It overtakes the waiting ones.
    Ahead,
}

/// Who takes messages.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Holder {
    /// A unary pull; which one is not recorded.
    Pull,
    /// A streaming pull.
    Stream(StreamId),
    /// The push endpoint.
    Push,
}

/// A message that was handed out.
#[derive(Clone, Debug)]
pub(crate) struct LeasedMessage {
    pub(crate) ack_id: String,
    /// Which delivery attempt this is (1, 2, …); set only with dead-lettering.
    pub(crate) attempt: Option<u32>,
    pub(crate) message: Arc<Message>,
}

/// The result for each ack id of a request.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct AckResult {
    /// Done; or, without exactly-once delivery, too late to matter, which is not an error.
    pub(crate) acked: Vec<String>,
    /// Not an ack id of this subscription.
    pub(crate) invalid: Vec<String>,
    /// Exactly-once delivery: its lease has ended. `PERMANENT_FAILURE_INVALID_ACK_ID`.
    pub(crate) lapsed: Vec<String>,
    /// Exactly-once delivery with ordering: an earlier message of its key is not acknowledged yet.
    /// `TRANSIENT_FAILURE_UNORDERED_ACK_ID`.
    pub(crate) unordered: Vec<String>,
}

/// The effects of time.
#[derive(Clone, Debug, Default)]
pub(crate) struct AdvanceResult {
    /// To be published to the dead-letter topic; no longer in this subscription.
    pub(crate) dead: Vec<DeadLetter>,
    /// Something has become available.
    pub(crate) deliverable: bool,
}

/// A message that failed too many deliveries.
#[derive(Clone, Debug)]
pub(crate) struct DeadLetter {
    pub(crate) message: Arc<Message>,
    pub(crate) attempts: u32,
}

/// The current figures of a subscription.
#[derive(Clone, Debug, Default, Eq, PartialEq, serde::Serialize)]
pub struct Figures {
    /// Messages that are not acknowledged.
    pub backlog: usize,
    /// Of the backlog, how many are leased.
    pub leased: usize,
    /// How many back-offs and delays are running: one per message; with ordering, one per ordering
    /// key.
    pub waiting: usize,
    /// Acknowledged messages that are retained.
    pub acked_retained: usize,
    /// The size of the backlog, in bytes.
    pub bytes: usize,
    /// The age of the oldest message that is not acknowledged.
    #[serde(serialize_with = "crate::broker::faults::seconds::serialize_some")]
    pub oldest_unacked: Option<Duration>,
    /// Ordering keys whose next message cannot be handed out yet.
    pub ordering_keys_blocked: usize,
}

/// The content of a snapshot: what was not acknowledged when it was taken, and everything published
/// since.
#[derive(Clone, Debug, Default)]
pub(crate) struct Contents {
    /// In the order of publication.
    messages: Vec<Arc<Message>>,
}

impl Contents {
    /// Starts with the messages that are not acknowledged.
    pub(crate) fn new(messages: Vec<Arc<Message>>) -> Self {
        Self { messages }
    }

    /// How many messages it retains.
    pub(crate) fn len(&self) -> usize {
        self.messages.len()
    }

    /// Adds a message that the topic published after the snapshot was taken.
    pub(crate) fn retain(&mut self, message: Arc<Message>) {
        self.messages.push(message);
    }

    /// Only the messages that a subscription's filter admits.
    pub(crate) fn filtered(&self, admits: impl Fn(&Message) -> bool) -> Self {
        Self { messages: self.messages.iter().filter(|message| admits(message)).cloned().collect() }
    }

    pub(crate) fn messages(&self) -> &[Arc<Message>] {
        &self.messages
    }

    /// When its oldest message was published.
    pub(crate) fn oldest(&self) -> Option<Time> {
        self.messages.first().map(|message| message.published)
    }
}
