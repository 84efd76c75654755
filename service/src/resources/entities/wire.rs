//! Entities: their lists and states, events sent to them, and the progress of these events.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::resources::objects::wire::LinkJson;
use crate::resources::wire::{HIDDEN, List, wire_from};
use wakeq::{EventError, EventId};

/// An entity, as it was committed.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = Entity)]
pub(crate) struct EntityJson {
    #[schema(example = "account")]
    #[serde(rename = "type")]
    pub(crate) entity_type: String,
    #[schema(example = "ada")]
    pub(crate) id: String,
    /// Number of stored events of the entity.
    #[schema(minimum = 1)]
    pub(crate) version: i64,
    /// The state after `state_version` events; null before it is first written.
    #[schema(value_type = Option<Value>)]
    pub(crate) state: Option<Box<RawValue>>,
    /// Says that the state is hidden, and which scope shows it; omitted if it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "hidden: this needs the scope `values`")]
    pub(crate) hidden: Option<String>,
    /// The version of the state: that of the entity, unless its processor writes states less often.
    #[schema(minimum = 0)]
    pub(crate) state_version: i64,
    /// When the outcome of the last event was decided.
    pub(crate) updated_at: DateTime<Utc>,
}

/// A type of entities.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = EntityTypeName)]
pub(crate) struct EntityTypeJson {
    #[schema(example = "account")]
    #[serde(rename = "type")]
    pub(crate) entity_type: String,
}

impl From<wakeq_streams::EntityType> for EntityTypeJson {
    fn from(entity_type: wakeq_streams::EntityType) -> Self {
        Self { entity_type: entity_type.to_string() }
    }
}

/// An entity in a list.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = EntitySummary)]
pub(crate) struct EntitySummaryJson {
    #[schema(example = "account")]
    #[serde(rename = "type")]
    pub(crate) entity_type: String,
    #[schema(example = "ada")]
    pub(crate) id: String,
    /// Number of stored events of the entity.
    #[schema(minimum = 1)]
    pub(crate) version: i64,
    /// The version of the stored state; 0 before it is first written.
    #[schema(minimum = 0)]
    pub(crate) state_version: i64,
    /// Size of the stored state as JSON, in bytes; null before it is first written.
    pub(crate) state_bytes: Option<u64>,
    /// When the outcome of the last event was decided.
    pub(crate) updated_at: DateTime<Utc>,
}

/// A handler in module `ANSWER` that receives the outcome.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReplyTo {
    #[schema(pattern = "^[A-Za-z0-9_.-]{1,128}$", example = "account-changed")]
    pub(crate) name: String,
}

/// An event to be sent to an entity.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewEntityEvent {
    #[schema(pattern = "^[A-Za-z0-9_.-]{1,128}$", example = "deposit")]
    pub(crate) name: String,
    /// The event's payload, stored verbatim. Default null. Nested at most 64 levels deep, and
    /// without NUL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Value)]
    pub(crate) payload: Option<Box<RawValue>>,
    /// An id that you choose: sending it to the same entity again does not apply it twice, until 7
    /// days after its outcome.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) id: Option<Uuid>,
    /// The correlation id, which connects the event with others. Default: the event's own id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) correlation_id: Option<Uuid>,
    /// The handler that receives the outcome. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) reply_to: Option<ReplyTo>,
}

impl NewEntityEvent {
    /// The event to be sent.
    pub(crate) fn read(self) -> Result<wakeq_streams::EntityEvent, EventError> {
        let payload = self.payload.as_deref().map_or("null", RawValue::get);
        let mut event = wakeq_streams::EntityEvent::from_json(&self.name, payload)?;
        if let Some(id) = self.id {
            event = event.id(EventId(id));
        }
        if let Some(correlation_id) = self.correlation_id {
            event = event.correlation_id(correlation_id);
        }
        match self.reply_to {
            Some(ReplyTo { name }) => event.reply_to(&name),
            None => Ok(event),
        }
    }
}

/// An event in an entity's inbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = SentToEntity)]
pub(crate) struct SentToEntityJson {
    pub(crate) id: Uuid,
    pub(crate) correlation_id: Uuid,
    /// The event's link among the events of the entity; if it was sent before, the first one.
    pub(crate) link: LinkJson,
    /// Whether the event was sent before.
    pub(crate) again: bool,
}

/// How far an event has come. `accepted`: it is in the inbox. `processed`: it is in the repository
/// and in the state, and what follows outside has not ended. `completed`: that has ended, too.
/// `failed`: it was rejected, or it or what followed died.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum EntityStatus {
    Accepted,
    Processed,
    Completed,
    Failed,
}

/// The outcome of an event that was sent to an entity.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = EntityEvent)]
pub(crate) struct EntityEventJson {
    pub(crate) id: Uuid,
    pub(crate) correlation_id: Uuid,
    #[serde(rename = "type")]
    #[schema(example = "account")]
    pub(crate) entity_type: String,
    #[schema(example = "ada")]
    pub(crate) entity: String,
    #[schema(example = "deposit")]
    pub(crate) name: String,
    pub(crate) link: LinkJson,
    pub(crate) status: EntityStatus,
    /// The entity's version with this event, if the event was stored.
    pub(crate) version: Option<i64>,
    /// The result that the processor returned.
    #[schema(value_type = Option<Value>)]
    pub(crate) result: Option<Box<RawValue>>,
    /// Why the event failed.
    pub(crate) error: Option<String>,
    /// The events that were emitted because of this one.
    pub(crate) follow_ups: Vec<Uuid>,
    pub(crate) sent_at: DateTime<Utc>,
    /// When the outcome was decided.
    pub(crate) ended_at: Option<DateTime<Utc>>,
}

/// The outcome of an event, or of all events with a correlation id.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = EntityProgress)]
pub(crate) struct EntityProgressJson {
    /// `failed` if any of the events on this page has failed; otherwise the status of the one that
    /// has come least far.
    pub(crate) status: EntityStatus,
    /// The events in the order in which they were sent; at most `limit`.
    pub(crate) events: Vec<EntityEventJson>,
    /// The cursor of the next page: the parameter `cursor` of the next request. Null on the last
    /// page.
    pub(crate) next_cursor: Option<String>,
    /// Says that the results are hidden, and which scope shows them; omitted if they are not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "hidden: this needs the scope `values`")]
    pub(crate) hidden: Option<String>,
}

/// Leaves out a state that is not JSON: only another program can have written it.
fn json(text: Option<String>) -> Option<Box<RawValue>> {
    text.and_then(|text| RawValue::from_string(text).ok())
}

wire_from! { wakeq_streams::entities::StoredEntity => EntityJson, |entity| {
    version, state_version, updated_at;
    entity_type: entity.id.entity_type.to_string(),
    id: entity.id.id.to_string(),
    state: json(entity.state),
    hidden: None,
} }

impl EntityJson {
    /// For callers that may not see values.
    pub(crate) fn hidden(self) -> Self {
        Self { state: None, hidden: Some(HIDDEN.to_owned()), ..self }
    }
}

impl EntityProgressJson {
    /// For callers that may not see values.
    pub(crate) fn hidden(self) -> Self {
        let events = self.events.into_iter().map(|event| EntityEventJson { result: None, ..event });
        Self { events: events.collect(), hidden: Some(HIDDEN.to_owned()), ..self }
    }
}

wire_from! { wakeq_streams::entities::EntitySummary => EntitySummaryJson, |entity| {
    version, state_version, state_bytes, updated_at;
    entity_type: entity.id.entity_type.to_string(),
    id: entity.id.id.to_string(),
} }

impl From<wakeq_streams::entities::EntityPage> for List<EntitySummaryJson> {
    fn from(page: wakeq_streams::entities::EntityPage) -> Self {
        let next_cursor = page.next.map(|next| next.to_string());
        Self {
            items: page.entities.into_iter().map(EntitySummaryJson::from).collect(),
            next_cursor,
            looked_at: None,
        }
    }
}

impl From<wakeq_streams::SentToEntity> for SentToEntityJson {
    fn from(sent: wakeq_streams::SentToEntity) -> Self {
        let wakeq_streams::SentToEntity { id, correlation_id, link, again } = sent;
        Self { id: id.0, correlation_id, link: link.into(), again }
    }
}

impl From<wakeq_streams::EntityStatus> for EntityStatus {
    fn from(status: wakeq_streams::EntityStatus) -> Self {
        match status {
            wakeq_streams::EntityStatus::Accepted => Self::Accepted,
            wakeq_streams::EntityStatus::Processed => Self::Processed,
            wakeq_streams::EntityStatus::Completed => Self::Completed,
            wakeq_streams::EntityStatus::Failed => Self::Failed,
        }
    }
}

impl EntityStatus {
    /// The state as a word.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Processed => "processed",
            Self::Completed => "completed",
            Self::Failed => "failed",
        }
    }
}

wire_from! { wakeq_streams::entities::EntityEventStatus => EntityEventJson, |event| {
    correlation_id, version, error, sent_at, ended_at;
    id: event.event.0,
    entity_type: event.entity.entity_type.to_string(),
    entity: event.entity.id.to_string(),
    name: event.name.to_string(),
    link: event.link.into(),
    status: event.status.into(),
    result: json(event.result),
    follow_ups: event.follow_ups.into_iter().map(|id| id.0).collect(),
} }

impl From<wakeq_streams::entities::EntityProgress> for EntityProgressJson {
    fn from(progress: wakeq_streams::entities::EntityProgress) -> Self {
        let events = progress.events.into_iter().map(EntityEventJson::from).collect();
        let next_cursor = progress.next.map(|link| link.to_string());
        Self { status: progress.status.into(), events, next_cursor, hidden: None }
    }
}
