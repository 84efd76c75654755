//! The dead events, and single values.

use super::{Dead, LiveRow, Tables};
use crate::event::{Actor, CanvasId, EventId, Notification, Timestamp};
use crate::store::events::{BULK_PAGE, DeadEvent, DeadFilter, RedriveOutcome};
use crate::store::kernel::StoreError;

impl Tables {
    pub(in crate::store) fn dead_events(
        &self,
        filter: &DeadFilter,
        _copies: bool,
        after: Option<(Timestamp, EventId)>,
        limit: i64,
    ) -> Result<Vec<DeadEvent>, StoreError> {
        let mut meant = self.meant(filter);
        meant.retain(|position| after.is_none_or(|after| *position < after));
        let latest = meant.iter().rev().take(usize::try_from(limit).unwrap_or(0));
        Ok(latest.filter_map(|(_, id)| Some(self.shown(*id, self.dead.get(id)?))).collect())
    }

    /// The dead events that match a filter, oldest first.
    fn meant(&self, filter: &DeadFilter) -> Vec<(Timestamp, EventId)> {
        let meant = self.dead.iter().filter(|(id, dead)| {
            let scope = &dead.row.address().scope;
            scope.canvas == filter.canvas
                && filter
                    .scope
                    .as_ref()
                    .is_none_or(|meant| (&meant.module, &meant.name) == (&scope.module, &scope.name))
                && filter.id.is_none_or(|meant| meant == **id)
                && filter.since.is_none_or(|since| dead.died_at >= since)
                && filter.before.is_none_or(|before| dead.died_at < before)
        });
        let mut meant: Vec<_> = meant.map(|(id, dead)| (dead.died_at, *id)).collect();
        meant.sort_unstable();
        meant
    }

    pub(in crate::store) fn dead_event(
        &self,
        canvas: CanvasId,
        id: EventId,
    ) -> Result<Option<DeadEvent>, StoreError> {
        let dead = self.dead.get(&id).filter(|dead| dead.row.address().scope.canvas == canvas);
        Ok(dead.map(|dead| self.shown(id, dead)))
    }

    pub(in crate::store) fn count_dead(
        &self,
        filter: &DeadFilter,
        (back, _copies): (bool, bool),
        limit: u64,
    ) -> Result<u64, StoreError> {
        let meant = self.meant(filter).into_iter().filter(|(_, id)| !(back && self.events.contains_key(id)));
        Ok((meant.count() as u64).min(limit))
    }

    pub(in crate::store) fn redrive_page(
        &mut self,
        filter: &DeadFilter,
        _copies: bool,
        (skip, limit): (u64, u64),
        _actor: &Actor,
    ) -> Result<RedriveOutcome, StoreError> {
        let meant = self.meant(filter).into_iter().filter(|(_, id)| !self.events.contains_key(id));
        let (skip, limit) =
            (usize::try_from(skip).unwrap_or(usize::MAX), usize::try_from(limit).unwrap_or(usize::MAX));
        let page: Vec<EventId> = meant.skip(skip).take(limit).map(|(_, id)| id).collect();
        let back = self.bring_back(&page);
        Ok(RedriveOutcome { back, looked: page.len() as u64 })
    }

    /// Brings these dead events back.
    pub(super) fn bring_back(&mut self, page: &[EventId]) -> Vec<Notification> {
        let notify_at = self.wake_at(self.now, self.timing.grace);
        let mut back = Vec::new();
        for id in page {
            let Some(Dead { mut row, .. }) = self.dead.remove(id) else { continue };
            let place = self.place_again(*id, &row);
            // With its end it has lost its key.
            row.event.unique = None;
            row.event.options = row.event.options.and_then(|options| options.without_batch()).map(Box::new);
            let row = LiveRow {
                delay_until: self.now,
                notify_at: Some(notify_at),
                locked_at: None,
                worker: None,
                probes: 0,
                losses: 0,
                retries: 0,
                postponed_since: None,
                cancelled_by: None,
                place,
                ..row
            };
            back.push(row.notification());
            self.events.insert(*id, row);
        }
        back
    }

    pub(in crate::store) fn delete_dead_page(
        &mut self,
        filter: &DeadFilter,
        _copies: bool,
        _actor: &Actor,
    ) -> Result<u64, StoreError> {
        let page: Vec<_> = self.meant(filter).into_iter().take(BULK_PAGE as usize).collect();
        for (_, id) in &page {
            self.dead.remove(id);
        }
        Ok(page.len() as u64)
    }

    /// The first of these ids that the canvas knows.
    pub(in crate::store) fn known_event(
        &self,
        canvas: CanvasId,
        meant: [EventId; 2],
        _copies: bool,
    ) -> Result<Option<EventId>, StoreError> {
        let knows = |id: &EventId| {
            let row = self.events.get(id).or_else(|| self.dead.get(id).map(|dead| &dead.row));
            row.is_some_and(|row| row.address().scope.canvas == canvas)
                || self.chosen.get(id).is_some_and(|chosen| chosen.scope.canvas == canvas)
                || self.kept(canvas, *id).is_some()
        };
        Ok(meant.into_iter().find(knows))
    }

    pub(in crate::store) fn value(
        &self,
        canvas: CanvasId,
        id: EventId,
    ) -> Result<Option<String>, StoreError> {
        let row = self.events.get(&id).or_else(|| self.dead.get(&id).map(|dead| &dead.row));
        Ok(row.filter(|row| row.address().scope.canvas == canvas).map(|row| row.event.value.clone()))
    }

    fn shown(&self, id: EventId, dead: &Dead) -> DeadEvent {
        dead.shown(self.halted.values().any(|halted| halted.event == id))
    }
}
