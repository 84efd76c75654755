//! Why a request to emit is refused.
//!
//! Messages name the place, the field and what was expected. They never repeat a value: a payload
//! must not end up in an answer or a log because of an error.

use std::fmt;
use wakeq::EventError;

/// What is wrong with a request, and where.
#[derive(Debug, thiserror::Error)]
#[error("{location}{fault}")]
pub(crate) struct Refusal {
    location: ErrorLocation,
    pub(crate) fault: Fault,
}

/// The event in question, within a batch or a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ErrorLocation {
    Request,
    Event(usize),
    Main,
    Subevent(usize),
}

impl fmt::Display for ErrorLocation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request => Ok(()),
            Self::Event(index) => write!(formatter, "events[{index}]: "),
            Self::Main => formatter.write_str("main: "),
            Self::Subevent(index) => write!(formatter, "subevents[{index}]: "),
        }
    }
}

/// What is wrong.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    /// The content type is not supported: 415.
    #[error("{0}")]
    MediaType(&'static str),
    /// The event itself can't be emitted.
    #[error(transparent)]
    Event(#[from] EventError),
    /// The text is not JSON.
    #[error("not JSON: {0}")]
    Syntax(String),
    /// It is JSON, but has another shape.
    #[error("{what} must be {expected}")]
    Shape {
        /// What was checked.
        what: String,
        /// What it has to be.
        expected: &'static str,
    },
    /// A field does not exist.
    #[error("{0} is not a field of an event: the fields are {1}")]
    UnknownField(String, &'static str),
    /// A field or header is repeated.
    #[error("{0} is given twice")]
    Repeated(String),
    /// A required field or header is missing.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// Two fields exclude each other.
    #[error("{0} and {1} exclude each other: leave one out")]
    Both(&'static str, &'static str),
    /// A request has too many or too few events.
    #[error("{count} events, a request holds {least} to {most}")]
    Count {
        /// The number of events.
        count: usize,
        /// The minimum.
        least: usize,
        /// The maximum.
        most: usize,
    },
    /// An object has too many fields.
    #[error("more than {0} fields in one object")]
    TooManyFields(usize),
}

impl Fault {
    pub(crate) fn shape(what: impl fmt::Display, expected: &'static str) -> Self {
        Self::Shape { what: what.to_string(), expected }
    }
}

impl<F: Into<Fault>> From<F> for Refusal {
    fn from(fault: F) -> Self {
        Self { location: ErrorLocation::Request, fault: fault.into() }
    }
}

impl Refusal {
    /// Locates it at an event of a batch.
    pub(crate) fn of_event(mut self, index: usize) -> Self {
        self.location = ErrorLocation::Event(index);
        self
    }

    /// Locates it at the main event of a change, or at one of its subevents.
    pub(crate) fn of_change(mut self, subevent: Option<usize>) -> Self {
        self.location = subevent.map_or(ErrorLocation::Main, ErrorLocation::Subevent);
        self
    }
}

/// A field's name, if it looks like one: anything else may be a misplaced payload.
pub(crate) fn named(field: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    if (1..=40).contains(&field.len()) && field.bytes().all(plain) {
        format!("`{field}`")
    } else {
        "a field with an unusual name".to_owned()
    }
}
