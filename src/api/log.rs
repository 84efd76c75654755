//! The log: what is appended, where it stands then, and what is read.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;
use uuid::Uuid;

use super::Place;
use crate::event::{
    self, AppendCondition, CanvasId, EventError, EventId, LogEventError, StreamAppend, StreamId,
};

/// Where an emitted event is also appended to the log: `true`, or a stream.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum Logged {
    /// `true`: its module is the category, its object, or else its name, the stream.
    Where(bool),
    /// This stream.
    In(StreamName),
}

/// A stream of the canvas's log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct StreamName {
    #[schema(pattern = "^[A-Za-z0-9_.:@=+~-]{1,200}$", example = "accounts")]
    pub(crate) category: String,
    #[schema(pattern = "^[A-Za-z0-9_.:@=+~-]{1,200}$", example = "account-7")]
    pub(crate) stream: String,
}

/// Events to be appended, if everything that is expected is so: all or none.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Append {
    #[schema(max_items = 1000)]
    pub(crate) appends: Vec<AppendTo>,
}

/// Events for one stream.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AppendTo {
    #[schema(pattern = "^[A-Za-z0-9_.:@=+~-]{1,200}$", example = "accounts")]
    pub(crate) category: String,
    #[schema(pattern = "^[A-Za-z0-9_.:@=+~-]{1,200}$", example = "account-7")]
    pub(crate) stream: String,
    /// What has to be so of the stream before: `empty`, or the position of its last event. Default `none`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) expect: Option<Expect>,
    /// In this order; at most 1,000 in a request. Without any, it is only asked what is expected.
    #[serde(default)]
    #[schema(required = false, max_items = 1000)]
    pub(crate) events: Vec<NewLogEvent>,
}

/// What has to be so of a stream.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum Expect {
    /// The position of its last event, from 0.
    Position(#[schema(inline)] StreamPosition),
    /// In a word.
    Word(ExpectWord),
}

/// The position of a stream's last event, from 0.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
#[schema(value_type = u64)]
pub(crate) struct StreamPosition(i64);

/// What has to be so of a stream, in a word.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ExpectWord {
    /// Nothing.
    None,
    /// It has no event.
    Empty,
}

/// An event to be appended.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewLogEvent {
    /// What happened.
    #[schema(pattern = "^[A-Za-z0-9_.-]{1,128}$", example = "opened")]
    pub(crate) name: String,
    /// Kept to the letter; null if it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Value)]
    pub(crate) payload: Option<Box<RawValue>>,
    /// What is known about it besides: an object of at most 64 KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub(crate) metadata: Option<Box<RawValue>>,
    /// An id of the caller's choice. Nothing looks whether the log has it already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) id: Option<Uuid>,
}

/// Why a request to append is none.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InvalidAppend {
    #[error(transparent)]
    Stream(#[from] event::InvalidLogName),
    #[error(transparent)]
    Condition(#[from] event::InvalidCondition),
    #[error(transparent)]
    Event(#[from] LogEventError),
}

impl Append {
    /// As the log takes it, on a canvas.
    pub(crate) fn read(self, canvas: CanvasId) -> Result<Vec<StreamAppend>, InvalidAppend> {
        self.appends.into_iter().map(|append| append.read(canvas)).collect()
    }
}

impl AppendTo {
    fn read(self, canvas: CanvasId) -> Result<StreamAppend, InvalidAppend> {
        let stream = StreamId::new(canvas, &self.category, &self.stream)?;
        let events = self.events.into_iter().map(NewLogEvent::read).collect::<Result<_, _>>()?;
        let condition = self.expect.map(Expect::read).transpose()?.unwrap_or_default();
        Ok(StreamAppend::new(stream, events).expect(condition))
    }
}

impl From<AppendCondition> for Expect {
    fn from(condition: AppendCondition) -> Self {
        match condition {
            AppendCondition::None => Self::Word(ExpectWord::None),
            AppendCondition::Empty => Self::Word(ExpectWord::Empty),
            AppendCondition::Position(position) => Self::Position(StreamPosition(position)),
        }
    }
}

impl Expect {
    fn read(self) -> Result<AppendCondition, event::InvalidCondition> {
        match self {
            Self::Position(StreamPosition(position)) => position.to_string().parse(),
            Self::Word(ExpectWord::None) => Ok(AppendCondition::None),
            Self::Word(ExpectWord::Empty) => Ok(AppendCondition::Empty),
        }
    }
}

impl NewLogEvent {
    fn read(self) -> Result<event::NewLogEvent, LogEventError> {
        let payload = self.payload.as_deref().map_or("null", RawValue::get);
        let mut event = event::NewLogEvent::from_json(&self.name, payload)?;
        if let Some(metadata) = self.metadata.as_deref().filter(|metadata| metadata.get() != "null") {
            event = event.metadata_json(metadata.get())?;
        }
        Ok(match self.id {
            Some(id) => event.id(EventId(id)),
            None => event,
        })
    }
}

impl Logged {
    /// The event, appended there.
    pub(crate) fn of(&self, event: event::Event) -> Result<event::Event, EventError> {
        match self {
            Self::Where(false) => Ok(event),
            Self::Where(true) => Ok(event.logged()),
            Self::In(StreamName { category, stream }) => event.logged_in(category, stream),
        }
    }
}

/// Where appended events stand, in the order of the request.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct AppendedAll {
    pub(crate) events: Vec<Appended>,
}

/// Where an event of the log stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Appended {
    pub(crate) id: Uuid,
    /// Its number in the log.
    #[schema(minimum = 1)]
    pub(crate) seq: i64,
    /// The `seq` of the event before it in its stream; 0 for the first.
    #[schema(minimum = 0)]
    pub(crate) prev: i64,
    /// Its place in the stream: 0, 1, 2, …
    #[schema(minimum = 0)]
    pub(crate) position: i64,
}

/// An event of the log.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct LogEvent {
    /// Its number in the log.
    #[schema(minimum = 1)]
    pub(crate) seq: i64,
    /// The `seq` of the event before it in its stream; 0 for the first.
    #[schema(minimum = 0)]
    pub(crate) prev: i64,
    pub(crate) id: Uuid,
    #[schema(example = "accounts")]
    pub(crate) category: String,
    #[schema(example = "account-7")]
    pub(crate) stream: String,
    /// Its place in the stream: 0, 1, 2, …
    #[schema(minimum = 0)]
    pub(crate) position: i64,
    #[schema(example = "opened")]
    pub(crate) name: String,
    #[schema(value_type = Value)]
    pub(crate) payload: Option<Box<RawValue>>,
    #[schema(value_type = Object)]
    pub(crate) metadata: Option<Box<RawValue>>,
    /// Its place on an object, if it was emitted on one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) place: Option<Place>,
    /// The beginning of the transaction that appended it.
    pub(crate) appended_at: DateTime<Utc>,
}

/// A part of the log, in its order.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct LogPage {
    /// At most `limit`, and sometimes fewer, or none, although more follow.
    pub(crate) items: Vec<LogEvent>,
    /// Where the next page begins: the parameter `after` of the next request.
    #[schema(minimum = 0)]
    pub(crate) through: i64,
    /// Whether there may be more beyond it now.
    pub(crate) more: bool,
    /// Whether something beyond it can't be read yet, because a transaction that appends is still open.
    pub(crate) held: bool,
}

impl From<&event::Appended> for Appended {
    fn from(appended: &event::Appended) -> Self {
        let event::Appended { id, seq, prev, position } = *appended;
        Self { id: id.0, seq, prev, position }
    }
}

impl AppendedAll {
    pub(crate) fn of(appended: &[event::Appended]) -> Self {
        Self { events: appended.iter().map(Appended::from).collect() }
    }
}

impl From<event::LogEvent> for LogEvent {
    /// A payload that is no JSON, which only another program can have written, is not shown.
    fn from(event: event::LogEvent) -> Self {
        Self {
            seq: event.seq,
            prev: event.prev,
            id: event.id.0,
            category: event.stream.category.to_string(),
            stream: event.stream.name.to_string(),
            position: event.position,
            name: event.name.to_string(),
            payload: RawValue::from_string(event.payload).ok(),
            metadata: RawValue::from_string(event.metadata).ok(),
            place: event.place.map(Place::from),
            appended_at: event.appended_at,
        }
    }
}

impl From<event::LogPage> for LogPage {
    fn from(page: event::LogPage) -> Self {
        let event::LogPage { events, through, more, held } = page;
        Self { items: events.into_iter().map(LogEvent::from).collect(), through, more, held }
    }
}
