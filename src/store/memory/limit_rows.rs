//! The rows of limits: definitions, what is in use of each counted name, and which events wait.
//! Resolves names, and decides nothing about events.

use std::collections::BTreeMap;
use std::time::Duration;

use super::LiveRow;
use crate::event::{
    CanvasId, EventId, EventOptions, HeldLimit, Limit, LimitKey, LimitName, NewLimit, Rate, Timestamp,
};

/// How long a place is kept for an event that was woken for it.
pub(super) const WAKE_KEPT: Duration = Duration::from_secs(10);

/// The tables of limits.
#[derive(Debug, Default)]
pub(super) struct Limits {
    pub(super) defined: BTreeMap<(CanvasId, LimitName), Limit>,
    pub(super) states: BTreeMap<HeldLimit, LimitState>,
    /// Of each counted name, the events that wait, in their order.
    pub(super) waits: BTreeMap<HeldLimit, BTreeMap<WaitPlace, Option<Timestamp>>>,
}

/// When an event that waits was due, and its id. Beside it stands when it was woken.
pub(super) type WaitPlace = (Timestamp, EventId);

/// What is in use under a counted name.
#[derive(Clone, Debug, Default)]
pub(super) struct LimitState {
    /// The events that took a place, the oldest first. Those without a live claim don't count.
    pub(super) holders: Vec<EventId>,
    /// The theoretical arrival time of the next start.
    pub(super) next_at: Option<Timestamp>,
}

impl LimitState {
    /// The earliest start that the rate allows.
    pub(super) fn earliest(&self, rate: Rate, now: Timestamp) -> Timestamp {
        let ahead = interval(rate) * (rate.burst - 1);
        self.next_at.map_or(now, |next_at| (next_at - ahead).max(now))
    }

    /// Reserves a start that is not before the earliest one.
    pub(super) fn reserve(&mut self, rate: Rate, start: Timestamp) {
        self.next_at = Some(self.next_at.map_or(start, |next_at| next_at.max(start)) + interval(rate));
    }
}

/// The time between two starts.
fn interval(rate: Rate) -> Duration {
    rate.period / rate.count
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
        !keys(row).is_empty() || !self.of(row).is_empty()
    }

    /// The limit that counts under a name. A canvas's own one is in place of the operator's, except
    /// that the operator's limit of a handler counts all canvases together.
    pub(super) fn definition(&self, held: &HeldLimit) -> Option<&Limit> {
        let name: LimitName = held.name.parse().ok()?;
        let own = |name: &LimitName| self.defined.get(&(held.canvas, name.clone()));
        let usual = |name: &LimitName| self.defined.get(&(CanvasId::OF_ALL, name.clone()));
        if name == LimitName::of_canvas() {
            return own(&name).or_else(|| usual(&name));
        }
        if !name.is_key() {
            return own(&name);
        }
        let family = held.name.split_once(':').and_then(|(family, _)| family.parse().ok());
        let exact = own(&name).or_else(|| usual(&name));
        exact.or_else(|| family.and_then(|family| own(&family).or_else(|| usual(&family))))
    }

    /// The counted name under which an event waits.
    pub(super) fn waits_under(&self, id: EventId) -> Option<(HeldLimit, WaitPlace, Option<Timestamp>)> {
        self.waits.iter().find_map(|(held, waits)| {
            let (place, woken) = waits.iter().find(|((_, waiting), _)| *waiting == id)?;
            Some((held.clone(), *place, *woken))
        })
    }

    /// Lets an event wait under one name only, or under none. If it waits there already, it keeps
    /// its place.
    pub(super) fn wait(&mut self, id: EventId, under: Option<(&HeldLimit, Timestamp)>) {
        let stays = |held: &HeldLimit| under.is_some_and(|(meant, _)| meant == held);
        for (held, waits) in &mut self.waits {
            if !stays(held) {
                waits.retain(|(_, waiting), _| *waiting != id);
            }
        }
        if let Some((held, due)) = under {
            let waits = self.waits.entry(held.clone()).or_default();
            waits.retain(|(since, waiting), _| *waiting != id || *since == due);
            waits.insert((due, id), None);
        }
        self.waits.retain(|_, waits| !waits.is_empty());
    }

    pub(super) fn state(&mut self, held: &HeldLimit) -> &mut LimitState {
        self.states.entry(held.clone()).or_default()
    }
}

/// The keys that an event's emit named.
fn keys(row: &LiveRow) -> &[LimitKey] {
    row.event.options.as_deref().map_or(&[], EventOptions::limits)
}
