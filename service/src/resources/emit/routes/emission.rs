//! What a request asks to emit, and the headers that say so.

use crate::resources::emit::wire::refusal::Fault;
use wakeq::events::{EventOptions, Traceparent};
use wakeq::order::ObjectKey;
use wakeq::{CanvasId, Event, EventId};

/// Maximum number of events in one request.
pub(super) const EVENTS_MAX: usize = 1000;

/// The prefix of headers that are attributes of a CloudEvent.
const PREFIX: &str = "ce-";

/// Names, in lower case, with their values.
#[derive(Clone, Copy)]
pub(super) struct Headers<'a>(pub(super) &'a [(&'a str, &'a [u8])]);

/// The events that a request asks to emit.
#[derive(Debug)]
pub(super) enum Emission {
    /// One event, answered as an object.
    One(Box<Event>),
    /// Any number of events, answered as a list.
    Batch(Vec<Event>),
    /// A change of an object, answered as a list.
    On(Box<Change>),
}

impl Emission {
    /// All of its events.
    pub(super) fn events(&self) -> impl Iterator<Item = &Event> {
        let (one, rest) = match self {
            Self::One(event) => (Some(event.as_ref()), [].as_slice()),
            Self::Batch(events) => (None, events.as_slice()),
            Self::On(change) => (Some(&change.main), change.subevents.as_slice()),
        };
        one.into_iter().chain(rest)
    }

    /// The other data that it writes beside events of their handlers, if any: a chain belongs to an
    /// object with all of its handlers; and the log, a batch, the places of a limit and the state
    /// of an object to the canvas.
    pub(super) fn beside_events(&self) -> Option<&'static str> {
        let of_event = |event: &Event| {
            let fields = event.fields();
            let batch = fields.options.and_then(EventOptions::batch);
            let is_limited = fields.options.is_some_and(|options| !options.limits().is_empty());
            match (fields.object, fields.is_logged, batch, is_limited) {
                (Some(_), _, _, _) => Some("`object`"),
                (None, true, _, _) => Some("`logged`"),
                (None, false, Some(_), _) => Some("`batch`"),
                (None, false, None, true) => Some("`limits`"),
                (None, false, None, false) => None,
            }
        };
        match self {
            Self::One(_) | Self::Batch(_) => self.events().find_map(of_event),
            Self::On(_) => Some("a change of an object"),
        }
    }

    /// The same, with chosen ids that count among those of each event's handler.
    pub(super) fn with_ids_of_handlers(self) -> Self {
        let narrowed = |event: Event| {
            let Some(id) = event.fields().id else { return event };
            let (module, name) = event.handler();
            let id = EventId::of_handler(module, name, id);
            event.id(id)
        };
        match self {
            Self::One(event) => Self::One(Box::new(narrowed(*event))),
            Self::Batch(events) => Self::Batch(events.into_iter().map(narrowed).collect()),
            Self::On(change) => Self::On(Box::new(Change {
                main: narrowed(change.main),
                subevents: change.subevents.into_iter().map(narrowed).collect(),
                ..*change
            })),
        }
    }
}

/// Events on an object, and its new state.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) object: ObjectKey,
    pub(super) main: Event,
    pub(super) subevents: Vec<Event>,
    /// As JSON.
    pub(super) state: Option<String>,
}

/// The fields that all events of a request share.
pub(super) struct Draft {
    pub(super) canvas: CanvasId,
    /// That of the `traceparent` header, if it is valid.
    pub(super) trace: Option<Traceparent>,
}

impl<'a> Headers<'a> {
    pub(super) fn all(self, name: &str) -> impl Iterator<Item = &'a [u8]> {
        self.0.iter().filter(move |(found, _)| *found == name).map(|(_, value)| *value)
    }

    /// A header that must not be repeated, as ASCII.
    pub(super) fn one(self, name: &'static str) -> Result<Option<&'a str>, Fault> {
        let mut values = self.all(name);
        let value = values.next();
        if values.next().is_some() {
            return Err(Fault::Repeated(format!("the header `{name}`")));
        }
        let text = |value| std::str::from_utf8(value).ok().filter(|text| text.is_ascii());
        value
            .map(|value| text(value).ok_or_else(|| Fault::shape(format!("the header `{name}`"), "ASCII")))
            .transpose()
    }

    /// The attributes of a CloudEvent in binary mode, still encoded.
    pub(super) fn attributes(self) -> impl Iterator<Item = (&'a str, &'a [u8])> {
        self.0.iter().filter_map(|(name, value)| Some((name.strip_prefix(PREFIX)?, *value)))
    }

    /// The `traceparent` header. If it is invalid or repeated, it is ignored, as W3C Trace Context
    /// requires: a new trace starts.
    pub(super) fn trace(self) -> Option<Traceparent> {
        self.one("traceparent").ok().flatten()?.parse().ok()
    }
}

impl Draft {
    /// An event of this request: on its canvas, and in its trace unless it is in another.
    pub(super) fn complete(&self, event: Event) -> Event {
        event.canvas(self.canvas).in_trace(self.trace.clone())
    }
}
