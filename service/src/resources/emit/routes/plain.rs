//! Plain JSON: an event, a batch of events, or a change of an object.
//!
//! Splits them into their events, each of which [`NewEvent`] reads.

use serde_json::value::RawValue;

use super::emission::{Change, Draft, EVENTS_MAX};
use crate::resources::emit::wire::refusal::{Fault, Refusal, named};
use crate::resources::emit::wire::{NewEvent, json};
use wakeq::Event;
use wakeq::order::ObjectKey;

/// One event: `{"name": …}` and its other fields.
pub(super) fn one(text: &str, draft: &Draft) -> Result<Event, Refusal> {
    Ok(event(json::value(text)?, draft)?)
}

/// A batch: `{"events": […]}`.
pub(super) fn batch(text: &str, draft: &Draft) -> Result<Vec<Event>, Refusal> {
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
pub(super) fn change(text: &str, object: &ObjectKey, draft: &Draft) -> Result<Change, Refusal> {
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

fn event(text: &RawValue, draft: &Draft) -> Result<Event, Fault> {
    Ok(draft.complete(NewEvent::read(text)?.event()?))
}
