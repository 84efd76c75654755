//! The statements of runs, shared by all that arrive together.

use std::sync::Arc;
use std::time::Duration;

use super::handlers::Registry;
use crate::event::{Cause, Claim, EventId};
use crate::store::{ClaimLimits, ClaimedEvent, Coalescer, LoadedEvent, Retry, Store, StoreError};

/// Most events in one statement: the knee of the measured curve lies at 100 to 500.
const BATCH_MAX: usize = 250;
/// How many statements of a kind run at a time.
const IN_FLIGHT: usize = 2;

/// What runs ask of the store.
pub(super) struct Statements {
    pub(super) loads: Coalescer<EventId, Option<LoadedEvent>>,
    /// Claims whatever may run without further questions: no limit on its handler, few losses.
    pub(super) claims_ahead: Coalescer<EventId, Option<ClaimedEvent>>,
    /// Claims events that were looked at and have room at their handlers.
    pub(super) claims: Coalescer<EventId, Option<ClaimedEvent>>,
    pub(super) completions: Coalescer<Claim, bool>,
    pub(super) retries: Coalescer<Arc<Retry>, bool>,
    pub(super) parks: Coalescer<EventId, bool>,
    pub(super) defers: Coalescer<EventId, ()>,
    pub(super) releases: Coalescer<Claim, ()>,
    store: Store,
    suspects: Arc<ClaimLimits>,
}

impl Statements {
    pub(super) fn new(store: &Store, registry: &Registry, suspect_losses: u32) -> Self {
        let limits = |(handlers, canvas_handlers), losses_below| {
            Arc::new(ClaimLimits { handlers, canvas_handlers, losses_below })
        };
        let all = || (registry.any_canvas(), registry.one_canvas());
        let trusted = i32::try_from(suspect_losses).unwrap_or(i32::MAX);
        Self {
            loads: batched(store, |store, ids| async move { store.load(&ids).await }),
            claims_ahead: claims(store, limits(registry.unlimited(), trusted)),
            claims: claims(store, limits(all(), trusted)),
            completions: batched(store, |store, claims| async move { store.complete(&claims).await }),
            retries: batched(store, |store, retries| async move { store.retry(&retries).await }),
            parks: batched(store, |store, ids| async move { store.park(&ids).await }),
            defers: batched(store, |store, ids| async move {
                store.defer(&ids).await.map(|()| vec![(); ids.len()])
            }),
            releases: batched(store, |store, claims| async move {
                store.release(&claims).await.map(|()| vec![(); claims.len()])
            }),
            store: store.clone(),
            suspects: limits(all(), i32::MAX),
        }
    }

    /// Claims an event whatever its losses; a worker does so for one at a time.
    pub(super) async fn claim_suspect(&self, id: EventId) -> Result<Option<ClaimedEvent>, StoreError> {
        Ok(self.store.claim(&[id], &self.suspects).await?.pop().flatten())
    }

    /// Moves an event to the dead ones: rare, so alone.
    pub(super) async fn die(
        &self,
        claim: Claim,
        cause: Cause,
        error: Option<&str>,
    ) -> Result<bool, StoreError> {
        self.store.die(claim, cause, error).await
    }

    /// How long to wait before a write is repeated that got no answer.
    pub(super) const PAUSE: Duration = Duration::from_millis(200);
}

fn claims(store: &Store, limits: Arc<ClaimLimits>) -> Coalescer<EventId, Option<ClaimedEvent>> {
    batched(store, move |store, ids| {
        let limits = Arc::clone(&limits);
        async move { store.claim(&ids, &limits).await }
    })
}

fn batched<Q, A, S, F>(store: &Store, statement: S) -> Coalescer<Q, A>
where
    Q: Clone + Send + Sync + 'static,
    A: Send + 'static,
    S: Fn(Store, Vec<Q>) -> F + Send + Sync + 'static,
    F: Future<Output = Result<Vec<A>, StoreError>> + Send + 'static,
{
    let store = store.clone();
    Coalescer::new(BATCH_MAX, IN_FLIGHT, move |requests| statement(store.clone(), requests))
}
