//! The statements of runs, batched over all runs that request them at the same time. Those that are
//! not batched are boxed: otherwise each run would have room for the largest of them.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use super::handlers::Registry;
use crate::event::{
    Actor, CanvasId, Cause, Claim, CountedRun, EventId, HandlerAddress, HandlerScope, HeldLimit, Lane, Name,
    Notification,
};
use crate::store::{
    AttemptEnd, BATCH_MAX, BatchKey, ClaimLimits, ClaimedEvent, Coalescer, HandlerKeys, IN_FLIGHT, KeptEnd,
    LimitedClaim, LimitedClaims, LoadedEvent, Retry, Standing, Store, StoreError, TurnRequest, WokenEvent,
};

/// The actor in the audit log when a target is held because it was removed.
const GONE_ACTOR: &str = "target";

/// How long a completion that nothing waits for lingers for others: each commit costs Postgres as
/// much as the statement in it.
const COMPLETION_LINGER: Duration = Duration::from_millis(5);

/// How long one does of an event for whose place at a limit others have waited. Those that were
/// woken together and end together also make room together: three statements for all of them.
const WOKEN_LINGER: Duration = Duration::from_millis(1);

/// Longest result that is written together with others, in bytes.
const SHARED_RESULT_BYTES_MAX: usize = 4096;

/// The requests that runs make to the store.
pub(super) struct Statements {
    pub(super) loads: Coalescer<EventId, Option<LoadedEvent>>,
    /// Claims events that need no further checks: no limit on their handlers, few losses.
    claims_ahead: Coalescer<Notification, Claimed>,
    /// Claims events that were loaded and have room at their handlers.
    claims: Coalescer<Notification, Claimed>,
    /// Claims events whose handlers are not registered in this worker, each with its handler's key.
    claims_elsewhere: Coalescer<(Notification, String), Claimed>,
    /// Claims events through their limits, each with its handler's key if that is not registered in
    /// this worker.
    limited_claims: Coalescer<(Notification, Option<String>), LimitedAnswer>,
    /// Claims events through their limits that need no further checks.
    woken_claims: Coalescer<(Notification, Option<String>), LimitedAnswer>,
    /// Claims the next events of queues, as many as asked, though not necessarily those that asked.
    turns: Coalescer<TurnRequest, Result<Claimed, StoreError>>,
    /// Completions of events for whose end others may wait.
    pub(super) completions: Coalescer<Claim, bool>,
    /// Completions of events that were woken here at limits.
    pub(super) woken_completions: Coalescer<Claim, bool>,
    /// The other completions.
    pub(super) lingering_completions: Coalescer<Claim, bool>,
    /// Completions of events that are on objects.
    pub(super) link_completions: Coalescer<Claim, bool>,
    /// The next events of lanes whose first event was removed.
    pub(super) firsts: Coalescer<Lane, Option<Notification>>,
    /// Whether the batches of events that have ended are over.
    pub(super) batch_looks: Coalescer<BatchKey, bool>,
    /// The copies that may run now because another one of their canvas has ended.
    pub(super) next_copies: Coalescer<(Name, CanvasId), Vec<Notification>>,
    /// The events that have room now at the limits of events that have ended, each with its canvas.
    /// Of several that ask at once, the first gets them all.
    pub(super) limit_rooms: Coalescer<FreedLimits, LimitRoom>,
    /// Events that can't start now; answered with the limits that kept places for them.
    pub(super) steps_aside: Coalescer<EventId, Option<HeldLimit>>,
    /// Recalls copies that turns have passed over, so that they are found when there is room.
    pub(super) recalls: Coalescer<EventId, ()>,
    /// Completions of events that are kept.
    kept_completions: Coalescer<Arc<KeptEnd>, bool>,
    pub(super) retries: Coalescer<Arc<Retry>, bool>,
    pub(super) parks: Coalescer<EventId, bool>,
    pub(super) defers: Coalescer<EventId, ()>,
    pub(super) releases: Coalescer<Claim, ()>,
    store: Store,
    /// The limits for all functions of this worker.
    every: ClaimLimits,
    /// Whether anything can be claimed ahead.
    claims_any_ahead: bool,
}

/// What became of a claim through limits. Of several that were made together, the first also says
/// which limits have room for others, and whether running events may have been cancelled.
#[derive(Clone, Debug)]
pub(super) struct LimitedAnswer {
    pub(super) claim: LimitedClaim,
    pub(super) room: Vec<HeldLimit>,
    pub(super) cancels: bool,
}

/// Limits that may have room, of a run on a canvas.
#[derive(Clone, Debug)]
pub(super) struct FreedLimits {
    pub(super) canvas: CanvasId,
    pub(super) held: Box<[HeldLimit]>,
    /// The event of the run, if it had places that it may have left.
    pub(super) ended: Option<EventId>,
}

/// Events that have room at limits.
#[derive(Clone, Debug, Default)]
pub(super) struct LimitRoom {
    /// Those that this worker can run: of its handlers, and of canvases for which it ran them.
    pub(super) here: Vec<Notification>,
    /// The others, whose handlers it may not have.
    pub(super) others: Vec<WokenEvent>,
}

/// A claimed event, boxed because it passes through many futures of a run.
type Claimed = Option<Box<ClaimedEvent>>;

/// Why an event is claimed alone, in a statement of its own.
#[derive(Clone, Copy, Debug)]
pub(super) struct SoloClaim {
    /// It is a suspect: claims on it were lost.
    pub(super) suspect: bool,
    /// Its value is large.
    pub(super) large: bool,
}

impl SoloClaim {
    /// The bounds on losses and value size with which it may be claimed.
    fn bounds(self, usual: (i32, i32)) -> (i32, i32) {
        let bound = |beyond, usual| if beyond { i32::MAX } else { usual };
        (bound(self.suspect, usual.0), bound(self.large, usual.1))
    }
}

impl Statements {
    /// `value_max` is the size in bytes of the largest value that is claimed together with others.
    /// `with_targets` says whether runs also look up targets; `at_once` is the maximum number of
    /// concurrent runs.
    pub(super) fn new(
        store: &Store,
        registry: &Registry,
        (suspect_losses, value_max): (u32, i32),
        with_targets: bool,
        at_once: usize,
    ) -> Self {
        let trusted = i32::try_from(suspect_losses).unwrap_or(i32::MAX);
        let limits = |(handlers, canvas_handlers)| ClaimLimits {
            handlers: HandlerKeys::from(handlers),
            canvas_handlers,
            losses_below: trusted,
            value_max,
        };
        let every = limits((registry.any_canvas(), registry.one_canvas()));
        let ahead = registry.unlimited();
        let claims_any_ahead = !(ahead.0.is_empty() && ahead.1.is_empty());
        let ahead = limits(ahead);
        Self {
            claims_any_ahead,
            loads: store.batched(|store, ids| async move { store.load(&ids).await }),
            claims_ahead: claims(store, ahead.clone()),
            claims: claims(store, every.clone()),
            claims_elsewhere: store.batched(move |store, asked: Vec<(Notification, String)>| async move {
                let (notifications, keys): (Vec<Notification>, Vec<String>) = asked.into_iter().unzip();
                store.claim(&notifications, &of_one_canvas(keys, (trusted, value_max))).await.map(boxed)
            }),
            limited_claims: limited_claims(store, every.clone()),
            woken_claims: limited_claims(store, ahead),
            turns: turns(store.clone(), (trusted, value_max)),
            completions: store.batched(|store, claims| async move { store.complete(&claims).await }),
            lingering_completions: lingering_completions(store, at_once, COMPLETION_LINGER),
            woken_completions: lingering_completions(store, at_once, WOKEN_LINGER),
            link_completions: store
                .batched(|store, claims| async move { store.complete_links(&claims).await }),
            kept_completions: store
                .batched(|store, ends: Vec<Arc<KeptEnd>>| async move { store.complete_kept(&ends).await }),
            firsts: store.batched(|store, lanes| async move { store.firsts(&lanes).await }),
            batch_looks: store.batched(|store, batches| async move { store.are_over(&batches).await }),
            next_copies: store.batched(|store, ended| async move { store.room_in_facets_of(&ended).await }),
            limit_rooms: store.gathered(|store, freed| async move { room_in_limits(&store, &freed).await }),
            steps_aside: store.batched(|store, ids| async move { store.step_aside(&ids).await }),
            recalls: store.batched(|store, ids| async move {
                store.recall_held(&ids).await.map(|()| vec![(); ids.len()])
            }),
            retries: store.batched(|store, retries| async move { store.retry(&retries).await }),
            parks: store.batched(|store, ids| async move { store.park(&ids).await }),
            defers: store.batched(move |store, ids| async move {
                defer(&store, &ids, with_targets).await.map(|()| vec![(); ids.len()])
            }),
            releases: store.batched(|store, claims| async move {
                store.release(&claims).await.map(|_| vec![(); claims.len()])
            }),
            store: store.clone(),
            every,
        }
    }

    /// Claims an event of a function without further checks, if this worker has any function
    /// without a limit.
    pub(super) async fn claim_ahead(&self, notification: Notification) -> Result<Claimed, StoreError> {
        if self.claims_any_ahead { self.claims_ahead.call(notification).await } else { Ok(None) }
    }

    /// Claims an event that was loaded. `key` is its handler's, if this worker has not registered
    /// it.
    pub(super) async fn claim(
        &self,
        notification: Notification,
        key: Option<String>,
        alone: SoloClaim,
    ) -> Result<Claimed, StoreError> {
        if alone.suspect || alone.large {
            return Box::pin(self.claim_alone(notification, key, alone)).await;
        }
        match key {
            Some(key) => self.claims_elsewhere.call((notification, key)).await,
            None => self.claims.call(notification).await,
        }
    }

    /// Claims an event that was loaded and has limits.
    pub(super) async fn claim_limited(
        &self,
        notification: Notification,
        key: Option<String>,
        alone: SoloClaim,
    ) -> Result<LimitedAnswer, StoreError> {
        if !alone.suspect && !alone.large {
            return self.limited_claims.call((notification, key)).await;
        }
        let limits = self.limits_alone(key, alone);
        let LimitedClaims { claims, room, cancels } =
            self.store.claim_limited(&[notification], &limits).await?;
        let claim = claims.into_iter().next().unwrap_or(LimitedClaim::Not);
        Ok(LimitedAnswer { claim, room, cancels })
    }

    /// Claims an event of a function that was woken at a limit, as [`Statements::claim_ahead`] does
    /// others; `None` if no function here can be claimed for so.
    pub(super) async fn claim_woken(
        &self,
        notification: Notification,
    ) -> Result<Option<LimitedAnswer>, StoreError> {
        if !self.claims_any_ahead {
            return Ok(None);
        }
        self.woken_claims.call((notification, None)).await.map(Some)
    }

    /// Claims the next event of a queue, or the event that asks if it has to be claimed alone.
    pub(super) async fn take_turn(
        &self,
        queue: &Name,
        asks: EventId,
        alone: SoloClaim,
    ) -> Result<Claimed, StoreError> {
        if alone.suspect || alone.large {
            let (losses_below, value_max) = alone.bounds((self.every.losses_below, self.every.value_max));
            let taken = Box::pin(self.store.take_alone(queue, asks, losses_below, value_max)).await?;
            Ok(taken.map(Box::new))
        } else {
            self.turns.call(TurnRequest { queue: queue.clone(), asks }).await?
        }
    }

    /// Claims an event whatever its losses or its size; the run holds the permits for that.
    async fn claim_alone(
        &self,
        notification: Notification,
        key: Option<String>,
        alone: SoloClaim,
    ) -> Result<Claimed, StoreError> {
        let limits = self.limits_alone(key, alone);
        Ok(boxed(self.store.claim(&[notification], &limits).await?).into_iter().next().flatten())
    }

    fn limits_alone(&self, key: Option<String>, alone: SoloClaim) -> ClaimLimits {
        let (losses_below, value_max) = alone.bounds((self.every.losses_below, self.every.value_max));
        match key {
            Some(key) => of_one_canvas(vec![key], (losses_below, value_max)),
            None => ClaimLimits { losses_below, value_max, ..self.every.clone() },
        }
    }

    /// Holds a target that was removed, unless it was replaced. Rare, so not batched.
    pub(super) async fn hold_gone(
        &self,
        address: &HandlerAddress,
        revision: Option<Uuid>,
        reason: &str,
    ) -> Result<bool, StoreError> {
        Box::pin(self.store.hold_gone(address, revision, reason, &Actor::user(GONE_ACTOR))).await
    }

    /// Another canvas that has events, if any.
    pub(super) async fn other_canvas(&self, canvas: CanvasId) -> Result<Option<CanvasId>, StoreError> {
        self.store.other_canvas(canvas).await
    }

    /// The events among these that are of handlers with these keys.
    pub(super) async fn of_handlers(
        &self,
        asked: &[Notification],
        any_canvas: &[String],
        one_canvas: &[String],
    ) -> Result<HashSet<EventId>, StoreError> {
        self.store.of_handlers(asked, any_canvas, one_canvas).await
    }

    /// Puts off the promises of events that this worker can't start soon.
    pub(super) async fn put_off(&self, later: &[(EventId, Duration)]) -> Result<(), StoreError> {
        self.store.postpone(later).await
    }

    /// Counts a run for the statistics. No statement: the store writes them later.
    pub(super) fn count(&self, handler: &HandlerScope, run: &CountedRun) {
        self.store.count_run(handler, run);
    }

    /// Whether the history notes another attempt of this canvas. No statement.
    pub(super) fn has_room_for_attempt(&self, canvas: CanvasId) -> bool {
        self.store.has_room_for_attempt(canvas)
    }

    /// Moves an event to the dead events. Rare, so not batched.
    pub(super) async fn die(
        &self,
        claim: Claim,
        cause: Cause,
        error: Option<&str>,
        halts: bool,
        took: Option<Duration>,
    ) -> Result<bool, StoreError> {
        Box::pin(self.store.die(claim, cause, error, halts, took)).await
    }

    /// Completes an event that is kept. A long result is written alone, since a statement is for up
    /// to 250 events.
    pub(super) async fn complete_kept(&self, kept: Arc<KeptEnd>) -> Result<bool, StoreError> {
        if kept.end.result.as_ref().is_none_or(|result| result.len() <= SHARED_RESULT_BYTES_MAX) {
            return self.kept_completions.call(kept).await;
        }
        Ok(Box::pin(self.store.complete_kept(&[kept])).await?.contains(&true))
    }

    /// Deletes a claimed event that was cancelled while it ran. Rare, so not batched.
    pub(super) async fn remove_cancelled(&self, claim: Claim, end: &AttemptEnd) -> Result<bool, StoreError> {
        Box::pin(self.store.remove_cancelled(claim, end)).await
    }

    /// Deletes the checkpoint of an event that has ended. Rare, so not batched.
    pub(super) async fn drop_checkpoint(&self, canvas: CanvasId, id: EventId) -> Result<(), StoreError> {
        Box::pin(self.store.drop_checkpoint(canvas, id)).await
    }

    /// What became of a claim whose handler has tried to complete the event itself.
    pub(super) async fn standing(&self, claim: Claim) -> Result<Standing, StoreError> {
        Box::pin(self.store.standing(claim)).await
    }

    /// Wait before a write that got no answer is repeated.
    pub(super) const PAUSE: Duration = Duration::from_millis(200);
}

/// Wakes what has room at the limits of events that have ended, for the first one of those that
/// ask.
async fn room_in_limits(store: &Store, freed: &[FreedLimits]) -> Result<Vec<LimitRoom>, StoreError> {
    let limits: Vec<HeldLimit> = freed.iter().flat_map(|freed| freed.held.iter().cloned()).collect();
    let ended: Vec<EventId> = freed.iter().filter_map(|freed| freed.ended).collect();
    let woken = store.wake_events_after(&limits, &ended).await?;
    let is_of_handlers = limits.iter().all(|limit| limit.name.starts_with("handler:"));
    let is_here = |next: &WokenEvent| freed.iter().any(|freed| freed.canvas == next.notification.canvas);
    let (here, others): (Vec<_>, Vec<_>) =
        woken.into_iter().partition(|next| is_of_handlers && is_here(next));
    let here = here.into_iter().map(|next| next.notification).collect();
    let mut rooms = vec![LimitRoom::default(); freed.len()];
    if let Some(first) = rooms.first_mut() {
        *first = LimitRoom { here, others };
    }
    Ok(rooms)
}

async fn defer(store: &Store, ids: &[EventId], with_targets: bool) -> Result<(), StoreError> {
    store.defer(ids).await?;
    // A worker without targets would repeatedly wake events that it can't run.
    if with_targets { store.wake_registered(ids).await } else { Ok(()) }
}

fn of_one_canvas(mut keys: Vec<String>, (losses_below, value_max): (i32, i32)) -> ClaimLimits {
    keys.sort_unstable();
    keys.dedup();
    ClaimLimits { handlers: HandlerKeys::default(), canvas_handlers: keys, losses_below, value_max }
}

/// Takes turns, by one statement at a time.
fn turns(
    store: Store,
    (losses_below, value_max): (i32, i32),
) -> Coalescer<TurnRequest, Result<Claimed, StoreError>> {
    Coalescer::new(BATCH_MAX, 1, move |turns: Vec<TurnRequest>| {
        let store = store.clone();
        async move {
            let taken = store.take_turns(&turns, losses_below, value_max).await;
            Ok(taken.into_iter().map(|taken| taken.map(|event| event.map(Box::new))).collect())
        }
    })
}

/// Claims through limits: of the handlers that are registered, and of those that are asked for.
/// Gathered, since a claim costs less than the statement: those that were woken together ask so.
fn limited_claims(
    store: &Store,
    every: ClaimLimits,
) -> Coalescer<(Notification, Option<String>), LimitedAnswer> {
    let every = Arc::new(every);
    store.gathered(move |store, asked: Vec<(Notification, Option<String>)>| {
        let every = Arc::clone(&every);
        async move {
            let (notifications, keys): (Vec<Notification>, Vec<Option<String>>) = asked.into_iter().unzip();
            let mut limits = ClaimLimits::clone(&every);
            limits.canvas_handlers.extend(keys.into_iter().flatten());
            limits.canvas_handlers.sort_unstable();
            limits.canvas_handlers.dedup();
            let LimitedClaims { claims, mut room, mut cancels } =
                store.claim_limited(&notifications, &limits).await?;
            let answer = |claim| {
                let (room, cancels) = (std::mem::take(&mut room), std::mem::take(&mut cancels));
                LimitedAnswer { claim, room, cancels }
            };
            Ok(claims.into_iter().map(answer).collect())
        }
    })
}

/// Completions that wait this long for others, of which there are at most `at_once`.
fn lingering_completions(store: &Store, at_once: usize, linger: Duration) -> Coalescer<Claim, bool> {
    let store = store.clone();
    Coalescer::lingering(at_once.min(BATCH_MAX), linger, IN_FLIGHT, move |claims: Vec<Claim>| {
        let store = store.clone();
        async move { store.complete(&claims).await }
    })
}

fn boxed(claimed: Vec<Option<ClaimedEvent>>) -> Vec<Claimed> {
    claimed.into_iter().map(|event| event.map(Box::new)).collect()
}

fn claims(store: &Store, limits: ClaimLimits) -> Coalescer<Notification, Claimed> {
    let limits = Arc::new(limits);
    store.batched(move |store, notifications| {
        let limits = Arc::clone(&limits);
        async move { store.claim(&notifications, &limits).await.map(boxed) }
    })
}
