//! Parses requests to emit into events. Pure: no I/O and no clock.
//!
//! The canvas is always that of the path: no header or body can name another one.

use super::cloudevents::{self, Keep};
use super::media::MediaType;
use super::plain;
use crate::resources::emit::wire::json;
use crate::resources::emit::wire::refusal::{Fault, Refusal};
use wakeq::events::Traceparent;
use wakeq::order::ObjectKey;
use wakeq::{CanvasId, Event, EventId};

/// Maximum number of events in one request.
pub(super) const EVENTS_MAX: usize = 1000;

/// The prefix of headers that are attributes of a CloudEvent.
const PREFIX: &str = "ce-";
/// Any of the required attributes distinguishes a CloudEvent in binary mode from plain JSON.
const MARKS: [&str; 4] = ["ce-specversion", "ce-id", "ce-source", "ce-type"];

/// The parts of a request that say what to emit.
#[derive(Clone, Copy)]
pub(super) struct Incoming<'a> {
    /// The canvas of the path.
    pub(super) canvas: CanvasId,
    /// Whether the path is the one for batches.
    pub(super) batch: bool,
    /// The part of a CloudEvent to keep.
    pub(super) keep: Keep,
    pub(super) headers: Headers<'a>,
    pub(super) body: &'a [u8],
}

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
    /// object with all of its handlers, and the log and the state of an object to the canvas.
    pub(super) fn beside_events(&self) -> Option<&'static str> {
        let of_event = |event: &Event| {
            let fields = event.fields();
            match (fields.object, fields.is_logged) {
                (Some(_), _) => Some("`object`"),
                (None, true) => Some("`logged`"),
                (None, false) => None,
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
    canvas: CanvasId,
    /// That of the `traceparent` header, if it is valid.
    trace: Option<Traceparent>,
}

/// Parses a request: plain JSON, or CloudEvents in any of their three modes.
pub(super) fn read(incoming: &Incoming<'_>) -> Result<Emission, Refusal> {
    let Incoming { canvas, batch, keep, headers, body } = *incoming;
    let draft = Draft { canvas, trace: headers.trace() };
    let media = headers.one("content-type")?.map(MediaType::parse).transpose()?;
    match &media {
        Some(media) if media.is("application", "cloudevents-batch+json") => {
            media.check_charset()?;
            Ok(Emission::Batch(cloudevents::batch(json::text(body)?, keep, &draft)?))
        }
        Some(media) if media.is("application", "cloudevents+json") && !batch => {
            media.check_charset()?;
            Ok(Emission::One(Box::new(cloudevents::structured(json::text(body)?, keep, &draft)?)))
        }
        Some(media) if media.is_cloud_event() => Err(Fault::MediaType(if batch {
            "a batch of CloudEvents is application/cloudevents-batch+json"
        } else {
            "the only supported format of CloudEvents is JSON: application/cloudevents+json or \
             application/cloudevents-batch+json"
        })
        .into()),
        _ if MARKS.iter().any(|mark| headers.all(mark).next().is_some()) => {
            if batch {
                return Err(Fault::MediaType(
                    "the headers are those of one CloudEvent in binary mode: send it to …/events, or a batch as \
                     application/cloudevents-batch+json",
                )
                .into());
            }
            Ok(Emission::One(Box::new(cloudevents::binary(headers, media.as_ref(), body, keep, &draft)?)))
        }
        Some(media) if media.is("application", "json") => {
            media.check_charset()?;
            let text = json::text(body)?;
            if batch {
                Ok(Emission::Batch(plain::batch(text, &draft)?))
            } else {
                Ok(Emission::One(Box::new(plain::one(text, &draft)?)))
            }
        }
        Some(_) | None => Err(Fault::MediaType(
            "send `content-type: application/json`, or a CloudEvent (application/cloudevents+json, or ce- headers)",
        )
        .into()),
    }
}

/// Parses a request to change an object: plain JSON.
pub(super) fn read_change(object: &ObjectKey, incoming: &Incoming<'_>) -> Result<Emission, Refusal> {
    let Incoming { canvas, headers, body, .. } = *incoming;
    let draft = Draft { canvas, trace: headers.trace() };
    let media = headers.one("content-type")?.map(MediaType::parse).transpose()?;
    match &media {
        Some(media) if media.is("application", "json") => media.check_charset()?,
        Some(_) | None => return Err(Fault::MediaType("send `content-type: application/json`").into()),
    }
    Ok(Emission::On(Box::new(plain::change(json::text(body)?, object, &draft)?)))
}

impl<'a> Headers<'a> {
    fn all(self, name: &str) -> impl Iterator<Item = &'a [u8]> {
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
    fn trace(self) -> Option<Traceparent> {
        self.one("traceparent").ok().flatten()?.parse().ok()
    }
}

impl Draft {
    /// An event of this request: on its canvas, and in its trace unless it is in another.
    pub(super) fn complete(&self, event: Event) -> Event {
        event.canvas(self.canvas).in_trace(self.trace.clone())
    }
}
