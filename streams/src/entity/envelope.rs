//! The metadata of an event on its way to an entity and back: where to send the outcome, what the
//! event belongs to, whether it was sent before.

use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use uuid::Uuid;

use super::asked::QuestionValue;
use super::define::FollowUp;
use wakeq::internals::answer_event;
use wakeq::{CanvasId, Event, EventError, EventId, Link, LogEvent, Name, StreamName, Traceparent};

/// The handler of module `ANSWER` that receives the outcome of an event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ReplyTo {
    pub(super) name: String,
}

/// A link as JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LinkJson {
    id: i64,
    prev: i64,
}

impl From<Link> for LinkJson {
    fn from(link: Link) -> Self {
        Self { id: link.id, prev: link.prev }
    }
}

impl From<LinkJson> for Link {
    fn from(link: LinkJson) -> Self {
        Self { id: link.id, prev: link.prev }
    }
}

/// The metadata of an event in an inbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Envelope {
    pub(super) correlation_id: Uuid,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) reply_to: Option<ReplyTo>,
    /// The link that it had when it was first sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) repost: Option<LinkJson>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) traceparent: Option<String>,
    /// It is not an event, and erases the entity. `wakeq.erase_entity` matches this field
    /// literally.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) erases: bool,
}

impl Envelope {
    /// The envelope of an event. One that was appended by other means than
    /// [`Entities`](crate::Entities) has only a correlation id, which is its id.
    pub(super) fn of(event: &LogEvent) -> Self {
        let plain = Self {
            correlation_id: event.id.0,
            reply_to: None,
            repost: None,
            traceparent: None,
            erases: false,
        };
        serde_json::from_str(&event.metadata).unwrap_or(plain)
    }

    pub(super) fn json(&self) -> String {
        serde_json::to_string(self).unwrap_or_else(|_| "{}".to_owned())
    }

    fn trace(&self) -> Option<Traceparent> {
        self.traceparent.as_deref()?.parse().ok()
    }
}

/// An event of an inbox, as it is processed.
#[derive(Clone, Debug)]
pub(super) struct InboxEvent {
    /// Its `seq` in the log.
    pub(super) seq: i64,
    /// The link that decides what to do with it: its own or, if it was sent before, its first one.
    pub(super) link: Link,
    pub(super) id: EventId,
    pub(super) canvas: CanvasId,
    pub(super) entity: StreamName,
    pub(super) name: Name,
    pub(super) payload: String,
    pub(super) envelope: Envelope,
    /// Why it must not be processed, and after how many attempts that was found, if it was found
    /// outside of `validate` and `apply`.
    pub(super) failure: Option<(String, u32)>,
}

impl InboxEvent {
    pub(super) fn of(event: LogEvent) -> Self {
        let envelope = Envelope::of(&event);
        let link = envelope.repost.map_or(Link { id: event.seq, prev: event.prev }, Link::from);
        Self {
            seq: event.seq,
            link,
            id: event.id,
            canvas: event.stream.canvas,
            entity: event.stream.name,
            name: event.name,
            payload: event.payload,
            envelope,
            failure: None,
        }
    }

    /// Whether it was sent before.
    pub(super) fn is_repost(&self) -> bool {
        self.envelope.repost.is_some()
    }

    /// Whether it is not an event, and erases the entity.
    pub(super) fn erases(&self) -> bool {
        self.envelope.erases
    }

    /// The metadata of the event in the repository.
    pub(super) fn stored_metadata(&self) -> String {
        #[derive(Serialize)]
        struct StoredMetadata {
            correlation_id: Uuid,
            link: LinkJson,
        }
        let stored = StoredMetadata { correlation_id: self.envelope.correlation_id, link: self.link.into() };
        serde_json::to_string(&stored).unwrap_or_else(|_| "{}".to_owned())
    }

    /// An event that follows from this one, ready to be emitted.
    pub(super) fn follow_up(&self, entity_type: &str, follow_up: FollowUp) -> Result<Event, EventError> {
        let event = match follow_up {
            FollowUp::Emit(event) => event,
            FollowUp::Ask(event) => {
                let question = self.question(entity_type, event.fields().value);
                event.with_value(question)
            }
        };
        Ok(event.canvas(self.canvas).in_trace(self.envelope.trace()))
    }

    fn question(&self, entity_type: &str, value: &str) -> Box<RawValue> {
        let question = QuestionValue {
            canvas: self.canvas,
            entity_type: entity_type.to_owned(),
            entity: self.entity.to_string(),
            event_id: self.id,
            correlation_id: self.envelope.correlation_id,
            value: RawValue::from_string(value.to_owned()).ok(),
        };
        to_raw_value(&question).unwrap_or_default()
    }

    /// The event that tells the sender the outcome of this one; `None` if the sender did not ask
    /// for it.
    pub(super) fn answer(&self, entity_type: &str, content: AnswerContent) -> Option<Event> {
        let reply_to = self.envelope.reply_to.as_ref()?;
        let answer = EntityAnswer {
            entity_type: entity_type.to_owned(),
            entity: self.entity.to_string(),
            event_id: self.id,
            correlation_id: self.envelope.correlation_id,
            name: self.name.to_string(),
            outcome: content.outcome,
            version: content.version,
            result: content.result.and_then(|result| RawValue::from_string(result).ok()),
            error: content.error,
            again: content.again,
        };
        let value = to_raw_value(&answer).ok()?;
        // The names were checked when it was sent, and Postgres returns what was written.
        let event = answer_event(&reply_to.name, value).ok()?;
        Some(event.canvas(self.canvas).in_trace(self.envelope.trace()))
    }
}

/// The content of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AnswerContent {
    pub(super) outcome: EntityOutcome,
    pub(super) version: Option<i64>,
    pub(super) result: Option<String>,
    pub(super) error: Option<String>,
    pub(super) again: bool,
}

/// The outcome of an event that was sent to an entity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EntityOutcome {
    /// It is in the repository and in the state.
    Processed,
    /// It was not valid; nothing was stored.
    Rejected,
    /// It could not be processed, and never will be; nothing was stored.
    Failed,
}

/// The value of the event that tells a sender the outcome of another.
///
/// It is emitted in the transaction that decides the outcome. If the event is sent again, it may be
/// emitted again, with `again` set.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct EntityAnswer {
    /// The entity's type.
    pub entity_type: String,
    /// The entity.
    pub entity: String,
    /// The event that was sent.
    pub event_id: EventId,
    /// The id that connects everything that follows from one cause.
    pub correlation_id: Uuid,
    /// The name of the event that was sent.
    pub name: String,
    /// The outcome.
    pub outcome: EntityOutcome,
    /// The entity's version including it, if it was processed.
    pub version: Option<i64>,
    /// The result that `apply` has set.
    pub result: Option<Box<RawValue>>,
    /// Why it was rejected or failed.
    pub error: Option<String>,
    /// Whether this is about an event that was sent again.
    pub again: bool,
}
