//! Events are refused before anything is written if they exceed a quota of their canvas, or name a
//! limit at its `waiting_max`.

use super::Queue;
use crate::event::{CanvasId, EventOptions, LimitKey, NewEvent};
use crate::store::{Additions, NewState, Store, StoreError};

impl Queue {
    /// Whether quotas apply to this queue.
    #[doc(hidden)]
    pub fn has_quotas(&self) -> bool {
        self.config.quotas
    }

    /// Refuses events that exceed a quota of their canvas, before anything is written.
    pub(super) async fn admit(&self, events: &[NewEvent]) -> Result<(), StoreError> {
        self.admit_with(events, None, None).await
    }

    /// The same, with what is written beside them: the state of an object, and an idempotency key
    /// or the name of a batch on its canvas.
    pub(super) async fn admit_with(
        &self,
        events: &[NewEvent],
        state: Option<NewState<'_>>,
        key: Option<CanvasId>,
    ) -> Result<(), StoreError> {
        self.admit_by(&self.store, events, state, key).await
    }

    /// The same beside a transaction of the caller's, in which they are written.
    pub(super) async fn admit_beside(
        &self,
        events: &[NewEvent],
        state: Option<NewState<'_>>,
    ) -> Result<(), StoreError> {
        self.admit_by(&self.store.beside_transactions(), events, state, None).await
    }

    async fn admit_by(
        &self,
        store: &Store,
        events: &[NewEvent],
        state: Option<NewState<'_>>,
        key: Option<CanvasId>,
    ) -> Result<(), StoreError> {
        self.admit_to_limits(store, events).await?;
        if !self.config.quotas {
            return Ok(());
        }
        let mut all = Additions::by(events);
        if let Some(NewState { canvas, object, state }) = state {
            all.entry(canvas).or_default().set_state(object, state.len());
        }
        if let Some(canvas) = key {
            all.entry(canvas).or_default().remember_key();
        }
        for (canvas, added) in all {
            let admitted = store.admit(canvas, &added).await;
            admitted.inspect_err(|error| self.not_sent(events, error))?;
        }
        Ok(())
    }

    /// Refuses events that name a limit for which as many wait as its `waiting_max` says. Emits at
    /// the same time may exceed it together, by as many as they are. An event that names no limit
    /// costs nothing here.
    async fn admit_to_limits(&self, store: &Store, events: &[NewEvent]) -> Result<(), StoreError> {
        let keys = limit_keys(events);
        if keys.is_empty() {
            return Ok(());
        }
        let looked = store.waiting_max_reached(&keys).await;
        let admitted = looked.and_then(|reached| reached.map_or(Ok(()), |reached| Err(reached.into())));
        admitted.inspect_err(|error| self.not_sent(events, error))
    }
}

/// The keys of limits that events name.
fn limit_keys(events: &[NewEvent]) -> Vec<(CanvasId, &LimitKey)> {
    let mut keys = Vec::new();
    for event in events {
        let named = event.options.as_deref().map_or(&[][..], EventOptions::limits);
        keys.extend(named.iter().map(|key| (event.address.scope.canvas, key)));
    }
    keys
}
