//! Events to append to the log, and the conditions under which they are appended.

use std::fmt;

use serde::Serialize;

use super::StreamId;
use crate::event::{EventId, InvalidName, JsonError, Name, Place, json};

/// Largest metadata of an event.
const METADATA_MAX_BYTES: usize = 64 * 1024;

/// An event to be appended: what happened, as data.
///
/// ```
/// use wakeq::log::NewLogEvent;
///
/// # fn main() -> Result<(), wakeq::log::LogEventError> {
/// let opened = NewLogEvent::new("opened", &42)?.metadata(&[("by", "ada")].into_iter().collect::<std::collections::BTreeMap<_, _>>())?;
/// assert!(NewLogEvent::from_json("opened", "{").is_err());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct NewLogEvent {
    pub(crate) id: EventId,
    pub(crate) name: Name,
    pub(crate) payload: String,
    pub(crate) metadata: String,
    /// Its object and link, if it was emitted on an object.
    pub(crate) place: Option<Place>,
}

/// Why an event can't be appended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogEventError {
    /// Its name is not valid.
    #[error(transparent)]
    Name(#[from] InvalidName),
    /// Its payload can't be stored.
    #[error(transparent)]
    Payload(#[from] JsonError),
    /// Its metadata can't be stored.
    #[error("the metadata of an event is a JSON object of at most {METADATA_MAX_BYTES} bytes: {0}")]
    Metadata(String),
}

impl NewLogEvent {
    /// An event with a new id. The payload is stored as JSON.
    pub fn new(name: &str, payload: &(impl Serialize + ?Sized)) -> Result<Self, LogEventError> {
        let payload = serde_json::to_string(payload).map_err(JsonError::Invalid)?;
        Self::from_json(name, payload)
    }

    /// Like [`NewLogEvent::new`], with a payload that already is JSON text; it is stored verbatim.
    pub fn from_json(name: &str, payload: impl Into<String>) -> Result<Self, LogEventError> {
        let payload = payload.into();
        json::check(&payload)?;
        let (id, metadata) = (EventId::new(), "{}".to_owned());
        Ok(Self { id, name: name.parse()?, payload, metadata, place: None })
    }

    /// Sets the metadata, such as who caused the event: a JSON object of at most 64 KiB. Default
    /// `{}`.
    pub fn metadata(self, metadata: &(impl Serialize + ?Sized)) -> Result<Self, LogEventError> {
        let metadata =
            serde_json::to_string(metadata).map_err(|error| LogEventError::Metadata(error.to_string()))?;
        self.metadata_json(metadata)
    }

    /// Like [`NewLogEvent::metadata`], from JSON text.
    pub fn metadata_json(mut self, metadata: impl Into<String>) -> Result<Self, LogEventError> {
        let metadata = metadata.into();
        json::check(&metadata).map_err(|error| LogEventError::Metadata(error.to_string()))?;
        if !metadata.trim_start().starts_with('{') {
            return Err(LogEventError::Metadata("this is not an object".to_owned()));
        }
        if metadata.len() > METADATA_MAX_BYTES {
            return Err(LogEventError::Metadata(format!("this has {} bytes", metadata.len())));
        }
        self.metadata = metadata;
        Ok(self)
    }

    /// Sets an id chosen by the caller. The log does not check whether it already has the id: to
    /// append something only once, append it under a condition.
    pub fn id(mut self, id: EventId) -> Self {
        self.id = id;
        self
    }

    /// An event whose parts were checked before, and that is on no object.
    #[doc(hidden)]
    pub fn of_checked(id: EventId, name: Name, payload: String, metadata: String) -> Self {
        Self { id, name, payload, metadata, place: None }
    }

    /// Approximate size in bytes.
    pub(crate) fn size_bytes(&self) -> usize {
        self.payload.len() + self.metadata.len()
    }
}

/// A condition that a stream must meet for anything to be appended to it.
///
/// ```
/// use wakeq::log::AppendCondition;
///
/// assert_eq!("empty".parse(), Ok(AppendCondition::Empty));
/// assert_eq!("17".parse(), Ok(AppendCondition::Position(17)));
/// assert_eq!(AppendCondition::None.to_string(), "none");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum AppendCondition {
    /// No condition.
    #[default]
    None,
    /// The stream has no events.
    Empty,
    /// The stream's last event has this position, counted from 0.
    Position(i64),
}

impl AppendCondition {
    /// Whether the condition holds for a stream whose last event has this position; `None` is a
    /// stream without events.
    pub fn holds(self, position: Option<i64>) -> bool {
        match self {
            Self::None => true,
            Self::Empty => position.is_none(),
            Self::Position(expected) => position == Some(expected),
        }
    }
}

impl fmt::Display for AppendCondition {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => formatter.pad("none"),
            Self::Empty => formatter.pad("empty"),
            Self::Position(position) => position.fmt(formatter),
        }
    }
}

/// A text that is not a condition.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a condition: use none, empty, or the position of the stream's last event, from 0")]
pub struct InvalidCondition(pub String);

impl std::str::FromStr for AppendCondition {
    type Err = InvalidCondition;

    fn from_str(text: &str) -> Result<Self, InvalidCondition> {
        match text {
            "none" => Ok(Self::None),
            "empty" => Ok(Self::Empty),
            number => match number.parse::<i64>() {
                Ok(position) if position >= 0 => Ok(Self::Position(position)),
                _ => Err(InvalidCondition(text.chars().take(64).collect())),
            },
        }
    }
}

/// Events for one stream, and the condition under which they are appended. Without events only the
/// condition is checked.
///
/// ```
/// use wakeq::CanvasId;
/// use wakeq::log::{AppendCondition, NewLogEvent, StreamAppend, StreamId};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let account = StreamId::new(CanvasId::DEFAULT, "accounts", "account-7")?;
/// let opened = StreamAppend::new(account, vec![NewLogEvent::new("opened", &0)?]).expect(AppendCondition::Empty);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct StreamAppend {
    pub(crate) stream: StreamId,
    pub(crate) events: Vec<NewLogEvent>,
    pub(crate) condition: AppendCondition,
}

impl StreamAppend {
    /// Appends these events to a stream, in this order and unconditionally.
    pub fn new(stream: StreamId, events: Vec<NewLogEvent>) -> Self {
        Self { stream, events, condition: AppendCondition::None }
    }

    /// Appends only if the condition holds for the stream as it was before this call.
    pub fn expect(mut self, condition: AppendCondition) -> Self {
        self.condition = condition;
        self
    }
}

/// Where an appended event is in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// Its id.
    pub id: EventId,
    /// Its sequence number in the log.
    pub seq: i64,
    /// The `seq` of the event before it in its stream; 0 for the first.
    pub prev: i64,
    /// Its position in the stream: 0, 1, 2, …
    pub position: i64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_hold_of_what_they_say() {
        let holds = |condition: AppendCondition| [None, Some(0), Some(3)].map(|at| condition.holds(at));
        assert_eq!(holds(AppendCondition::None), [true, true, true]);
        assert_eq!(holds(AppendCondition::Empty), [true, false, false]);
        assert_eq!(holds(AppendCondition::Position(3)), [false, false, true]);
        for text in ["", "-1", "Empty", "1.5", "99999999999999999999"] {
            assert!(text.parse::<AppendCondition>().is_err(), "{text}");
        }
    }

    #[test]
    fn metadata_is_a_small_object() {
        let event = || NewLogEvent::new("opened", &1).unwrap();
        assert!(event().metadata_json(r#" {"by": "ada"}"#).is_ok());
        for metadata in ["", "1", "[]", "{", &format!(r#"{{"a": "{}"}}"#, "x".repeat(METADATA_MAX_BYTES))] {
            assert!(event().metadata_json(metadata).is_err(), "{}", metadata.len());
        }
        assert!(NewLogEvent::new("no name", &1).is_err());
    }
}
