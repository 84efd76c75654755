//! The insert statements that several emits share. It decides which event goes into which, and
//! never what an event is.

use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;

use super::byte_budget::AdmittedEvent;
use crate::event::NewEvent;
use crate::store::{Coalescer, InsertOutcome, Store, StoreError};

/// Maximum number of events in one statement.
pub(super) const BATCH_MAX: usize = 500;
/// A statement is full once its values reach this.
const BATCH_BYTES_MAX: usize = 1024 * 1024;
/// How many statements of a kind are in flight at once.
const IN_FLIGHT: usize = 2;

/// Inserts events with generated ids, without objects and keys.
#[derive(Clone)]
pub(super) struct Inserts {
    plain: Coalescer<AdmittedEvent, InsertOutcome>,
    /// Of events with options: their statement takes longer, and the others do not share it.
    with_options: Coalescer<AdmittedEvent, InsertOutcome>,
    /// Of members of batches, of which any caller can have one refused. What shares its statement
    /// is then written again.
    members: Coalescer<AdmittedEvent, InsertOutcome>,
}

impl Inserts {
    pub(super) fn new(store: &Store) -> Self {
        let shared = || {
            let store = store.clone();
            let insert = move |admitted: Vec<AdmittedEvent>| {
                let store = store.clone();
                async move { store.insert(&AdmittedEvent::events(&admitted)).await }
            };
            Coalescer::within((BATCH_MAX, BATCH_BYTES_MAX), AdmittedEvent::bytes, IN_FLIGHT, insert)
        };
        Self { plain: shared(), with_options: shared(), members: shared() }
    }

    /// Inserts an event beside others that are emitted at the same time.
    pub(super) async fn insert(
        &self,
        event: &Arc<NewEvent>,
        permit: OwnedSemaphorePermit,
    ) -> Result<InsertOutcome, StoreError> {
        let shared = match event.options.as_deref() {
            None => &self.plain,
            Some(options) if options.batch().is_some() => &self.members,
            Some(_) => &self.with_options,
        };
        shared.call(AdmittedEvent::new(Arc::clone(event), permit)).await
    }
}
