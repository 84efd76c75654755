//! Converts typed or received data into the queue's types.

use std::time::Duration;

use serde_json::value::RawValue;

use crate::api::NewEvent;
use wakeq::{Event, EventError, EventId};

/// Converts an event.
pub(super) fn event(new: NewEvent) -> anyhow::Result<Event> {
    let value = new.value.as_deref().map_or("null", RawValue::get);
    let mut event = Event::from_json(&new.name, value)?;
    if let Some(module) = &new.module {
        event = event.module(module)?;
    }
    if let Some(modifier) = &new.modifier {
        event = event.modifier(modifier)?;
    }
    if let Some(object) = &new.object {
        event = event.on(object)?;
    }
    if new.only_queues {
        event = event.only_to_queues();
    }
    if let Some(logged) = &new.logged {
        event = logged.of(event)?;
    }
    if let Some(seconds) = new.delay_s {
        event = event.after(Duration::try_from_secs_f64(seconds).map_err(|_| EventError::TooLate)?)?;
    }
    if let Some(moment) = new.delay_until {
        event = event.at(moment)?;
    }
    Ok(match new.id {
        Some(id) => event.id(EventId(id)),
        None => event,
    })
}
