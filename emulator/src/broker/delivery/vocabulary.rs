//! The words of delivery: how it is set, who takes, what is handed out and answered.

use std::sync::Arc;
use std::time::Duration;

use crate::broker::{Message, StreamId, Time};

/// How one subscription delivers.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Settings {
    /// How long a message is leased, unless its stream says otherwise. Whoever takes passes it on.
    pub(crate) ack_deadline: Duration,
    /// Messages of one ordering key come in their order. Never changes in a subscription's life.
    pub(crate) ordering: bool,
    /// Acknowledgements count only within their lease, and say whether they counted.
    pub(crate) exactly_once: bool,
    /// How long a message waits after a failed delivery; `None`: not at all.
    pub(crate) retry: Option<RetryPolicy>,
    /// After so many failed deliveries a message is handed over as dead. `None` too while there is no topic to take it.
    pub(crate) dead_letter_after: Option<u32>,
    /// How long messages are kept from their publication.
    pub(crate) retention: Duration,
    /// Acknowledged ones too.
    pub(crate) retain_acked: bool,
}

/// The wait after the first failed delivery, doubling up to the longest.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct RetryPolicy {
    pub(crate) minimum: Duration,
    pub(crate) maximum: Duration,
}

/// What befalls a message that enters.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Fate {
    /// Nothing.
    OnTime,
    /// It can be taken only after so long.
    Late(Duration),
    /// It is there twice.
    Twice,
    /// It overtakes the ones that wait.
    Ahead,
}

/// Who takes messages.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Holder {
    /// A unary pull: who it was is not known afterwards.
    Pull,
    /// A streaming pull.
    Stream(StreamId),
    /// The push endpoint.
    Push,
}

/// A message that was handed out.
#[derive(Clone, Debug)]
pub(crate) struct Delivered {
    pub(crate) ack_id: String,
    /// The how-manieth delivery this is; only with dead-lettering.
    pub(crate) attempt: Option<u32>,
    pub(crate) message: Arc<Message>,
}

/// What became of each ack id of a request.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Acked {
    /// Done, or without exactly-once delivery: too late to matter, which is no error.
    pub(crate) acked: Vec<String>,
    /// Not an ack id of this subscription.
    pub(crate) invalid: Vec<String>,
    /// Exactly-once delivery: its lease is over. `PERMANENT_FAILURE_INVALID_ACK_ID`.
    pub(crate) lapsed: Vec<String>,
    /// Exactly-once delivery with ordering: an earlier message of its key is not acknowledged yet.
    /// `TRANSIENT_FAILURE_UNORDERED_ACK_ID`.
    pub(crate) unordered: Vec<String>,
}

/// What time has done.
#[derive(Clone, Debug, Default)]
pub(crate) struct Advanced {
    /// To be published to the dead-letter topic; they are gone from here.
    pub(crate) dead: Vec<DeadLetter>,
    /// Something can be taken that could not be before.
    pub(crate) deliverable: bool,
}

/// A message that was delivered in vain too often.
#[derive(Clone, Debug)]
pub(crate) struct DeadLetter {
    pub(crate) message: Arc<Message>,
    pub(crate) attempts: u32,
}

/// How a subscription stands.
#[derive(Clone, Debug, Default, Eq, PartialEq, serde::Serialize)]
pub struct Figures {
    /// Messages not acknowledged.
    pub backlog: usize,
    /// Those of them that are handed out.
    pub leased: usize,
    /// Those of them that wait for a back-off or a delay to end.
    pub waiting: usize,
    /// Acknowledged messages that are kept.
    pub acked_retained: usize,
    /// The size of the backlog.
    pub bytes: usize,
    /// The age of the oldest message not acknowledged.
    #[serde(serialize_with = "crate::broker::faults::seconds::serialize_some")]
    pub oldest_unacked: Option<Duration>,
    /// Ordering keys whose next message has to wait.
    pub ordering_keys_blocked: usize,
}

/// What a snapshot retains: what was not acknowledged when it was taken, and everything published since.
#[derive(Clone, Debug, Default)]
pub(crate) struct Contents {
    /// In the order of publication.
    messages: Vec<Arc<Message>>,
}

impl Contents {
    /// Of what was not acknowledged.
    pub(crate) fn new(messages: Vec<Arc<Message>>) -> Self {
        Self { messages }
    }

    /// How many messages it retains.
    pub(crate) fn len(&self) -> usize {
        self.messages.len()
    }

    /// The topic published this after the snapshot was taken.
    pub(crate) fn retain(&mut self, message: Arc<Message>) {
        self.messages.push(message);
    }

    /// Only what a subscription's filter lets through.
    pub(crate) fn filtered(&self, admits: impl Fn(&Message) -> bool) -> Self {
        Self { messages: self.messages.iter().filter(|message| admits(message)).cloned().collect() }
    }

    pub(super) fn messages(&self) -> &[Arc<Message>] {
        &self.messages
    }

    /// When its oldest message was published.
    pub(crate) fn oldest(&self) -> Option<Time> {
        self.messages.first().map(|message| message.published)
    }
}
