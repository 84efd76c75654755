//! The errors of the log.

use super::limits::{APPEND_MAX, CALL_BYTES_MAX, READ_MAX};
use crate::event::{AppendCondition, CanvasId, Category, LogEventError, StreamId};
use crate::store::StoreError;

/// Why nothing was appended or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// A condition does not hold: nothing was appended.
    #[error(
        "the stream {stream} {}, but was expected to {}: read on from there, decide again, and \
         append at the position that it has then", position_words(.position), condition_words(.expected)
    )]
    Condition {
        /// The stream.
        stream: Box<StreamId>,
        /// The condition that it did not meet.
        expected: AppendCondition,
        /// The position of its last event; `None` if it has no event.
        position: Option<i64>,
    },
    /// An event can't be appended.
    #[error(transparent)]
    Event(#[from] LogEventError),
    /// Others keep appending to the same streams, or an open transaction holds one: nothing was
    /// appended.
    #[error(
        "other transactions hold a stream of the log that this call appends to: nothing was \
         appended. Append again; append many events in one call, and keep your own transactions \
         that append short"
    )]
    Busy(#[source] StoreError),
    /// Postgres refused it or did not answer, or a quota of the canvas is used up. After
    /// [`StoreError::TimedOut`] and [`StoreError::Unavailable`] the events may have been appended
    /// nevertheless: append again under a condition to be sure that they are appended once.
    #[error(transparent)]
    Store(StoreError),
    /// More events, or streams, than one call may have.
    #[error("{0} events or streams in one call, the limit is {APPEND_MAX}: append them in several calls")]
    TooMany(usize),
    /// A payload is larger than the log takes.
    #[error(
        "the payload has {size_bytes} bytes, the limit is {limit_bytes}: store it elsewhere and append a reference"
    )]
    TooLarge {
        /// Its size as JSON.
        size_bytes: usize,
        /// The limit.
        limit_bytes: usize,
    },
    /// The events of a call are larger than a call may be.
    #[error(
        "the events of this call have {size_bytes} bytes, the limit is {CALL_BYTES_MAX}: append them in several calls"
    )]
    CallTooLarge {
        /// Their size.
        size_bytes: usize,
    },
    /// A page can't have this size.
    #[error("a page has 1 to {READ_MAX} events, not {0}")]
    Limit(usize),
    /// The category is reserved for entities.
    #[error("only entities write into {0}: send the event to its entity, or choose another category")]
    Category(Category),
    /// The canvas is reserved.
    #[error("the canvas {0} is reserved: choose another one")]
    Canvas(CanvasId),
}

fn position_words(position: &Option<i64>) -> String {
    position.map_or_else(|| "has no event".to_owned(), |position| format!("is at position {position}"))
}

fn condition_words(expected: &AppendCondition) -> String {
    match expected {
        AppendCondition::None => "be as it is".to_owned(),
        AppendCondition::Empty => "be empty".to_owned(),
        AppendCondition::Position(position) => format!("be at position {position}"),
    }
}

impl From<StoreError> for LogError {
    fn from(error: StoreError) -> Self {
        if error.is_contention() { Self::Busy(error) } else { Self::Store(error) }
    }
}
