//! Limits the bytes of values of emits that wait for Postgres: an emit that exceeds the limit is
//! refused immediately instead of waiting.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::event::NewEvent;
use crate::store::StoreError;

/// A limit on the bytes of values that wait, with a permit per byte.
#[derive(Clone)]
pub(super) struct ByteBudget {
    bytes: Arc<Semaphore>,
    half: u32,
}

impl ByteBudget {
    pub(super) fn new(most: usize) -> Self {
        let most = most.min(Semaphore::MAX_PERMITS).min(u32::MAX as usize);
        Self { bytes: Arc::new(Semaphore::new(most)), half: u32::try_from(most / 2).unwrap_or(u32::MAX) }
    }

    /// Takes room for the values of one call, which counts as half of the limit at most.
    pub(super) fn take(&self, bytes: usize) -> Result<OwnedSemaphorePermit, StoreError> {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX).min(self.half);
        Arc::clone(&self.bytes).try_acquire_many_owned(bytes).map_err(|_| StoreError::Overloaded)
    }
}

/// The events of one call, which ids the caller chose, and the permit for their bytes.
pub(super) struct CheckedEvents {
    pub(super) events: Vec<NewEvent>,
    pub(super) chosen: Vec<bool>,
    pub(super) permit: OwnedSemaphorePermit,
}

/// An event that waits for a statement, with its room. The room is released with the last clone,
/// even if the caller left before the statement was made.
#[derive(Clone)]
pub(super) struct AdmittedEvent {
    event: Arc<NewEvent>,
    _permit: Arc<OwnedSemaphorePermit>,
}

impl AdmittedEvent {
    pub(super) fn new(event: Arc<NewEvent>, permit: OwnedSemaphorePermit) -> Self {
        Self { event, _permit: Arc::new(permit) }
    }

    pub(super) fn bytes(&self) -> usize {
        self.event.value.len()
    }

    pub(super) fn events(admitted: &[Self]) -> Vec<Arc<NewEvent>> {
        admitted.iter().map(|admitted| Arc::clone(&admitted.event)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejects_emits_beyond_capacity_until_some_complete() {
        let budget = ByteBudget::new(100);
        let held = [budget.take(40), budget.take(40)].map(Result::unwrap);
        assert!(matches!(budget.take(21), Err(StoreError::Overloaded)));
        let small = budget.take(20).unwrap();
        drop(held);
        drop(budget.take(50).unwrap());
        drop(small);
    }

    #[test]
    fn a_call_larger_than_half_passes_beside_small_ones() {
        let budget = ByteBudget::new(100);
        let (_huge, _small) = (budget.take(1_000_000).unwrap(), budget.take(50).unwrap());
        assert!(budget.take(1).is_err());
    }
}
