//! Plain JSON: an event, a batch of events, or a change of an object.
//!
//! Values are kept verbatim; all other fields are checked here or by the event itself.

use std::time::Duration;

use serde_json::value::RawValue;

use super::json;
use super::refusal::{Fault, Refusal, named};
use super::request::{Change, Draft, EVENTS_MAX};
use crate::api::{Logged, StreamName};
use wakeq::{Event, EventError, EventId, ObjectKey, Timestamp};

/// One event: `{"name": …}` and its other fields.
pub(super) fn one(text: &str, draft: &Draft<'_>) -> Result<Event, Refusal> {
    Ok(event(json::value(text)?, draft)?)
}

/// A batch: `{"events": […]}`.
pub(super) fn batch(text: &str, draft: &Draft<'_>) -> Result<Vec<Event>, Refusal> {
    let mut events = None;
    for (name, value) in json::fields(json::value(text)?, "the body")? {
        match name.as_str() {
            "events" => events = Some(json::elements(value, "`events`")?),
            _ => {
                let what = format!("{} in a batch", named(&name));
                return Err(Fault::shape(what, "left out: the only field is `events`").into());
            }
        }
    }
    let events = events.ok_or(Fault::Missing("`events`"))?;
    if !(1..=EVENTS_MAX).contains(&events.len()) {
        return Err(Fault::Count { count: events.len(), least: 1, most: EVENTS_MAX }.into());
    }
    let numbered = events.into_iter().enumerate();
    numbered.map(|(at, one)| event(one, draft).map_err(|fault| Refusal::from(fault).of_event(at))).collect()
}

/// A change of this object: `{"main": {…}, "subevents": […], "state": …}`.
pub(super) fn change(text: &str, object: &ObjectKey, draft: &Draft<'_>) -> Result<Change, Refusal> {
    let (mut main, mut subevents, mut state) = (None, None, None);
    for (field, raw) in json::fields(json::value(text)?, "the body")? {
        let known = match field.as_str() {
            "main" => &mut main,
            "subevents" => &mut subevents,
            "state" => &mut state,
            _ => {
                let what = format!("{} in a change", named(&field));
                return Err(Fault::shape(what, "left out: the fields are main, subevents and state").into());
            }
        };
        *known = (!json::is_null(raw)).then_some(raw);
    }
    let main = main.ok_or(Fault::Missing("`main`"))?;
    let subevents = subevents.map(|raw| json::elements(raw, "`subevents`")).transpose()?.unwrap_or_default();
    if subevents.len() >= EVENTS_MAX {
        return Err(Fault::Count { count: 1 + subevents.len(), least: 1, most: EVENTS_MAX }.into());
    }
    let on_it = |raw| {
        let event = event(raw, draft)?;
        match event.fields().object {
            Some(other) if other != object => Err(Fault::shape("`object`", "that of the path, or left out")),
            Some(_) | None => Ok(event),
        }
    };
    let numbered = subevents.into_iter().enumerate();
    let subevents =
        numbered.map(|(at, raw)| on_it(raw).map_err(|fault| Refusal::from(fault).of_change(Some(at))));
    Ok(Change {
        object: object.clone(),
        main: on_it(main).map_err(|fault| Refusal::from(fault).of_change(None))?,
        subevents: subevents.collect::<Result<_, _>>()?,
        state: state.map(|state| state.get().to_owned()),
    })
}

fn event(text: &RawValue, draft: &Draft<'_>) -> Result<Event, Fault> {
    let (mut name, mut module, mut modifier, mut value) = (None, None, None, "null");
    let (mut id, mut delay_until, mut delay_s) = (None, None, None);
    let (mut object, mut only_queues, mut log) = (None, None, None);
    for (field, raw) in json::fields(text, "the event")? {
        let known = match field.as_str() {
            "value" => {
                value = raw.get();
                continue;
            }
            "name" => &mut name,
            "module" => &mut module,
            "modifier" => &mut modifier,
            "id" => &mut id,
            "delay_until" => &mut delay_until,
            "delay_s" => &mut delay_s,
            "object" => &mut object,
            "only_queues" => &mut only_queues,
            "logged" => &mut log,
            _ => return Err(Fault::UnknownField(named(&field))),
        };
        *known = (!json::is_null(raw)).then_some(raw);
    }
    let name = name.ok_or(Fault::Missing("`name`"))?;
    let mut event = draft.event(&json::string(name, "`name`")?, value)?;
    if let Some(module) = module {
        event = event.module(&json::string(module, "`module`")?)?;
    }
    if let Some(modifier) = modifier {
        event = event.modifier(&json::string(modifier, "`modifier`")?)?;
    }
    if let Some(id) = id {
        event = event.id(event_id(&json::string(id, "`id`")?)?);
    }
    if let Some(object) = object {
        event = event.on(&json::string(object, "`object`")?)?;
    }
    match only_queues.map(RawValue::get) {
        Some("true") => event = event.only_to_queues(),
        Some("false") | None => {}
        Some(_) => return Err(Fault::shape("`only_queues`", "true or false")),
    }
    if let Some(log) = log {
        event = logged(log)?.of(event)?;
    }
    match (delay_until, delay_s) {
        (Some(_), Some(_)) => Err(Fault::Both("`delay_until`", "`delay_s`")),
        (Some(moment), None) => {
            let moment = json::string(moment, "`delay_until`")?;
            Ok(event.at(timestamp(&moment, "`delay_until`")?)?)
        }
        (None, Some(delay)) => Ok(event.after(duration(json::seconds(delay.get(), "`delay_s`")?)?)?),
        (None, None) => Ok(event),
    }
}

/// `true`, `false`, or a stream.
fn logged(raw: &RawValue) -> Result<Logged, Fault> {
    match raw.get() {
        "true" => return Ok(Logged::ByAddress(true)),
        "false" => return Ok(Logged::ByAddress(false)),
        _ => {}
    }
    let (mut category, mut stream) = (None, None);
    for (field, raw) in json::fields(raw, "`logged`")? {
        let known = match field.as_str() {
            "category" => &mut category,
            "stream" => &mut stream,
            _ => {
                return Err(Fault::shape("`logged`", "true, false, or an object with category and stream"));
            }
        };
        *known = Some(json::string(raw, "`logged`")?.into_owned());
    }
    match (category, stream) {
        (Some(category), Some(stream)) => Ok(Logged::In(StreamName { category, stream })),
        _ => Err(Fault::shape("`logged`", "true, false, or an object with category and stream")),
    }
}

/// A uuid with hyphens, the form that all answers use.
fn event_id(text: &str) -> Result<EventId, Fault> {
    match text.parse() {
        Ok(id) if text.len() == 36 => Ok(id),
        Ok(_) | Err(_) => Err(Fault::shape("`id`", "a uuid with hyphens")),
    }
}

pub(super) fn timestamp(text: &str, what: &str) -> Result<Timestamp, Fault> {
    let moment = chrono::DateTime::parse_from_rfc3339(text);
    moment
        .map(|moment| moment.to_utc())
        .map_err(|_| Fault::shape(what, "a moment as in RFC 3339 (2030-01-31T08:00:00Z)"))
}

pub(super) fn duration(seconds: f64) -> Result<Duration, Fault> {
    Duration::try_from_secs_f64(seconds).map_err(|_| EventError::TooLate.into())
}
