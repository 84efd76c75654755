//! Random overlapping batches of everything that locks rows of events: nothing deadlocks.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::queues::{EMAILS, email, emit, event, queue};
use super::{Table, limits, scope, shuffled, tester, told};
use crate::event::{
    CanvasId, Cause, Claim, EventId, HandlerScope, Lane, NewEvent, ObjectKey, QueuePattern, RuleKind, Timing,
};
use crate::store::ClaimedEvent;
use crate::store::{
    ClaimLimits, FacetSettings, NewQueueRow, Retry, Store, StoreConfig, StoreError, TurnRequest,
};

/// How many kinds of batches there are.
const KINDS: usize = 16;

/// The events that the writers share: of three handlers, with and without objects, and their copies
/// in a queue.
struct Crowd {
    ids: Vec<EventId>,
    copies: Vec<EventId>,
    lanes: Vec<Lane>,
    /// The last known fencing tokens.
    tokens: Mutex<HashMap<EventId, Claim>>,
    /// How many claims, turns and parked events there were.
    claimed: AtomicUsize,
    taken: AtomicUsize,
    parked: AtomicUsize,
}

/// A handler that is paused and unpaused.
fn paused() -> HandlerScope {
    HandlerScope { name: "paused".parse().unwrap(), ..scope() }
}

/// Eight connections write. The lock timeout is longer than Postgres' deadlock timeout, which
/// otherwise would never detect one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn overlapping_batches_never_deadlock() {
    let timing = Timing { lease: Duration::from_millis(100), ..Timing::default() };
    let table = Table::with(StoreConfig {
        max_connections: 8,
        lock_timeout: Duration::from_secs(20),
        statement_timeout: Duration::from_secs(25),
        timing: Some(timing),
        ..StoreConfig::default()
    })
    .await;
    let crowd = Arc::new(Crowd::new(&table).await);
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..8_usize {
        let (store, crowd) = (table.store.clone(), Arc::clone(&crowd));
        writers.spawn(async move {
            for round in 0..64_usize {
                let seed = u64::try_from(writer * 1000 + round).unwrap();
                crowd.write(&store, seed, (writer + round) % KINDS).await.unwrap();
            }
        });
    }
    writers.join_all().await;
    let deadlocks = "select deadlocks from pg_stat_database where datname = current_database()";
    assert_eq!(table.number(deadlocks).await, 0);
    // Each kind has met rows.
    for (kind, count) in [("claimed", &crowd.claimed), ("taken", &crowd.taken), ("parked", &crowd.parked)] {
        assert!(count.load(Ordering::Relaxed) > 0, "nothing was {kind}");
    }
}

impl Crowd {
    async fn new(table: &Table) -> Self {
        let patterns: [QueuePattern; 1] = [".*:email_event:.*".parse().unwrap()];
        let row = NewQueueRow {
            pull: None,
            name: &queue(EMAILS),
            patterns: &patterns,
            facets: FacetSettings { weight: None, in_flight_max: Some(10) },
            tenant_visible: true,
            wakes: false,
            actor: &tester(),
        };
        table.store.put_queue(&row, None).await.unwrap();
        let mut ids = table.add(100).await;
        ids.extend(table.add_for(60, "paused").await);
        let objects: Vec<ObjectKey> =
            (0..6).map(|number| format!("mail:{number}").parse().unwrap()).collect();
        let on_object = |number: usize, event: NewEvent| NewEvent {
            object: Some(objects[number % objects.len()].clone()),
            only_queues: false,
            ..event
        };
        let known = (0..60).map(|number| on_object(number, event(CanvasId::DEFAULT, "WORKER", "known")));
        let linked: Vec<NewEvent> = known.collect();
        let inserted = table.store.insert_all(&linked, &[false; 60]).await.unwrap();
        assert_eq!(inserted.len(), linked.len());
        ids.extend(linked.iter().map(|event| event.id));
        let copies = (0..60).map(|_| email(CanvasId::DEFAULT));
        let on_objects = (0..20).map(|number| on_object(number, email(CanvasId::DEFAULT)));
        let copies = emit(&table.store, copies.chain(on_objects).collect()).await;
        ids.extend(&copies);
        let lane = |object: &ObjectKey| Lane { scope: scope(), object: object.clone(), queue: None };
        let lanes = objects.iter().map(lane).collect();
        let (tokens, claimed, taken, parked) = Default::default();
        Self { ids, copies, lanes, tokens, claimed, taken, parked }
    }

    async fn write(&self, store: &Store, seed: u64, kind: usize) -> Result<(), StoreError> {
        let ids = &shuffled(&self.ids, seed)[..120];
        let claims = self.claims(ids);
        let limits = ClaimLimits { losses_below: i32::MAX, ..limits() };
        match kind {
            0 | 5 => {
                let claimed = store.claim(&told(ids), &limits).await?;
                self.claimed.fetch_add(self.note(claimed.into_iter().flatten()), Ordering::Relaxed);
            }
            1 | 9 => {
                let asks = shuffled(&self.copies, seed).into_iter().take(20);
                let turns: Vec<TurnRequest> =
                    asks.map(|asks| TurnRequest { queue: queue(EMAILS), asks }).collect();
                let taken = store.take_turns(&turns, i32::MAX, i32::MAX).await;
                let taken: Vec<_> = taken.into_iter().collect::<Result<_, _>>()?;
                self.taken.fetch_add(self.note(taken.into_iter().flatten()), Ordering::Relaxed);
            }
            2 => drop(store.renew(&claims).await?),
            3 => {
                store.release(&claims).await?;
            }
            4 => {
                let retry = |claim| {
                    Arc::new(Retry {
                        claim,
                        retries: 1,
                        delay: Duration::ZERO,
                        error: String::new(),
                        noted: None,
                    })
                };
                drop(store.retry(&claims.into_iter().map(retry).collect::<Vec<_>>()).await?);
            }
            6 => drop(store.complete(&claims[..claims.len().min(2)]).await?),
            7 => drop(store.complete_links(&claims[..claims.len().min(2)]).await?),
            8 => store.defer(ids).await?,
            10 => {
                store.add_rule(RuleKind::Pause, &paused(), None, None, &tester()).await?;
                let parked = store.park(ids).await?;
                let parked = parked.into_iter().filter(|parked| *parked).count();
                self.parked.fetch_add(parked, Ordering::Relaxed);
            }
            11 => drop(store.arm_firsts(&self.lanes).await?),
            12 => drop(store.lift_rule(RuleKind::Pause, &paused(), &tester()).await?),
            13 => store.announce(ids).await?,
            14 => {
                store.register(&["WORKER/known/_".into()], &[]).await?;
                if let Some(claim) = claims.first() {
                    store.die(*claim, Cause::Retries, None, true, None).await?;
                }
            }
            _ => {
                // Also the jobs of what was deferred and then registered, and of what was unpaused.
                for (_, job) in store.minute(true, None).await?.jobs {
                    store.resume_page(job).await?;
                }
            }
        }
        Ok(())
    }

    fn claims(&self, ids: &[EventId]) -> Vec<Claim> {
        let tokens = self.tokens.lock().unwrap();
        ids.iter().filter_map(|id| tokens.get(id).copied()).collect()
    }

    /// Notes claims; returns how many.
    fn note(&self, events: impl Iterator<Item = ClaimedEvent>) -> usize {
        let claims: Vec<Claim> = events.map(|event| event.claim).collect();
        self.tokens.lock().unwrap().extend(claims.iter().map(|claim| (claim.id, *claim)));
        claims.len()
    }
}
