//! Queues on Postgres: copies in the emit's own statement, and turns that are fair to every canvas.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use super::{Table, tester};
use crate::event::{
    CanvasId, EventId, HandlerAddress, HandlerScope, Name, NewEvent, ObjectKey, QueuePattern, RuleKind, Turn,
};
use crate::store::ClaimedEvent;
use crate::store::queues::TurnOutcome;
use crate::store::{
    FacetSettings, InsertOutcome, NewQueueRow, QueuePut, Store, StoreConfig, StoreError, TurnRequest,
};

pub(super) const EMAILS: &str = "emails";

pub(super) fn canvas(number: u128) -> CanvasId {
    CanvasId(Uuid::from_u128(number))
}

pub(super) fn event(canvas: CanvasId, module: &str, name: &str) -> NewEvent {
    let (module, name) = (module.parse().unwrap(), name.parse().unwrap());
    let scope = HandlerScope { canvas, module, name };
    let address = HandlerAddress { scope, modifier: "_".parse().unwrap() };
    NewEvent { only_queues: true, ..NewEvent::new(address, "1".into()) }
}

pub(super) fn email(canvas: CanvasId) -> NewEvent {
    event(canvas, "email_event", "opened")
}

pub(super) fn queue(name: &str) -> Name {
    name.parse().unwrap()
}

pub(super) async fn register(
    store: &Store,
    name: &str,
    patterns: &[&str],
    facets: FacetSettings,
) -> QueuePut {
    let patterns: Vec<QueuePattern> = patterns.iter().map(|pattern| pattern.parse().unwrap()).collect();
    let row = NewQueueRow {
        pull: None,
        name: &queue(name),
        patterns: &patterns,
        facets,
        tenant_visible: false,
        wakes: false,
        actor: &tester(),
    };
    store.put_queue(&row, None).await.unwrap().0
}

/// A table with a queue for e-mail events, as in the documentation.
pub(super) async fn emails(facets: FacetSettings) -> Table {
    let table = Table::new().await;
    assert_eq!(register(&table.store, EMAILS, &[".*:email_event:.*"], facets).await, QueuePut::New);
    table
}

/// Emits events, and announces their copies; returns the copies.
pub(super) async fn emit(store: &Store, events: Vec<NewEvent>) -> Vec<EventId> {
    let events: Vec<Arc<NewEvent>> = events.into_iter().map(Arc::new).collect();
    let inserted = store.insert(&events).await.unwrap();
    let copies: Vec<EventId> = inserted.iter().flat_map(InsertOutcome::copies).copied().collect();
    // A queue's lock that can't be had within its second is tried again, as emitters do.
    let mut announced = store.announce(&copies).await;
    for _ in 1..5 {
        if announced.as_ref().is_err_and(StoreError::is_contention) {
            announced = store.announce(&copies).await;
        }
    }
    announced.unwrap();
    copies
}

pub(super) async fn emit_emails(store: &Store, of: CanvasId, count: usize) -> Vec<EventId> {
    emit(store, (0..count).map(|_| email(of)).collect()).await
}

/// Takes turns, asked for by an event that is long gone.
pub(super) async fn take(store: &Store, count: usize) -> Vec<ClaimedEvent> {
    take_of(store, EMAILS, count).await
}

async fn take_of(store: &Store, name: &str, count: usize) -> Vec<ClaimedEvent> {
    let turn = TurnRequest { queue: queue(name), asks: EventId::new() };
    events(store.take_turns(&vec![turn; count], 2, i32::MAX).await)
}

/// The events of turns.
pub(super) fn events(taken: Vec<TurnOutcome>) -> Vec<ClaimedEvent> {
    taken.into_iter().filter_map(Result::unwrap).collect()
}

pub(super) fn canvases(taken: &[ClaimedEvent]) -> Vec<u128> {
    taken.iter().map(|event| event.address.scope.canvas.0.as_u128()).collect()
}

pub(super) async fn complete(store: &Store, taken: Vec<ClaimedEvent>) {
    let claims: Vec<_> = taken.iter().map(|event| event.claim).collect();
    assert!(store.complete(&claims).await.unwrap().into_iter().all(|done| done));
}

/// Two queues that match are two copies; one that does not match gets none, nor does a queue for
/// what was emitted before it.
// Shows: DRV-03, DRV-07, DRV-15, DRV-17
#[tokio::test]
async fn each_queue_that_matches_gets_one_copy_from_its_registration_on() {
    let table = Table::new().await;
    let early = email(canvas(1));
    assert_eq!(emit(&table.store, vec![NewEvent { only_queues: false, ..early }]).await, []);
    for (name, patterns) in
        [("emails", [".*:email_event:.*", "opened"]), ("all", [".*", "."]), ("pages", [":page:", "^page"])]
    {
        register(&table.store, name, &patterns, FacetSettings::default()).await;
    }
    let with_a_handler = NewEvent { only_queues: false, ..email(canvas(1)) };
    assert_eq!(emit(&table.store, vec![with_a_handler, email(canvas(2))]).await.len(), 4);
    let rows = "select count(*) from wakeq.events_v2 where queue";
    assert_eq!(
        table.number("select count(*) from wakeq.events_v2 where queue = 'emails'").await,
        2,
        "{rows}"
    );
    assert_eq!(table.number("select count(*) from wakeq.events_v2 where queue = 'all'").await, 2);
    assert_eq!(table.number("select count(*) from wakeq.events_v2 where queue = 'pages'").await, 0);
    assert_eq!(table.number("select count(*) from wakeq.events_v2 where queue is null").await, 2);
    assert_eq!(take_of(&table.store, "pages", 1).await.len(), 0, "DRV-17");
}

/// Every statement of an emit: alone, with a chosen id, on an object; each from another process,
/// which does not know of the queue.
// Shows: DRV-07, DRV-13
#[tokio::test]
async fn an_emitter_unaware_of_a_queue_still_copies_into_it() {
    let table = Table::new().await;
    let other = table.other_store(StoreConfig::default()).await;
    let plain = || NewEvent { only_queues: false, ..email(canvas(1)) };
    assert_eq!(other.insert_alone(&Arc::new(plain())).await.unwrap().copies(), []);
    register(&table.store, EMAILS, &["email"], FacetSettings::default()).await;
    assert_eq!(other.insert_alone(&Arc::new(plain())).await.unwrap().copies().len(), 1);
    let chosen = plain();
    register(&table.store, "second", &["email"], FacetSettings::default()).await;
    assert_eq!(other.insert_chosen(&chosen).await.unwrap().copies().len(), 2);
    assert_eq!(other.insert_chosen(&chosen).await.unwrap(), InsertOutcome::Known, "and no more copies");
    register(&table.store, "third", &["email"], FacetSettings::default()).await;
    let object: ObjectKey = "work:1".parse().unwrap();
    let linked = NewEvent { object: Some(object), ..plain() };
    let inserted = other.insert_all(&[linked], &[false]).await.unwrap();
    assert_eq!((inserted[0].copies().len(), inserted[0].link().unwrap().prev), (3, 0));
    other.drain_queue(&queue("third"), &tester()).await.unwrap();
    assert_eq!(
        table.store.insert_alone(&Arc::new(plain())).await.unwrap().copies().len(),
        2,
        "it gets none any more"
    );
    assert_eq!(table.number("select count(*) from wakeq.events_v2").await, 1 + 2 + 3 + 4 + 3);
}

/// A caller's transaction that sees an older registry than this process knows.
// Shows: DRV-13
#[tokio::test]
async fn an_emit_under_an_old_snapshot_copies_by_what_that_sees() {
    let table = Table::new().await;
    let mut stranger = table.pool.begin().await.unwrap();
    sqlx::query("set transaction isolation level repeatable read").execute(&mut *stranger).await.unwrap();
    sqlx::query("select 1 from wakeq.queue_registry").execute(&mut *stranger).await.unwrap();
    register(&table.store, EMAILS, &["email"], FacetSettings::default()).await;
    let plain = || Arc::new(NewEvent { only_queues: false, ..email(canvas(1)) });
    assert_eq!(table.store.insert(&[plain()]).await.unwrap()[0].copies().len(), 1);
    let inserted =
        crate::store::add_one(&mut stranger, &plain(), false, table.store.emission()).await.unwrap();
    assert_eq!(inserted.copies(), [], "the queue is not there for this transaction");
    stranger.commit().await.unwrap();
    assert_eq!(table.store.insert(&[plain()]).await.unwrap()[0].copies().len(), 1);
}

/// A canvas with many copies waits its turn like the others.
// Shows: DRV-04, DRV-05, DRV-09, DRV-10, DRV-15, DRV-16, DRV-23
#[tokio::test]
async fn any_k_turns_in_a_row_serve_k_canvases() {
    let table = emails(FacetSettings::default()).await;
    emit_emails(&table.store, canvas(1), 1000).await;
    emit_emails(&table.store, canvas(2), 1).await;
    emit_emails(&table.store, canvas(3), 1).await;
    let mut firsts = Vec::new();
    for _ in 0..3 {
        firsts.extend(canvases(&take(&table.store, 1).await));
    }
    assert_eq!(firsts, [1, 2, 3]);
    assert_eq!(canvases(&take(&table.store, 3).await), [1, 1, 1], "the others have left");
    for number in [4, 5] {
        emit_emails(&table.store, canvas(number), 50).await;
    }
    let taken = canvases(&take(&table.store, 90).await);
    let counts = taken.iter().fold(BTreeMap::new(), |mut counts: BTreeMap<u128, usize>, canvas| {
        *counts.entry(*canvas).or_default() += 1;
        counts
    });
    assert_eq!(counts, BTreeMap::from([(1, 30), (4, 30), (5, 30)]));
    let facets = table.store.facets(&queue(EMAILS), None, None, 10).await.unwrap();
    let waiting: Vec<_> = facets.iter().map(|facet| (facet.canvas, facet.waiting, facet.running)).collect();
    let all = [(1, 966, 34), (2, 0, 1), (3, 0, 1), (4, 20, 30), (5, 20, 30)];
    assert_eq!(waiting, all.map(|(number, waiting, running)| (canvas(number), waiting, running)));
}

// Shows: DRV-11
#[tokio::test]
async fn a_facet_is_first_in_first_out() {
    let table = emails(FacetSettings::default()).await;
    let mut emitted = Vec::new();
    for _ in 0..20 {
        emitted.extend(emit_emails(&table.store, canvas(1), 5).await);
    }
    let mut taken = Vec::new();
    for count in [1, 7, 30, 100] {
        taken.extend(take(&table.store, count).await.into_iter().map(|event| event.claim.id));
    }
    assert_eq!(taken, emitted);
}

#[tokio::test]
async fn weights_are_events_a_round_and_none_is_a_pause() {
    let table = emails(FacetSettings::default()).await;
    let weigh = async |number, weight| {
        let settings = FacetSettings { weight: Some(weight), in_flight_max: None };
        let wakes = number == 3 && weight > 0;
        assert!(
            table.store.set_facet(&queue(EMAILS), canvas(number), settings, wakes, &tester()).await.unwrap()
        );
    };
    weigh(1, 3).await;
    weigh(3, 0).await;
    let mut copies = Vec::new();
    for number in 1..=3 {
        copies.extend(emit_emails(&table.store, canvas(number), 20).await);
    }
    let mut taken = Vec::new();
    for _ in 0..9 {
        taken.extend(canvases(&take(&table.store, 1).await));
    }
    assert_eq!(taken, [1, 1, 1, 2, 1, 1, 1, 2, 1]);
    let rest = canvases(&take(&table.store, 100).await);
    assert_eq!(rest.iter().filter(|canvas| **canvas == 3).count(), 0);
    assert_eq!(rest.len(), 31);
    let paused = table.store.load(&copies[59..]).await.unwrap().pop().flatten().unwrap();
    assert_eq!(paused.schedule.turn, Turn::Held);
    weigh(3, 1).await;
    assert_eq!(table.store.wake_page(Some(&queue("other"))).await.unwrap(), None);
    let woken = table.store.wake_page(None).await.unwrap().unwrap();
    assert_eq!(woken.len(), 20, "any worker may be first, should the one that asked die");
    assert!(woken.iter().all(|told| told.canvas == canvas(3)));
    assert_eq!(table.store.wake_page(None).await.unwrap(), None);
    let asks = TurnRequest { queue: queue(EMAILS), asks: copies[59] };
    let turns = events(table.store.take_turns(&vec![asks; 30], 2, i32::MAX).await);
    assert_eq!(turns.len(), 20, "its own notification brings the facet back");
}

#[tokio::test]
async fn a_facet_never_exceeds_its_in_flight_limit() {
    let facets = FacetSettings { weight: None, in_flight_max: Some(3) };
    let table = emails(facets).await;
    let copies = emit_emails(&table.store, canvas(1), 10).await;
    emit_emails(&table.store, canvas(2), 1).await;
    let mut taken = take(&table.store, 50).await;
    assert_eq!(canvases(&taken).iter().filter(|canvas| **canvas == 1).count(), 3);
    assert_eq!(taken.len(), 4);
    let turn = table.store.load(&copies[9..]).await.unwrap().pop().flatten().unwrap().schedule.turn;
    assert_eq!((turn, take(&table.store, 5).await.len()), (Turn::Held, 0));
    let first = taken.remove(0);
    assert!(first.is_limited);
    complete(&table.store, vec![first]).await;
    let ended = [(queue(EMAILS), canvas(2)), (queue(EMAILS), canvas(1)), (queue(EMAILS), canvas(1))];
    let rooms = table.store.room_in_facets_of(&ended).await.unwrap();
    let [none, room, again] = &rooms[..] else { panic!("one answer for each: {rooms:?}") };
    assert!(none.is_empty(), "it was never full");
    assert!(again.is_empty(), "a facet is looked at once, however many of its runs have ended");
    let [next] = room[..] else { panic!("one more may run: {room:?}") };
    assert!(copies[3..].contains(&next.id));
    let asks = TurnRequest { queue: queue(EMAILS), asks: next.id };
    let turns = events(table.store.take_turns(&vec![asks; 5], 2, i32::MAX).await);
    let turns: Vec<_> = turns.into_iter().map(|event| event.claim.id).collect();
    assert_eq!(turns, [copies[3]]);
    // An owner that is lost does not count.
    table.end_leases().await;
    let asks = TurnRequest { queue: queue(EMAILS), asks: copies[1] };
    let turns = events(table.store.take_turns(&vec![asks; 5], 9, i32::MAX).await);
    assert_eq!(turns.into_iter().filter(|event| event.address.scope.canvas == canvas(1)).count(), 3);
}

/// Room in a facet that was never full wakes nothing, as what waits there has its notifications.
/// After it was full, that holds again once it was found empty.
#[tokio::test]
async fn free_capacity_wakes_copies_only_in_facets_that_were_full() {
    let table = emails(FacetSettings { weight: None, in_flight_max: Some(3) }).await;
    emit_emails(&table.store, canvas(1), 6).await;
    let room = async || {
        let ended = [(queue(EMAILS), canvas(1))];
        table.store.room_in_facets_of(&ended).await.unwrap().concat().len()
    };
    let mut running = take(&table.store, 2).await;
    complete(&table.store, running.drain(..1).collect()).await;
    assert_eq!(room().await, 0, "two ran, and three may");
    running.extend(take(&table.store, 2).await);
    complete(&table.store, running.drain(..2).collect()).await;
    assert_eq!(room().await, 2, "three ran, two wait");
    running.extend(take(&table.store, 1).await);
    complete(&table.store, running.drain(..1).collect()).await;
    assert_eq!(room().await, 1, "two ran, but one may still wait that nobody was told of");
    running.extend(take(&table.store, 3).await);
    emit_emails(&table.store, canvas(1), 2).await;
    assert_eq!((running.len(), room().await), (2, 0), "it was empty when the last one was taken");
}

/// A copy that was passed over is recalled by its own notification, before later ones.
#[tokio::test]
async fn a_copy_that_its_facet_passed_over_is_recalled() {
    let table = emails(FacetSettings::default()).await;
    table.run("update wakeq.queues set tenant_visible = true").await;
    let scope = email(canvas(1)).address.scope;
    let held = emit_emails(&table.store, canvas(1), 3).await;
    let free = emit(&table.store, (0..3).map(|_| event(canvas(1), "email_event", "closed")).collect()).await;
    table.store.add_rule(RuleKind::Pause, &scope, None, None, &tester()).await.unwrap();
    let ids = |taken: Vec<ClaimedEvent>| taken.into_iter().map(|event| event.claim.id).collect::<Vec<_>>();
    assert_eq!(ids(take(&table.store, 1).await), [free[0]], "those of the paused handler are passed over");
    assert_eq!(table.store.park(&held).await.unwrap(), [true; 3]);
    let lifted = table.store.lift_rule(RuleKind::Pause, &scope, &tester()).await.unwrap();
    assert_eq!(table.store.resume_page(lifted.jobs[0]).await.unwrap().notifications.len(), 3);
    let asks = TurnRequest { queue: queue(EMAILS), asks: held[1] };
    let turns = events(table.store.take_turns(&[asks], 2, i32::MAX).await);
    assert_eq!(ids(turns), [held[1]]);
    table.store.announce(&held).await.unwrap();
    assert_eq!(ids(take(&table.store, 9).await), [held[0], held[2], free[1], free[2]]);
}

/// An event that was lost before is never taken by another's turn; its own notification takes it,
/// alone.
#[tokio::test]
async fn a_suspect_is_only_taken_by_its_own_notification() {
    let table = emails(FacetSettings::default()).await;
    let copies = emit_emails(&table.store, canvas(1), 2).await;
    table.run("update wakeq.events_v2 set claims = 2, losses = 2").await;
    assert_eq!(take(&table.store, 5).await.len(), 0);
    let taken = table.store.take_alone(&queue(EMAILS), copies[1], i32::MAX, i32::MAX).await.unwrap().unwrap();
    assert_eq!((taken.claim.id, taken.claim.claims), (copies[1], 3));
    assert!(table.store.take_alone(&queue(EMAILS), copies[1], i32::MAX, i32::MAX).await.unwrap().is_none());
}

/// Copies of events on one object run in its order, whatever handlers they name; others do not
/// wait.
#[tokio::test]
async fn copies_of_events_on_an_object_run_in_its_order() {
    let table = emails(FacetSettings::default()).await;
    let on = |object: Option<&str>, name: &str| NewEvent {
        object: object.map(|object| object.parse().unwrap()),
        ..event(canvas(1), "email_event", name)
    };
    let emitted = [
        on(Some("mail:1"), "sent"),
        on(Some("mail:1"), "opened"),
        on(None, "sent"),
        on(Some("mail:2"), "sent"),
    ];
    let inserted = table.store.insert_all(&emitted, &[false; 4]).await.unwrap();
    let copies: Vec<EventId> = inserted.iter().flat_map(InsertOutcome::copies).copied().collect();
    assert_eq!(copies.len(), 4);
    table.store.announce(&copies).await.unwrap();
    let taken = take(&table.store, 9).await;
    let ids: BTreeSet<EventId> = taken.iter().map(|event| event.claim.id).collect();
    assert_eq!(ids, BTreeSet::from([copies[0], copies[2], copies[3]]));
    let first = taken.into_iter().find(|event| event.claim.id == copies[0]).unwrap();
    let lane = crate::event::Lane {
        scope: first.address.scope.clone(),
        object: "mail:1".parse().unwrap(),
        queue: Some(queue(EMAILS)),
    };
    assert_eq!(table.store.firsts(std::slice::from_ref(&lane)).await.unwrap(), [None], "it runs");
    assert_eq!(table.store.complete_links(&[first.claim]).await.unwrap(), [true]);
    let next = table.store.firsts(&[lane]).await.unwrap()[0].unwrap();
    assert_eq!(next.id, copies[1]);
    let turn = TurnRequest { queue: queue(EMAILS), asks: next.id };
    assert_eq!(events(table.store.take_turns(&[turn], 2, i32::MAX).await)[0].claim.id, copies[1]);
}

/// In small: emitters, takers, and takers that drop what they took; every copy is completed once.
// Shows: DRV-08, DRV-12
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn copies_pushed_are_copies_completed_and_waiting() {
    let table = emails(FacetSettings { weight: None, in_flight_max: Some(50) }).await;
    let mut tasks = tokio::task::JoinSet::new();
    let config = || StoreConfig { lock_timeout: Duration::from_secs(4), ..StoreConfig::default() };
    for emitter in 0..4_u128 {
        let store = table.other_store(config()).await;
        tasks.spawn(async move {
            for round in 0..50 {
                emit_emails(&store, canvas(1 + (emitter + round) % 7), 10).await;
            }
            0
        });
    }
    for _ in 0..4 {
        let store = table.other_store(config()).await;
        tasks.spawn(async move {
            let (mut completed, mut rounds) = (0, 0);
            while completed < 400 && rounds < 500 {
                rounds += 1;
                let mut taken = take(&store, 16).await;
                let dropped: Vec<_> = taken.iter().step_by(5).map(|event| event.claim).collect();
                store.release(&dropped).await.unwrap();
                taken.retain(|event| !dropped.contains(&event.claim));
                completed += taken.len();
                complete(&store, taken).await;
            }
            completed
        });
    }
    let completed: usize = tasks.join_all().await.into_iter().sum();
    let waiting = table.number("select count(*) from wakeq.events_v2").await;
    assert_eq!(completed + usize::try_from(waiting).unwrap(), 2000);
    assert!(completed > 0, "nobody took anything");
    let announce_all = async || {
        let ids: Vec<Uuid> =
            sqlx::query_scalar("select id from wakeq.events_v2").fetch_all(&table.pool).await.unwrap();
        table.store.announce(&ids.into_iter().map(EventId).collect::<Vec<_>>()).await.unwrap();
    };
    // A copy that was dropped or never announced again asks for its own turn.
    announce_all().await;
    let mut left = 0;
    loop {
        let taken = take(&table.store, 100).await;
        if taken.is_empty() {
            break;
        }
        left += taken.len();
        complete(&table.store, taken).await;
        announce_all().await;
    }
    assert_eq!(left, usize::try_from(waiting).unwrap());
    assert_eq!(table.store.end_drained().await.unwrap(), 0);
    assert_eq!(
        table.number("select count(*) from wakeq.facets").await,
        0,
        "DRV-08: nothing waits, no facet is left"
    );
}

/// Unregistering: what waits is drained, or dropped; then the queue is gone.
#[tokio::test]
async fn an_unregistered_queue_goes_with_its_last_copy() {
    let table = emails(FacetSettings::default()).await;
    emit_emails(&table.store, canvas(1), 3).await;
    assert!(!table.store.drop_copies(&queue(EMAILS)).await.unwrap(), "it is no page");
    assert_eq!(
        table.number("select count(*) from wakeq.events_v2").await,
        3,
        "nothing is dropped of one that stands"
    );
    assert!(table.store.drain_queue(&queue(EMAILS), &tester()).await.unwrap());
    assert!(!table.store.drain_queue(&queue("none"), &tester()).await.unwrap());
    assert_eq!(emit_emails(&table.store, canvas(1), 2).await, []);
    let taken = take(&table.store, 1).await;
    assert_eq!(table.store.end_drained().await.unwrap(), 0);
    table.store.drop_copies(&queue(EMAILS)).await.unwrap();
    assert_eq!(table.number("select count(*) from wakeq.events_v2").await, 1, "what runs ends as it would");
    complete(&table.store, taken).await;
    assert_eq!(table.store.end_drained().await.unwrap(), 1);
    assert_eq!(table.store.queues(None).await.unwrap(), []);
}
