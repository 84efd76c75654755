//! Why a request to emit is not one.
//!
//! Its words name places, fields and what was expected. They never repeat a value: a payload must not get into an answer
//! or a log by way of an error.

use std::fmt;

use crate::event::EventError;

/// What is wrong with a request, and where.
#[derive(Debug, thiserror::Error)]
#[error("{place}{fault}")]
pub(crate) struct Refusal {
    place: Place,
    pub(crate) fault: Fault,
}

/// Which event of a batch, or of a change, is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Request,
    Event(usize),
    Main,
    Subevent(usize),
}

impl fmt::Display for Place {
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
    /// Nobody here reads this content type: 415.
    #[error("{0}")]
    MediaType(&'static str),
    /// The event itself can't be emitted.
    #[error(transparent)]
    Event(#[from] EventError),
    /// The text is no JSON.
    #[error("not JSON: {0}")]
    Syntax(String),
    /// It is JSON, but of another shape.
    #[error("{what} must be {expected}")]
    Shape {
        /// What was looked at.
        what: String,
        /// What it has to be.
        expected: &'static str,
    },
    /// A field that there is not.
    #[error(
        "{0} is no field of an event: the fields are module, name, modifier, value, id, delay_until, delay_s, object, \
         only_queues and logged"
    )]
    UnknownField(String),
    /// A field or header that stands there twice.
    #[error("{0} stands there twice")]
    Repeated(String),
    /// What has to be there is not.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// Two ways to say the same thing.
    #[error("{0} and {1} exclude each other: leave one out")]
    Both(&'static str, &'static str),
    /// More or fewer events than a request may hold.
    #[error("{count} events, a request holds {least} to {most}")]
    Count {
        /// How many there are.
        count: usize,
        /// The fewest.
        least: usize,
        /// The most.
        most: usize,
    },
    /// More fields than anybody needs.
    #[error("more than {0} fields in one object")]
    TooManyFields(usize),
}

impl Fault {
    pub(super) fn shape(what: impl fmt::Display, expected: &'static str) -> Self {
        Self::Shape { what: what.to_string(), expected }
    }
}

impl<F: Into<Fault>> From<F> for Refusal {
    fn from(fault: F) -> Self {
        Self { place: Place::Request, fault: fault.into() }
    }
}

impl Refusal {
    /// The same about one event of a batch.
    pub(super) fn of_event(mut self, index: usize) -> Self {
        self.place = Place::Event(index);
        self
    }

    /// The same about the main event of a change, or one of its subevents.
    pub(super) fn of_change(mut self, subevent: Option<usize>) -> Self {
        self.place = subevent.map_or(Place::Main, Place::Subevent);
        self
    }
}

/// A field's name, when it looks like one: anything else may be a payload in the wrong place.
pub(super) fn named(field: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    if (1..=40).contains(&field.len()) && field.bytes().all(plain) {
        format!("`{field}`")
    } else {
        "a field with an unusual name".to_owned()
    }
}
