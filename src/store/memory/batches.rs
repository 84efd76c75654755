//! Batches: what the trigger of the migrations and the statements of `batches` do.

use super::batch_row::{Batch, MemberEnd};
use super::{LiveRow, Tables};
use crate::event::{BatchCounts, BatchName, CanvasId, NewEvent, ended_value};
use crate::store::batches::{
    BatchClosing, BatchKey, BatchOpening, BatchProgress, BatchState, EndedBatch, LookedBatches,
    RegisteredBatch,
};
use crate::store::events::InsertOutcome;
use crate::store::kernel::StoreError;

impl Tables {
    pub(in crate::store) fn open_batch(
        &mut self,
        name: &BatchName,
        event: &NewEvent,
    ) -> Result<BatchOpening, StoreError> {
        let key = (event.address.scope.canvas, name.clone());
        if let Some(batch) = self.batches.get(&key) {
            let is_open = batch.closed_at.is_none() && batch.over_at.is_none();
            let is_same = (&batch.event.address, &batch.event.value) == (&event.address, &event.value);
            return Ok(if is_open && is_same { BatchOpening::Repeated } else { BatchOpening::Taken });
        }
        let batch = Batch {
            event: event.clone(),
            opened_at: self.now,
            closed_at: None,
            over_at: None,
            counts: BatchCounts::default(),
        };
        self.batches.insert(key, batch);
        Ok(BatchOpening::Opened)
    }

    pub(in crate::store) fn close_batch(
        &mut self,
        canvas: CanvasId,
        name: &BatchName,
    ) -> Result<BatchClosing, StoreError> {
        let now = self.now;
        let Some(batch) = self.batches.get_mut(&(canvas, name.clone())) else {
            return Ok(BatchClosing::Missing);
        };
        if batch.closed_at.is_some() || batch.over_at.is_some() {
            return Ok(BatchClosing::Repeated);
        }
        batch.closed_at = Some(now);
        Ok(BatchClosing::Closed)
    }

    pub(in crate::store) fn batch(
        &self,
        canvas: CanvasId,
        name: &BatchName,
    ) -> Result<Option<BatchProgress>, StoreError> {
        let key = (canvas, name.clone());
        let Some(batch) = self.batches.get(&key) else { return Ok(None) };
        let left = self.members(&key).count() as u64;
        let state = BatchState::of(batch.closed_at.is_some(), batch.over_at.is_some(), false);
        let registered = RegisteredBatch {
            name: name.clone(),
            state,
            event: batch.event.id,
            address: batch.event.address.clone(),
            opened_at: batch.opened_at,
            closed_at: batch.closed_at,
            over_at: batch.over_at,
            counts: (state == BatchState::Ended).then_some(batch.counts),
        };
        Ok(Some(BatchProgress { batch: registered, counts: batch.counts, left }))
    }

    pub(in crate::store) fn are_over(&self, batches: &[BatchKey]) -> Result<Vec<bool>, StoreError> {
        Ok(batches.iter().map(|batch| self.is_over(batch)).collect())
    }

    pub(in crate::store) fn end_batch(&mut self, key: &BatchKey) -> Result<Option<EndedBatch>, StoreError> {
        let Some(batch) = self.batches.get(key).filter(|_| self.is_over(key)) else { return Ok(None) };
        let value = ended_value(&key.1, batch.counts, &batch.event.value);
        let event = NewEvent { value, ..batch.event.clone() };
        let inserted = InsertOutcome::only(self.insert(std::iter::once(&event))?);
        let now = self.now;
        if let Some(batch) = self.batches.get_mut(key) {
            batch.over_at = Some(now);
        }
        Ok(Some(EndedBatch { event, inserted }))
    }

    pub(in crate::store) fn look_at_batches(&self) -> Result<LookedBatches, StoreError> {
        let over = self.batches.keys().filter(|key| self.is_over(key)).cloned().collect();
        Ok(LookedBatches { over, ..LookedBatches::default() })
    }

    /// Each batch has one sum in memory.
    pub(in crate::store) fn sum_batch_ends(&self, _batch: &BatchKey) -> Result<bool, StoreError> {
        Ok(false)
    }

    /// Each batch has one sum in memory.
    pub(in crate::store) fn forget_batch_ends(&self, _batch: &BatchKey) -> Result<bool, StoreError> {
        Ok(false)
    }

    pub(super) fn has_open_batches(&self) -> bool {
        self.batches.values().any(|batch| batch.over_at.is_none())
    }

    /// Refuses a member of a batch that is over, or was never opened.
    pub(super) fn check_member(&self, event: &NewEvent) -> Result<(), StoreError> {
        let Some(key) = batch_of(event) else { return Ok(()) };
        let is_open = self.batches.get(&key).is_some_and(|batch| batch.over_at.is_none());
        if is_open { Ok(()) } else { Err(StoreError::NoBatch(key.1)) }
    }

    /// Counts the end of an event, if it is a member.
    pub(super) fn leave_batch(&mut self, row: &LiveRow, end: MemberEnd) {
        let Some(key) = batch_of(&row.event) else { return };
        let Some(batch) = self.batches.get_mut(&key) else { return };
        let counts = &mut batch.counts;
        match end {
            MemberEnd::Completed => counts.completed += 1,
            MemberEnd::Dead => counts.dead += 1,
            MemberEnd::Cancelled => counts.cancelled += 1,
        }
    }

    fn is_over(&self, key: &BatchKey) -> bool {
        let is_closed = |batch: &Batch| batch.closed_at.is_some() && batch.over_at.is_none();
        self.batches.get(key).is_some_and(is_closed) && self.members(key).next().is_none()
    }

    fn members<'a>(&'a self, key: &'a BatchKey) -> impl Iterator<Item = &'a LiveRow> {
        self.events.values().filter(move |row| batch_of(&row.event).as_ref() == Some(key))
    }
}

fn batch_of(event: &NewEvent) -> Option<BatchKey> {
    let name = event.options.as_deref()?.batch()?;
    Some((event.address.scope.canvas, name.clone()))
}
