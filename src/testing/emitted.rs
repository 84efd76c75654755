//! The events that were emitted, for assertions.

use std::fmt;

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::event::{Due, EventId, EventOptions, HandlerAddress, NewEvent};

/// An event as it was emitted, whatever became of it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct EmittedEvent {
    /// Its id.
    pub id: EventId,
    /// The handler it is for.
    pub address: HandlerAddress,
    /// Its value.
    pub value: Value,
    /// When it was to run.
    pub due: Due,
    /// What it asks for in place of its handler's policy.
    pub options: Option<Box<EventOptions>>,
}

impl EmittedEvent {
    pub(super) fn of(event: &NewEvent) -> Self {
        Self {
            id: event.id,
            address: event.address.clone(),
            value: serde_json::from_str(&event.value).unwrap_or_else(|_| Value::String(event.value.clone())),
            due: event.due,
            options: event.options.clone(),
        }
    }

    /// Its value as a handler reads it.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_value(self.value.clone())
    }

    /// Whether it is for this handler: `name`, `MODULE/name` or `MODULE/name/modifier`, on any
    /// canvas. Without a module it means `WORKER`, without a modifier any.
    pub fn is_for(&self, handler: &str) -> bool {
        is_for(&self.address, handler)
    }
}

pub(super) fn is_for(address: &HandlerAddress, handler: &str) -> bool {
    let parts: Vec<&str> = handler.split('/').collect();
    let (module, name, modifier) = match parts.as_slice() {
        [name] => ("WORKER", *name, None),
        [module, name] => (*module, *name, None),
        [module, name, modifier] => (*module, *name, Some(*modifier)),
        _ => return false,
    };
    address.scope.module.as_str() == module
        && address.scope.name.as_str() == name
        && modifier.is_none_or(|modifier| address.modifier.as_str() == modifier)
}

impl fmt::Display for EmittedEvent {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let HandlerAddress { scope, modifier } = &self.address;
        write!(formatter, "{}/{}/{modifier} {}", scope.module, scope.name, self.value)?;
        match self.due {
            Due::Now => Ok(()),
            Due::After(delay) => write!(formatter, " after {delay:?}"),
            Due::At(moment) => write!(formatter, " at {moment}"),
        }
    }
}
