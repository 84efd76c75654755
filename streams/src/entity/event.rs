//! An event before it is sent to an entity.

use serde::Serialize;
use serde_json::Value;
use uuid::Uuid;

use super::envelope::{Envelope, ReplyTo};
use crate::event::EntityId;
use crate::store::ToEntity;
use wakeq::events::JsonError;
use wakeq::internals::{check_json, telemetry};
use wakeq::machine::Link;
use wakeq::{EventError, EventId, Name};

/// An event for an entity: a name and a payload.
///
/// ```
/// use wakeq_streams::EntityEvent;
///
/// # fn main() -> Result<(), wakeq::EventError> {
/// let deposit = EntityEvent::new("deposit", &serde_json::json!({ "cents": 500 }))?.reply_to("deposited")?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct EntityEvent {
    name: Name,
    payload: String,
    id: Option<EventId>,
    link: Option<Link>,
    correlation_id: Option<Uuid>,
    reply_to: Option<ReplyTo>,
}

impl EntityEvent {
    /// An event of this name, with this payload, which is sent as JSON.
    pub fn new(name: &str, payload: &(impl Serialize + ?Sized)) -> Result<Self, EventError> {
        Self::from_json(name, serde_json::to_string(payload).map_err(JsonError::Invalid)?)
    }

    /// The same with a payload that already is JSON text.
    pub fn from_json(name: &str, payload: impl Into<String>) -> Result<Self, EventError> {
        let payload = payload.into();
        check_json(&payload)?;
        let name = name.parse()?;
        Ok(Self { name, payload, id: None, link: None, correlation_id: None, reply_to: None })
    }

    /// An event of [`Entity::Event`](crate::Entity::Event): the variant is the name, its content
    /// the payload.
    pub fn of(event: &impl Serialize) -> Result<Self, EventError> {
        use serde::ser::Error;

        let (name, payload) = match serde_json::to_value(event).map_err(JsonError::Invalid)? {
            Value::String(name) => (name, Value::Null),
            Value::Object(fields) if fields.len() == 1 => fields.into_iter().next().unwrap_or_default(),
            Value::Object(_) | Value::Array(_) | Value::Null | Value::Bool(_) | Value::Number(_) => {
                let error = serde_json::Error::custom(
                    "an event of an entity is an enum, as serde writes it by default",
                );
                return Err(JsonError::Invalid(error).into());
            }
        };
        Self::from_json(&name, payload.to_string())
    }

    /// Sets an id of the sender's choice: sending it again, to the same entity, does not apply it
    /// twice, as long as it is remembered: until 7 days after its outcome was decided, unless the
    /// queue's retention says otherwise.
    pub fn id(mut self, id: EventId) -> Self {
        self.id = Some(id);
        self
    }

    /// Says that it was sent before, with this id, and was given this link. For senders that keep
    /// the link for longer than what was sent is remembered (by default, 7 days after its outcome
    /// was decided).
    pub fn sent_before(mut self, id: EventId, link: Link) -> Self {
        (self.id, self.link) = (Some(id), Some(link));
        self
    }

    /// Makes it the answer to a question, with an id that is derived from the question's.
    pub(super) fn answering(mut self, id: EventId, correlation_id: Uuid) -> Self {
        (self.id, self.link, self.correlation_id) = (Some(id), None, Some(correlation_id));
        self
    }

    /// Sets the id that connects it with other events. Default: its own id.
    pub fn correlation_id(mut self, correlation_id: Uuid) -> Self {
        self.correlation_id = Some(correlation_id);
        self
    }

    /// Sets the handler of module `ANSWER` that receives its outcome, by an event with an
    /// [`EntityAnswer`](crate::EntityAnswer). No one else can emit events of that module, so its
    /// handlers can trust what they receive. Default: none.
    ///
    /// ```
    /// use wakeq::{Execution, HandlerResult, Handlers, Route};
    /// use wakeq_streams::EntityAnswer;
    ///
    /// async fn changed(execution: Execution) -> HandlerResult {
    ///     let answer: EntityAnswer = execution.value()?;
    ///     println!("{} of {}: {:?}", answer.name, answer.entity, answer.outcome);
    ///     Ok(())
    /// }
    ///
    /// let handlers = Handlers::new().on(Route::new("account-changed").module("ANSWER"), changed);
    /// ```
    pub fn reply_to(mut self, handler: &str) -> Result<Self, EventError> {
        let name: Name = handler.parse()?;
        self.reply_to = Some(ReplyTo { name: name.to_string() });
        Ok(self)
    }

    /// The event as it goes into the inbox of an entity.
    pub(super) fn to(self, entity: EntityId, limit_bytes: usize) -> Result<ToEntity, EventError> {
        let size_bytes = self.payload.len();
        if size_bytes > limit_bytes {
            return Err(EventError::TooLarge { size_bytes, limit_bytes });
        }
        let (chosen, id) = (self.id.is_some(), self.id.unwrap_or_default());
        let correlation_id = self.correlation_id.unwrap_or(id.0);
        let traceparent = Some(telemetry::trace_of_emit(None).to_string());
        let envelope =
            Envelope { correlation_id, reply_to: self.reply_to, repost: None, traceparent, erases: false };
        Ok(ToEntity {
            entity,
            id,
            chosen,
            link: self.link,
            correlation_id,
            erases: false,
            name: self.name,
            payload: self.payload,
            metadata: envelope.json(),
        })
    }
}
