//! The list of the events that have not ended, and which of them a filter selects.

use super::{LiveRow, Tables};
use crate::event::{
    CanvasId, EventFacts, EventFilter, EventId, EventState, Name, RuleKind, Schedule, Timestamp, Turn,
};
use crate::store::events::{ListedEvent, Position};
use crate::store::kernel::StoreError;

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
        let (module, name) = filter.handler();
        let mut rows: Vec<&LiveRow> = self
            .events
            .values()
            .filter(|row| {
                let scope = &row.address().scope;
                scope.canvas == canvas
                    && module.as_ref().is_none_or(|module| *module == scope.module)
                    && name.as_ref().is_none_or(|name| *name == scope.name)
            })
            .collect();
        rows.sort_by(|one, other| key(one).cmp(&key(other)));
        let after =
            after.map(|after| (after.module.as_str(), after.name.as_str(), after.delay_until, after.id));
        rows.retain(|row| after.is_none_or(|after| key(row) > after));
        let looked = rows.len().min(usize::try_from(look).unwrap_or(0));
        let listed = rows.into_iter().take(looked).zip(1..).map(|(row, number)| {
            let last = (number == looked).then_some(i64::try_from(looked) == Ok(look));
            self.listed(row, filter, i64::try_from(number).unwrap_or(i64::MAX), last)
        });
        let listed = listed.filter(|event| event.is_meant || event.last.is_some());
        Ok(listed.take(usize::try_from(limit).unwrap_or(0)).collect())
    }

    fn listed(&self, row: &LiveRow, filter: &EventFilter, number: i64, last: Option<bool>) -> ListedEvent {
        ListedEvent {
            id: row.event.id,
            address: row.address().clone(),
            schedule: self.schedule(row),
            enqueued_at: row.enqueued_at,
            retries: row.retries,
            losses: row.losses,
            place: row.place.clone(),
            worker: self.worker_of(row).cloned(),
            copy_of: None,
            is_meant: self.meets(row, filter),
            number,
            last,
        }
    }

    /// Whether an event meets a filter.
    pub(super) fn meets(&self, row: &LiveRow, filter: &EventFilter) -> bool {
        filter.matches(&EventFacts {
            address: row.address(),
            state: self.state(row, self.schedule(row)),
            worker: self.worker_of(row),
            tags: &[],
            emitted: row.enqueued_at,
            due: Some(row.delay_until),
            died: None,
            error: row.last_error.as_deref(),
            value: &row.event.value,
        })
    }

    /// The worker that has it, while its lease stands.
    fn worker_of<'r>(&self, row: &'r LiveRow) -> Option<&'r Name> {
        row.worker.as_ref().filter(|_| !self.is_free(row))
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
