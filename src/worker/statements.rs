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
        let limits = |unlimited_only: bool, losses_below: i32| {
            let (handlers, canvas_handlers) = keys(registry, unlimited_only);
            Arc::new(ClaimLimits { handlers, canvas_handlers, losses_below })
        };
        let trusted = i32::try_from(suspect_losses).unwrap_or(i32::MAX);
        Self {
            loads: batched(store, |store, ids| async move { store.load(&ids).await }),
            claims_ahead: claims(store, limits(true, trusted)),
            claims: claims(store, limits(false, trusted)),
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
            suspects: limits(false, i32::MAX),
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

/// The handlers of every canvas and of one canvas, for claims. A handler for every canvas also counts as limited where
/// one of them has a limited handler of its own: the claim can't tell which of the two an event goes to.
fn keys(registry: &Registry, unlimited_only: bool) -> (Vec<String>, Vec<String>) {
    let wanted = |one_canvas: bool, limited: bool| {
        registry.keys(|of_one, handler| of_one == one_canvas && handler.room.is_some() == limited)
    };
    let (mut handlers, mut canvas_handlers) = (wanted(false, false), wanted(true, false));
    let limited = wanted(true, true);
    if unlimited_only {
        handlers.retain(|key| !limited.iter().any(|own| own.ends_with(&format!("/{key}"))));
    } else {
        handlers.extend(wanted(false, true));
        canvas_handlers.extend(limited);
    }
    (handlers, canvas_handlers)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::CanvasId;
    use crate::worker::{Handlers, Route};

    /// A canvas whose own handler is limited must not have its events claimed through the one for every canvas.
    #[test]
    fn events_of_limited_handlers_are_not_claimed_ahead() {
        let canvas = CanvasId::DEFAULT;
        let mut handlers = Handlers::new();
        for route in [
            Route::new("a"),
            Route::new("a").canvas(canvas).concurrency(1),
            Route::new("b"),
            Route::new("b").canvas(canvas),
            Route::new("c").concurrency(1),
            Route::new("aa"),
        ] {
            handlers = handlers.on(route, |_event| async { Ok(()) });
        }
        let registry = handlers.registry().unwrap();
        let sorted = |(mut one, mut two): (Vec<String>, Vec<String>)| {
            one.sort();
            two.sort();
            (one, two)
        };
        let own = |name: &str| format!("{canvas}/WORKER/{name}/_");
        let (ahead, ahead_of_canvas) = sorted(keys(&registry, true));
        assert_eq!(ahead, ["WORKER/aa/_", "WORKER/b/_"]);
        assert_eq!(ahead_of_canvas, [own("b")]);
        let (all, all_of_canvas) = sorted(keys(&registry, false));
        assert_eq!(all, ["WORKER/a/_", "WORKER/aa/_", "WORKER/b/_", "WORKER/c/_"]);
        assert_eq!(all_of_canvas, [own("a"), own("b")]);
    }
}
