//! What a filter selects: of the events that have not ended, and of the dead ones.

use super::{LiveRow, Tables};
use crate::event::{
    Actor, CanvasId, EventFacts, EventFilter, EventId, EventOptions, EventState, RuleKind, Schedule, Tag,
    Timestamp, Turn,
};
use crate::store::events::{CountedEvents, DeadEvent, FoundDead, ListedEvent, Position};
use crate::store::kernel::StoreError;

/// Longest JSON of an event's options, in bytes.
const OPTIONS_BYTES_MAX: usize = 4096;

impl Tables {
    /// There are no queues in memory.
    pub(in crate::store) fn events(
        &self,
        canvas: CanvasId,
        filter: &EventFilter,
        _copies: bool,
        after: Option<&Position>,
        (look, limit): (i64, i64),
    ) -> Result<Vec<ListedEvent>, StoreError> {
        let (module, name) = filter.range();
        let waits_for = filter.limit_in_index().filter(|_| filter.object.is_none() && filter.batch.is_none());
        let mut rows: Vec<&LiveRow> = self
            .events
            .values()
            .filter(|row| {
                let scope = &row.address().scope;
                scope.canvas == canvas
                    && module.as_ref().is_none_or(|module| *module == scope.module)
                    && name.as_ref().is_none_or(|name| *name == scope.name)
                    && filter.object.as_ref().is_none_or(|object| row.object() == Some(object))
                    && filter.batch.as_ref().is_none_or(|batch| row.batch() == Some(batch))
                    && waits_for.is_none_or(|name| self.waits_for_limit(row) == Some(name.as_str()))
            })
            .collect();
        if filter.object.is_some() {
            let prev = |row: &LiveRow| row.place.as_ref().map(|place| place.link.prev);
            rows.sort_by_key(|row| prev(row));
            rows.retain(|row| after.is_none_or(|after| prev(row) > after.prev));
        } else if filter.batch.is_some() || waits_for.is_some() {
            rows.sort_by_key(|row| row.event.id);
            rows.retain(|row| after.is_none_or(|after| row.event.id > after.id));
        } else {
            rows.sort_by(|one, other| key(one).cmp(&key(other)));
            let after =
                after.map(|after| (after.module.as_str(), after.name.as_str(), after.delay_until, after.id));
            rows.retain(|row| after.is_none_or(|after| key(row) > after));
        }
        let looked = rows.len().min(usize::try_from(look).unwrap_or(0));
        let listed = rows.into_iter().take(looked).zip(1..).map(|(row, number)| {
            let last = (number == looked).then_some(i64::try_from(looked) == Ok(look));
            self.listed(row, filter, i64::try_from(number).unwrap_or(i64::MAX), last)
        });
        let listed = listed.filter(|event| event.is_meant || event.last.is_some());
        Ok(listed.take(usize::try_from(limit).unwrap_or(0)).collect())
    }

    pub(in crate::store) fn count_by_index(
        &self,
        canvas: CanvasId,
        filter: &EventFilter,
        copies: bool,
        after: Option<&Position>,
        look: i64,
    ) -> Result<CountedEvents, StoreError> {
        let listed = self.events(canvas, filter, copies, after, (look, look.saturating_add(1)))?;
        let last = listed.last();
        Ok(CountedEvents {
            count: listed.iter().filter(|event| event.is_meant).count() as u64,
            looked_at: last.map_or(0, |last| last.number.unsigned_abs()),
            last: last.filter(|last| last.last == Some(true)).map(ListedEvent::position),
        })
    }

    pub(in crate::store) fn search_dead(
        &self,
        canvas: CanvasId,
        filter: &EventFilter,
        _copies: bool,
        after: Option<(Timestamp, EventId)>,
        (look, limit): (i64, i64),
    ) -> Result<Vec<FoundDead>, StoreError> {
        let mut looked: Vec<_> = self
            .dead
            .iter()
            .filter(|(_, dead)| dead.row.address().scope.canvas == canvas)
            .map(|(id, dead)| ((dead.died_at, *id), dead))
            .filter(|(position, _)| after.is_none_or(|after| *position < after))
            .collect();
        looked.sort_by(|(one, _), (other, _)| other.cmp(one));
        let has_more = looked.len() > usize::try_from(look).unwrap_or(0);
        looked.truncate(usize::try_from(look).unwrap_or(0));
        let count = looked.len();
        let found = looked.into_iter().zip(1..).map(|(((died_at, id), dead), number)| FoundDead {
            id,
            died_at,
            is_meant: filter.matches(&dead.facts()),
            number: i64::try_from(number).unwrap_or(i64::MAX),
            last: (number == count).then_some(has_more),
        });
        let found = found.filter(|event| event.is_meant || event.last.is_some());
        Ok(found.take(usize::try_from(limit).unwrap_or(0)).collect())
    }

    pub(in crate::store) fn set_tags(
        &mut self,
        canvas: CanvasId,
        id: EventId,
        tags: &[Tag],
        _actor: &Actor,
    ) -> Result<Option<bool>, StoreError> {
        let row = match self.events.get_mut(&id) {
            Some(row) => Some(row),
            None => self.dead.get_mut(&id).map(|dead| &mut dead.row),
        };
        let Some(row) = row.filter(|row| row.address().scope.canvas == canvas) else { return Ok(None) };
        let bytes = |options: Option<&EventOptions>| options.map_or(0, |options| options.json().len());
        let tagged = EventOptions::tagged(row.event.options.clone(), tags);
        let fits = bytes(tagged.as_deref()) <= bytes(row.event.options.as_deref()).max(OPTIONS_BYTES_MAX);
        if fits {
            row.event.options = tagged;
        }
        Ok(Some(fits))
    }

    pub(in crate::store) fn dead_of(
        &self,
        canvas: CanvasId,
        ids: &[EventId],
    ) -> Result<Vec<DeadEvent>, StoreError> {
        let mut found = Vec::new();
        for id in ids {
            found.extend(self.dead_event(canvas, *id)?);
        }
        Ok(found)
    }

    fn listed(&self, row: &LiveRow, filter: &EventFilter, number: i64, last: Option<bool>) -> ListedEvent {
        let facts = self.facts(row);
        ListedEvent {
            id: row.event.id,
            address: row.address().clone(),
            schedule: self.schedule(row),
            enqueued_at: row.enqueued_at,
            retries: row.retries,
            losses: row.losses,
            place: row.place.clone(),
            worker: facts.worker.cloned(),
            copy_of: None,
            tags: facts.tags.to_vec(),
            is_meant: filter.matches(&facts),
            waits: self.waits(row),
            number,
            last,
        }
    }

    /// What a filter looks at.
    pub(super) fn facts<'r>(&'r self, row: &'r LiveRow) -> EventFacts<'r> {
        EventFacts {
            address: row.address(),
            state: self.state(row, self.schedule(row)),
            worker: row.worker.as_ref().filter(|_| !self.is_free(row)),
            waits_for: self.waits_for_limit(row),
            tags: row.tags(),
            object: row.object(),
            batch: row.batch(),
            emitted: row.enqueued_at,
            due: Some(row.delay_until),
            died: None,
            group: None,
            error: row.last_error.as_deref(),
            value: &row.event.value,
        }
    }

    /// The counted name of the limit that it waits for.
    fn waits_for_limit(&self, row: &LiveRow) -> Option<&str> {
        self.limits.waits.get(&row.event.id).map(|wait| wait.held.name.as_str())
    }

    /// As the statement of Postgres says it.
    fn state(&self, row: &LiveRow, schedule: Schedule) -> EventState {
        match schedule.turn {
            Turn::Halted => EventState::Halted,
            Turn::Behind => EventState::Behind,
            Turn::Held | Turn::Passed => EventState::Held,
            Turn::First if row.delay_until > self.now => EventState::Delayed,
            Turn::First if !self.is_free(row) => EventState::Running,
            Turn::First => match schedule.rule {
                Some(RuleKind::Block) => EventState::Blocked,
                Some(RuleKind::Pause) => EventState::Paused,
                None if self.waits(row) => EventState::Limited,
                None => EventState::Ready,
            },
        }
    }
}

/// The order of the list.
pub(super) fn key(row: &LiveRow) -> (&str, &str, Timestamp, EventId) {
    let scope = &row.address().scope;
    (scope.module.as_str(), scope.name.as_str(), row.delay_until, row.event.id)
}
