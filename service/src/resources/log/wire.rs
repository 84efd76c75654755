//! The log: appends and their results, and pages.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::resources::objects::wire::PlaceJson;
use crate::resources::wire::{HIDDEN, wire_from};
use wakeq::log::{AppendCondition, LogEventError, StreamAppend, StreamId};
use wakeq::{CanvasId, EventError, EventId};

/// Where to append an emitted event in the log: `true`, or a stream.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum Logged {
    /// `true`: the module is the category; the object, or else the name, is the stream.
    ByAddress(bool),
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

/// Events to be appended if all conditions hold, all or none.
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
    /// The condition on the stream before the append: `empty`, or the position of its last event.
    /// Default `none`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) expect: Option<Expect>,
    /// The events in this order, at most 1,000 per request. Without events, only the condition is
    /// checked.
    #[serde(default)]
    #[schema(required = false, max_items = 1000)]
    pub(crate) events: Vec<NewLogEvent>,
}

/// A condition on a stream.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum Expect {
    /// The stream's last event has this position, counted from 0.
    Position(#[schema(inline)] StreamPosition),
    /// A named condition.
    Word(ExpectWord),
}

/// The position of a stream's last event, counted from 0.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
#[schema(value_type = u64)]
pub(crate) struct StreamPosition(i64);

/// A named condition on a stream.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ExpectWord {
    /// No condition.
    None,
    /// The stream has no events.
    Empty,
}

/// An event to be appended.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewLogEvent {
    /// The event's name: what happened.
    #[schema(pattern = "^[A-Za-z0-9_.-]{1,128}$", example = "opened")]
    pub(crate) name: String,
    /// The event's payload, stored verbatim. Default null.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Value)]
    pub(crate) payload: Option<Box<RawValue>>,
    /// Metadata: a JSON object of at most 64 KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub(crate) metadata: Option<Box<RawValue>>,
    /// An id that you choose. The log does not check whether it already has the id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) id: Option<Uuid>,
}

/// Why a request does not describe an append.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InvalidAppend {
    #[error(transparent)]
    Stream(#[from] wakeq::log::InvalidLogName),
    #[error(transparent)]
    Condition(#[from] wakeq::log::InvalidCondition),
    #[error(transparent)]
    Event(#[from] LogEventError),
}

impl Append {
    /// The appends to streams on this canvas.
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
    fn read(self) -> Result<AppendCondition, wakeq::log::InvalidCondition> {
        match self {
            Self::Position(StreamPosition(position)) => position.to_string().parse(),
            Self::Word(ExpectWord::None) => Ok(AppendCondition::None),
            Self::Word(ExpectWord::Empty) => Ok(AppendCondition::Empty),
        }
    }
}

impl NewLogEvent {
    fn read(self) -> Result<wakeq::log::NewLogEvent, LogEventError> {
        let payload = self.payload.as_deref().map_or("null", RawValue::get);
        let mut event = wakeq::log::NewLogEvent::from_json(&self.name, payload)?;
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
    /// The event, also appended to the log there.
    pub(crate) fn of(&self, event: wakeq::Event) -> Result<wakeq::Event, EventError> {
        match self {
            Self::ByAddress(false) => Ok(event),
            Self::ByAddress(true) => Ok(event.logged()),
            Self::In(StreamName { category, stream }) => event.logged_in(category, stream),
        }
    }
}

/// Where the appended events are in the log, in the order of the request.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct AppendedAll {
    pub(crate) events: Vec<AppendedJson>,
}

/// Where an event is in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Appended)]
pub(crate) struct AppendedJson {
    pub(crate) id: Uuid,
    /// The event's log number.
    #[schema(minimum = 1)]
    pub(crate) seq: i64,
    /// The `seq` of the previous event in the stream; 0 for the first.
    #[schema(minimum = 0)]
    pub(crate) prev: i64,
    /// The event's position in the stream: 0, 1, 2, …
    #[schema(minimum = 0)]
    pub(crate) position: i64,
}

/// A category of a canvas.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = LogCategory)]
pub(crate) struct CategoryJson {
    #[schema(example = "accounts")]
    pub(crate) category: String,
}

/// A stream, and its last event.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = LogStream)]
pub(crate) struct StreamJson {
    #[schema(example = "account-7")]
    pub(crate) stream: String,
    /// The position of the stream's last event.
    #[schema(minimum = 0)]
    pub(crate) position: i64,
    /// The log number of the stream's last event.
    #[schema(minimum = 1)]
    pub(crate) seq: i64,
}

impl From<wakeq::log::Category> for CategoryJson {
    fn from(category: wakeq::log::Category) -> Self {
        Self { category: category.to_string() }
    }
}

impl From<wakeq::log::LogStream> for StreamJson {
    fn from(stream: wakeq::log::LogStream) -> Self {
        let wakeq::log::LogEnd { position, seq, .. } = stream.end;
        Self { stream: stream.name.to_string(), position, seq }
    }
}

/// An event of the log.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = LogEvent)]
pub(crate) struct LogEventJson {
    /// The event's log number.
    #[schema(minimum = 1)]
    pub(crate) seq: i64,
    /// The `seq` of the previous event in the stream; 0 for the first.
    #[schema(minimum = 0)]
    pub(crate) prev: i64,
    pub(crate) id: Uuid,
    #[schema(example = "accounts")]
    pub(crate) category: String,
    #[schema(example = "account-7")]
    pub(crate) stream: String,
    /// The event's position in the stream: 0, 1, 2, …
    #[schema(minimum = 0)]
    pub(crate) position: i64,
    #[schema(example = "opened")]
    pub(crate) name: String,
    #[schema(value_type = Value)]
    pub(crate) payload: Option<Box<RawValue>>,
    #[schema(value_type = Object)]
    pub(crate) metadata: Option<Box<RawValue>>,
    /// The object it was emitted on, and its link there, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) place: Option<PlaceJson>,
    /// When the transaction that appended the event began.
    pub(crate) appended_at: DateTime<Utc>,
}

/// A page of the log, in order.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = LogPage)]
pub(crate) struct LogPageJson {
    /// At most `limit` events, and possibly fewer or none although more follow.
    pub(crate) items: Vec<LogEventJson>,
    /// Where the next page starts: the parameter `after` of the next request.
    #[schema(minimum = 0)]
    pub(crate) through: i64,
    /// Whether more may be readable beyond it now.
    pub(crate) more: bool,
    /// Whether events beyond it can't be read yet, because a transaction that appends is still
    /// open.
    pub(crate) held: bool,
    /// Says that the payloads and metadata are hidden, and which scope shows them; omitted if they
    /// are not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "hidden: this needs the scope `values`")]
    pub(crate) hidden: Option<String>,
}

impl From<&wakeq::log::Appended> for AppendedJson {
    fn from(appended: &wakeq::log::Appended) -> Self {
        let wakeq::log::Appended { id, seq, prev, position } = *appended;
        Self { id: id.0, seq, prev, position }
    }
}

impl AppendedAll {
    pub(crate) fn of(appended: &[wakeq::log::Appended]) -> Self {
        Self { events: appended.iter().map(AppendedJson::from).collect() }
    }
}

wire_from! {
    /// Leaves out a payload or metadata that is not JSON: only another program can have written it.
    wakeq::log::LogEvent => LogEventJson, |event| {
        seq, prev, position, appended_at;
        id: event.id.0,
        category: event.stream.category.to_string(),
        stream: event.stream.name.to_string(),
        name: event.name.to_string(),
        payload: RawValue::from_string(event.payload).ok(),
        metadata: RawValue::from_string(event.metadata).ok(),
        place: event.place.map(PlaceJson::from),
    }
}

impl From<wakeq::log::LogPage> for LogPageJson {
    fn from(page: wakeq::log::LogPage) -> Self {
        let wakeq::log::LogPage { events, through, more, held } = page;
        let items = events.into_iter().map(LogEventJson::from).collect();
        Self { items, through, more, held, hidden: None }
    }
}

impl LogPageJson {
    /// For callers that may not see values.
    pub(crate) fn hidden(self) -> Self {
        let items = self.items.into_iter();
        let items = items.map(|event| LogEventJson { payload: None, metadata: None, ..event }).collect();
        Self { items, hidden: Some(HIDDEN.to_owned()), ..self }
    }
}
