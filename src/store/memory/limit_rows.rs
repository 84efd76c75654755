//! The rows of limits: definitions, what is in use of each counted name, and which events wait.
//! Resolves names, and decides nothing about events.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::LiveRow;
use crate::event::{
    CanvasId, EventId, EventOptions, HeldLimit, Limit, LimitKey, LimitName, NewLimit, Rate, Timestamp,
};

/// How far ahead events beyond a rate get a time to come back.
const LINE_MAX: Duration = Duration::from_secs(120);
/// How many events get one.
const LINE_EVENTS_MAX: u32 = 10_000;

/// The tables of limits.
#[derive(Debug, Default)]
pub(super) struct Limits {
    pub(super) defined: BTreeMap<(CanvasId, LimitName), Limit>,
    pub(super) states: BTreeMap<HeldLimit, LimitState>,
    /// Each event that waits does so under one of its limits.
    pub(super) waits: BTreeMap<EventId, Wait>,
    /// Those that wait or have waited, and have not started since: when they may come back, or
    /// since when they wait.
    pub(super) put_off: BTreeMap<EventId, Timestamp>,
    /// Limits that have room for others after a claim, or of which it has called events back: those
    /// are to be woken.
    pub(super) to_wake: BTreeSet<HeldLimit>,
}

/// What an event waits for.
#[derive(Clone, Debug)]
pub(super) struct Wait {
    pub(super) held: HeldLimit,
    /// Its place in the line: when it was due.
    pub(super) due: Timestamp,
    pub(super) since: Timestamp,
    /// When it was told to come back, which may be ahead.
    pub(super) woken_at: Option<Timestamp>,
    /// Its start was taken from the rates.
    pub(super) is_paid: bool,
}

/// What is in use under a counted name.
#[derive(Clone, Debug, Default)]
pub(super) struct LimitState {
    /// The events that took a place, the oldest first. Those without a live claim don't count.
    pub(super) holders: Vec<EventId>,
    /// The theoretical arrival time of the next start.
    pub(super) next_at: Option<Timestamp>,
    /// Up to when events have been given times to come back.
    pub(super) line_at: Option<Timestamp>,
    /// The rate by which both were set; with another one they begin anew.
    pub(super) rate: Option<Rate>,
}

impl LimitState {
    /// When the rate allows the next start, which may be long ago.
    pub(super) fn free_at(&self, rate: Rate) -> Option<Timestamp> {
        self.next_at.map(|next_at| next_at - pace(rate) * (rate.burst - 1))
    }

    /// Takes a start at this time.
    pub(super) fn pay(&mut self, rate: Rate, start: Timestamp) {
        self.next_at = Some(self.next_at.map_or(start, |next_at| next_at.max(start)) + pace(rate));
    }
}

/// The time between two starts.
pub(super) fn pace(rate: Rate) -> Duration {
    rate.period / rate.count
}

/// How far ahead the times lie that events beyond this rate get.
pub(super) fn line_max(rate: Rate) -> Duration {
    LINE_MAX.min(pace(rate) * LINE_EVENTS_MAX)
}

impl Limits {
    /// The limits of an event under their counted names, in the order in which they are taken.
    pub(super) fn of(&self, row: &LiveRow) -> Vec<(HeldLimit, NewLimit)> {
        let scope = &row.address().scope;
        let (canvas, handler) = (scope.canvas, LimitName::of_handler(scope));
        let mut counted = vec![
            HeldLimit { canvas, name: LimitName::of_canvas().as_str().to_owned() },
            HeldLimit { canvas, name: handler.as_str().to_owned() },
            HeldLimit { canvas: CanvasId::OF_ALL, name: handler.as_str().to_owned() },
        ];
        counted.extend(keys(row).iter().map(|key| HeldLimit { canvas, name: key.as_str().to_owned() }));
        counted.sort();
        counted.dedup();
        let defined = |held: HeldLimit| {
            let definition = self.definition(&held)?.definition;
            Some((held, definition))
        };
        counted.into_iter().filter_map(defined).collect()
    }

    /// Whether only the claim of limited events may take this one.
    pub(super) fn concern(&self, row: &LiveRow) -> bool {
        let scope = &row.address().scope;
        let of_all = [LimitName::of_canvas(), LimitName::of_handler(scope)];
        let is_defined =
            |canvas| of_all.iter().any(|name| self.defined.contains_key(&(canvas, name.clone())));
        !keys(row).is_empty() || is_defined(scope.canvas) || is_defined(CanvasId::OF_ALL)
    }

    /// The limit that counts under a name: of several the most exact name, and of that the canvas's
    /// own before the operator's. That of a handler counts where it is defined.
    pub(super) fn definition(&self, held: &HeldLimit) -> Option<&Limit> {
        let name: LimitName = held.name.parse().ok()?;
        let at = |canvas: CanvasId, name: &LimitName| self.defined.get(&(canvas, name.clone()));
        let either = |name: &LimitName| at(held.canvas, name).or_else(|| at(CanvasId::OF_ALL, name));
        if name.as_str().starts_with("handler:") {
            return at(held.canvas, &name);
        }
        let family = held.name.split_once(':').and_then(|(family, _)| family.parse().ok());
        either(&name).or_else(|| family.and_then(|family| either(&family)))
    }

    pub(super) fn state(&mut self, held: &HeldLimit) -> &mut LimitState {
        self.states.entry(held.clone()).or_default()
    }
}

/// The keys that an event's emit named.
fn keys(row: &LiveRow) -> &[LimitKey] {
    row.event.options.as_deref().map_or(&[], EventOptions::limits)
}
