//! The history of events: attempts, and events that are kept after they have ended. Nothing leaves
//! it: reads hide what is no longer kept.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use super::row::Ended;
use super::{LiveRow, Tables};
use crate::event::{CanvasId, EndedFilter, EndedOutcome, EventId, EventOptions, Keep, Timestamp};
use crate::store::events::{AttemptEnd, AttemptRecord, EndedEvent, FoundEnded, KeptEnd};
use crate::store::kernel::StoreError;

/// Maximum number of attempts of an event that are kept.
const ATTEMPTS_MAX: usize = 100;
/// Longest error of an attempt, in characters.
const ERROR_MAX: usize = 1000;
/// Shortest time for which an event is kept at all.
const KEPT_MIN: Duration = Duration::from_secs(1);

impl Tables {
    pub(in crate::store) fn complete_kept(&mut self, ends: &[Arc<KeptEnd>]) -> Result<Vec<bool>, StoreError> {
        let completed = |kept: &Arc<KeptEnd>| match self.remove_owned(&kept.claim) {
            Some(row) => {
                self.keep_ended(&row, kept.end.outcome(), &kept.end, None);
                true
            }
            None => false,
        };
        Ok(ends.iter().map(completed).collect())
    }

    /// Keeps an event that was removed, as long as its emit asks for, or else its end.
    pub(super) fn keep_ended(
        &mut self,
        row: &LiveRow,
        outcome: EndedOutcome,
        end: &AttemptEnd,
        ended_by: Option<&str>,
    ) {
        let asked = row.event.options.as_deref().and_then(EventOptions::keep);
        let keep = asked.map_or(end.keep, |keep| keep.time(outcome)).min(Keep::MAX);
        if keep.is_zero() {
            return;
        }
        let ran = end.took.map(|took| (self.now - took, took));
        let event = EndedEvent {
            id: row.event.id,
            address: row.address().clone(),
            outcome,
            error: end.error.clone().or_else(|| row.last_error.clone()),
            ended_by: ended_by.map(ToOwned::to_owned),
            enqueued_at: row.enqueued_at,
            due_at: row.delay_until,
            ran,
            ended_at: self.now,
            kept_until: self.now + keep.max(KEPT_MIN),
            worker: row.worker.clone(),
            claims: row.claims.unsigned_abs(),
            retries: row.retries,
            losses: row.losses,
            has_result: end.result.is_some(),
            metadata: row.event.metadata.clone(),
            options: row.event.options.clone(),
            place: row.place.clone(),
        };
        let value = row.event.value.clone();
        self.ended.insert(row.event.id, Ended { event, value, result: end.result.clone() });
    }

    /// Notes an attempt at an event, which has its claim still.
    pub(super) fn note_attempt(
        &mut self,
        row: &LiveRow,
        outcome: &str,
        took: Option<Duration>,
        error: Option<&str>,
    ) {
        let Some(took) = took else { return };
        let attempts = self.attempts.entry((row.address().scope.canvas, row.event.id)).or_default();
        attempts.push(AttemptRecord {
            number: row.claims.unsigned_abs(),
            outcome: outcome.to_owned(),
            worker: row.worker.clone(),
            started_at: self.now - took,
            took,
            error: error.map(|error| error.chars().take(ERROR_MAX).collect()),
        });
        let beyond = attempts.len().saturating_sub(ATTEMPTS_MAX);
        attempts.drain(..beyond);
    }

    pub(in crate::store) fn attempts(
        &self,
        canvas: CanvasId,
        id: EventId,
    ) -> Result<Vec<AttemptRecord>, StoreError> {
        Ok(self.attempts.get(&(canvas, id)).cloned().unwrap_or_default())
    }

    /// The ended event of the canvas, while it is kept.
    pub(super) fn kept(&self, canvas: CanvasId, id: EventId) -> Option<&Ended> {
        let ended = self.ended.get(&id)?;
        let is_kept = ended.event.address.scope.canvas == canvas && ended.event.kept_until > self.now;
        is_kept.then_some(ended)
    }

    pub(in crate::store) fn ended_event(
        &self,
        canvas: CanvasId,
        id: EventId,
    ) -> Result<Option<EndedEvent>, StoreError> {
        Ok(self.kept(canvas, id).map(|ended| ended.event.clone()))
    }

    pub(in crate::store) fn search_ended(
        &self,
        filter: &EndedFilter,
        after: Option<(Timestamp, EventId)>,
        (look, limit): (i64, i64),
        _shown: bool,
    ) -> Result<Vec<FoundEnded>, StoreError> {
        let is_in_range = |event: &EndedEvent| {
            let scope = &event.address.scope;
            scope.canvas == filter.canvas
                && event.kept_until > self.now
                && filter.scope.as_ref().is_none_or(|meant| meant == scope)
                && filter.outcome.is_none_or(|outcome| outcome == event.outcome)
                && filter.ended_since.is_none_or(|since| event.ended_at >= since)
                && filter.ended_before.is_none_or(|before| event.ended_at < before)
                && after.is_none_or(|after| (event.ended_at, event.id) < after)
        };
        let mut looked: Vec<_> = self.ended.values().filter(|ended| is_in_range(&ended.event)).collect();
        looked.sort_unstable_by_key(|ended| Reverse((ended.event.ended_at, ended.event.id)));
        let has_more = looked.len() > usize::try_from(look).unwrap_or(0);
        looked.truncate(usize::try_from(look).unwrap_or(0));
        let count = looked.len();
        let (of_event, of_result) = (filter.of_event(), filter.of_result());
        let found = looked.into_iter().zip(1..).map(|(ended, number)| FoundEnded {
            event: ended.event.clone(),
            is_meant: ended.meets(&of_event, &of_result),
            number: i64::try_from(number).unwrap_or(i64::MAX),
            last: (number == count).then_some(has_more),
        });
        let found = found.filter(|found| found.is_meant || found.last.is_some());
        Ok(found.take(usize::try_from(limit).unwrap_or(0)).collect())
    }

    pub(in crate::store) fn ended_value(
        &self,
        canvas: CanvasId,
        id: EventId,
    ) -> Result<Option<(String, Option<String>)>, StoreError> {
        Ok(self.kept(canvas, id).map(|ended| (ended.value.clone(), ended.result.clone())))
    }
}
