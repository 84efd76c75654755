//! Events as columns: the parameters of the statements that insert several at once.

use std::collections::HashMap;

use uuid::Uuid;

use crate::event::{Due, EventOptions, HandlerAddress, NewEvent, Timestamp, Traceparent};

/// Events as columns, for `unnest`. Their handlers stand in columns of their own, each once, so
/// that Postgres checks their names once.
#[derive(Default)]
pub(super) struct EventColumns<'a> {
    pub(super) ids: Vec<Uuid>,
    /// The position of each event's handler, from 1.
    pub(super) handlers: Vec<i32>,
    pub(super) canvases: Vec<Uuid>,
    pub(super) modules: Vec<&'a str>,
    pub(super) names: Vec<&'a str>,
    pub(super) modifiers: Vec<&'a str>,
    pub(super) values: Vec<&'a str>,
    pub(super) moments: Vec<Option<Timestamp>>,
    pub(super) delays_s: Vec<f64>,
    pub(super) traces: Vec<Option<&'a str>>,
    /// As JSON. The statements for events without options do not send it.
    pub(super) options: Vec<Option<String>>,
}

impl<'a> EventColumns<'a> {
    pub(super) fn of(events: impl Iterator<Item = &'a NewEvent>) -> Self {
        let (mut columns, mut known) = (Self::default(), HashMap::new());
        for event in events {
            let handler = *known.entry(&event.address).or_insert_with(|| columns.handler(&event.address));
            columns.handlers.push(handler);
            columns.ids.push(event.id.0);
            columns.values.push(&event.value);
            columns.moments.push(moment(event.due));
            columns.delays_s.push(delay_s(event.due));
            columns.traces.push(event.metadata.traceparent.as_ref().map(Traceparent::as_str));
            columns.options.push(event.options.as_deref().map(EventOptions::json));
        }
        columns
    }

    /// Leaves out the times if all events are due at once, and the traces if there are none. If
    /// all have the same trace, it is there once. Postgres then reads, unnests and checks that much
    /// less. Only for a statement that takes the default for what is not there.
    pub(super) fn shortened(mut self) -> Self {
        if self.moments.iter().all(Option::is_none) {
            self.moments.clear();
        }
        if self.delays_s.iter().all(|delay_s| *delay_s == 0.0) {
            self.delays_s.clear();
        }
        if self.traces.windows(2).all(|pair| pair[0] == pair[1]) {
            self.traces.truncate(1);
            self.traces.retain(Option::is_some);
        }
        self
    }

    /// Adds a handler.
    fn handler(&mut self, address: &'a HandlerAddress) -> i32 {
        self.canvases.push(address.scope.canvas.0);
        self.modules.push(address.scope.module.as_str());
        self.names.push(address.scope.name.as_str());
        self.modifiers.push(address.modifier.as_str());
        self.canvases.len() as i32
    }
}

pub(super) fn moment(due: Due) -> Option<Timestamp> {
    match due {
        Due::At(moment) => Some(moment),
        Due::Now | Due::After(_) => None,
    }
}

pub(super) fn delay_s(due: Due) -> f64 {
    match due {
        Due::After(delay) => delay.as_secs_f64(),
        Due::Now | Due::At(_) => 0.0,
    }
}
