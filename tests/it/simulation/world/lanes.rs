//! The statements that order depends on: whose turn it is, what wakes the next event, which lanes
//! are halted.

use wakeq::EventId;
use wakeq::machine::Turn;

use super::{Defect, World};

impl World {
    /// The handler and the object of an event, if it has an object.
    pub(crate) fn lane_of(&self, id: EventId) -> Option<(String, String)> {
        let record = &self.records[&id];
        Some((record.handler.clone(), record.object.clone()?))
    }

    /// The first remaining event of a lane.
    pub(crate) fn first_of(&self, lane: &(String, String)) -> Option<EventId> {
        self.rows.keys().copied().find(|id| self.lane_of(*id).as_ref() == Some(lane))
    }

    pub(crate) fn turn(&self, id: EventId) -> Turn {
        let Some(lane) = self.lane_of(id) else { return Turn::First };
        match (self.halted.contains(&lane), self.first_of(&lane) == Some(id)) {
            (true, _) => Turn::Halted,
            (false, true) => Turn::First,
            (false, false) => Turn::Behind,
        }
    }

    /// The event of a lane that may be woken now.
    fn wakeable(&self, lane: &(String, String)) -> Option<EventId> {
        let first = self.first_of(lane).filter(|_| !self.halted.contains(lane))?;
        let row = &self.rows[&first];
        let runs = row.locked_at.is_some_and(|locked_at| locked_at > self.now - self.timing.lease);
        (!runs && row.delay_until <= self.now + self.timing.horizon).then_some(first)
    }

    /// Part of every removal: restores the promise of the next event.
    pub(super) fn arm_next(&mut self, removed: EventId) {
        let next = self.lane_of(removed).and_then(|lane| self.first_of(&lane));
        if let Some(next) = next.filter(|_| self.defect != Some(Defect::RemoveWithoutArming)) {
            self.arm(next);
        }
    }

    fn arm(&mut self, id: EventId) {
        let notify_at = self.wake_at(self.rows[&id].delay_until, self.timing.grace);
        if let Some(row) = self.rows.get_mut(&id) {
            (row.notify_at, row.probes) = (Some(notify_at), 0);
        }
    }

    /// A defective removal: it looks for the next event in its own snapshot, before it is
    /// committed.
    pub(super) fn leave(&mut self, id: EventId) -> bool {
        let lane = self.lane_of(id).filter(|_| self.defect == Some(Defect::HandOverInTheRemoval));
        let Some(lane) = lane else { return false };
        let behind = |other: &EventId| *other != id && self.lane_of(*other).as_ref() == Some(&lane);
        let next = self.rows.keys().copied().find(behind);
        self.leaving.insert(id, next);
        true
    }

    /// Wakes the event whose turn it is after this one was removed.
    pub(crate) fn hand_over(&mut self, removed: EventId) {
        let next = match self.leaving.remove(&removed) {
            Some(seen) => {
                self.rows.remove(&removed);
                seen
            }
            None => self.lane_of(removed).and_then(|lane| self.wakeable(&lane)),
        };
        if let Some(next) = next.filter(|next| self.rows.contains_key(next)) {
            self.publish(&[next]);
        }
    }

    /// An operator resumes a halted lane; then its first event is woken.
    pub(crate) fn skip(&mut self, handler: &str, object: &str) {
        let lane = (handler.to_owned(), object.to_owned());
        if !self.halted.remove(&lane) || self.defect == Some(Defect::SkipWithoutWaking) {
            return;
        }
        if let Some(first) = self.first_of(&lane) {
            self.arm(first);
        }
        if let Some(first) = self.wakeable(&lane) {
            self.publish(&[first]);
        }
    }

    /// Invariant for events that were turned away because it was not their turn: an earlier event
    /// still has to end, or a worker is about to wake them, or, if processes may die, the probe
    /// wakes them within the grace. `handing_over`: the events whose removal some worker has yet to
    /// follow up.
    pub(crate) fn check_turned_away(&mut self, handing_over: &[EventId], processes_die: bool) {
        let mut found = Vec::new();
        for (id, record) in self.records.iter().filter(|(_, record)| record.turned_away) {
            let (Some(row), Some(lane)) = (self.rows.get(id), self.lane_of(*id)) else { continue };
            let is_followed_up =
                handing_over.iter().any(|removed| self.lane_of(*removed).as_ref() == Some(&lane));
            let is_promised = processes_die
                && row.notify_at.is_some_and(|at| at <= self.now.max(row.delay_until) + self.timing.grace)
                || row.delay_until > self.now + self.timing.horizon;
            if self.turn(*id) == Turn::First && !is_followed_up && !is_promised {
                found.push(format!("it is the turn of {}, and nobody wakes it", record.label));
            }
        }
        for what in found {
            self.violated(what);
        }
    }
}
