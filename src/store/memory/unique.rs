//! Unique keys: what `wakeq.write_unique` does with the event that has a key.

use std::time::Duration;

use super::Tables;
use super::keys::KeyPlace;
use crate::event::{
    CanvasId, EventId, EventOptions, LimitKey, NewEvent, OnConflict, Timestamp, Unique, UniqueOutcome,
};
use crate::store::events::InsertOutcome;
use crate::store::kernel::StoreError;

impl Tables {
    pub(in crate::store) fn insert_unique(&mut self, event: &NewEvent) -> Result<InsertOutcome, StoreError> {
        let unique = event.unique.as_deref().ok_or(StoreError::Defect)?;
        let place = (event.address.scope.clone(), unique.text().to_owned());
        let holder = self.unique.taken.get(&place).copied();
        let Some(row) = holder.and_then(|id| self.events.get(&id)).filter(|row| row.has_key(&place.1)) else {
            return self.insert_free(event, unique, place);
        };
        let (id, waits) = (row.event.id, row.locked_at.is_none());
        // One that was cancelled while it ran, and runs no more, is as good as gone.
        let runs = row.locked_at.is_some_and(|at| at >= self.now - self.timing.lease);
        let loses_it = row.cancelled_by.is_some() && !runs || !waits && row.held_for().is_none();
        if loses_it {
            if let Some(row) = self.events.get_mut(&id) {
                row.event.unique = None;
            }
            return self.insert_free(event, unique, place);
        }
        if waits && unique.conflict() != OnConflict::Keep {
            return self.change_unique(id, event, unique, &place);
        }
        Ok(InsertOutcome::Stands { id, outcome: UniqueOutcome::Kept, due_soon: false, room: None })
    }

    /// Inserts an event whose key no live event has, unless the key is remembered.
    fn insert_free(
        &mut self,
        event: &NewEvent,
        unique: &Unique,
        place: KeyPlace,
    ) -> Result<InsertOutcome, StoreError> {
        let now = self.now;
        let remembered = self.unique.remembered.get(&place).filter(|(_, until)| *until > now);
        if let Some((id, _)) = remembered.copied() {
            return Ok(InsertOutcome::Stands {
                id,
                outcome: UniqueOutcome::Kept,
                due_soon: false,
                room: None,
            });
        }
        let inserted = InsertOutcome::only(self.insert(std::iter::once(event))?);
        self.remember_key(&place, event.id, event.due.at(now), unique.held_for());
        self.unique.taken.insert(place, event.id);
        Ok(inserted)
    }

    /// Replaces or postpones an event that waits.
    fn change_unique(
        &mut self,
        id: EventId,
        event: &NewEvent,
        unique: &Unique,
        place: &KeyPlace,
    ) -> Result<InsertOutcome, StoreError> {
        let (now, near) = (self.now, self.now + self.timing.horizon);
        let row = self.events.get(&id).ok_or(StoreError::Defect)?;
        let before = row.delay_until;
        let due = match unique.conflict().waits() {
            Some((by, at_most)) => before.max((now + by).min(row.enqueued_at + at_most)),
            None => event.due.at(now),
        };
        let notify_at = row.notify_at.map(|at| at.max(due).min(self.wake_at(due, self.timing.grace)));
        let held_for = row.held_for();
        // It has to ask its limits anew, of which nobody tells it.
        let is_anew = self.limits.put_off.contains_key(&id)
            && (due > now || keys(row.event.options.as_deref()) != keys(event.options.as_deref()));
        let mut room = None;
        if is_anew {
            let left = self.limits.waits.remove(&id).filter(|wait| wait.woken_at.is_some());
            room = left.map(|wait| format!("{}/{}", wait.held.canvas, wait.held.name));
            self.limits.put_off.remove(&id);
        }
        self.remember_key(place, id, due, held_for);
        if let Some(row) = self.events.get_mut(&id) {
            row.event.address.modifier = event.address.modifier.clone();
            row.event.value.clone_from(&event.value);
            row.event.metadata = event.metadata.clone();
            row.event.options = event.options.clone();
            (row.delay_until, row.notify_at, row.postponed_since) = (due, notify_at, None);
            (row.probes, row.retries, row.losses, row.last_error) = (0, 0, 0, None);
            row.checkpoint = None;
        }
        let outcome = match unique.conflict() {
            OnConflict::Postpone { .. } => UniqueOutcome::Postponed { due },
            OnConflict::Keep | OnConflict::Replace => UniqueOutcome::Replaced,
        };
        let due_soon = notify_at.is_some() && due <= near && (before > near || due < before || is_anew);
        Ok(InsertOutcome::Stands { id, outcome, due_soon, room })
    }

    fn remember_key(&mut self, place: &KeyPlace, id: EventId, due: Timestamp, held_for: Option<Duration>) {
        if let Some(time) = held_for.filter(|time| !time.is_zero()) {
            self.unique.remembered.insert(place.clone(), (id, due.max(self.now) + time));
        }
    }

    pub(in crate::store) fn unique_key(
        &self,
        canvas: CanvasId,
        id: EventId,
    ) -> Result<Option<String>, StoreError> {
        let row = self.events.get(&id).filter(|row| row.address().scope.canvas == canvas);
        Ok(row.and_then(|row| row.unique_key()).map(Into::into))
    }
}

/// The keys under which limits count an event with these options.
fn keys(options: Option<&EventOptions>) -> &[LimitKey] {
    options.map_or(&[], EventOptions::limits)
}
