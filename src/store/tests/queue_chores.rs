//! Queues apart from their turns: what the minute's pass does with them, and what operators change
//! at the same time.

use std::collections::HashSet;

use sqlx::Connection;
use uuid::Uuid;

use super::queues::{EMAILS, canvas, canvases, complete, emails, emit_emails, queue, register, take};
use super::tester;
use crate::event::{CanvasId, EventId, Notification};
use crate::store::{FacetSettings, QueuePut};

const ONE: FacetSettings = FacetSettings { weight: None, in_flight_max: Some(1) };

/// The search for room continues after the last facet that it visited, across queues: each facet is
/// found once.
#[tokio::test]
async fn every_limited_facet_is_visited_once() {
    let table = emails(ONE).await;
    register(&table.store, "second", &["none"], ONE).await;
    let copies = "insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value, queue, origin)
         select gen_random_uuid(), ('00000000-0000-0000-0000-' || lpad(to_hex(n), 12, '0'))::uuid, 'email_event', 'opened', '_', '1',
                queue, gen_random_uuid()
           from (values ('emails', 700), ('second', 800)) as of (queue, count), generate_series(1, of.count) n";
    table.run(copies).await;
    table.run("insert into wakeq.facets (queue, canvas_id, was_full) select queue, canvas_id, true from wakeq.events_v2").await;
    // Nothing waits in these, and they are visited all the same.
    table.run("delete from wakeq.events_v2 where queue = 'emails' and canvas_id in (
                   select canvas_id from wakeq.facets where queue = 'emails' order by canvas_id offset 490 limit 20)").await;
    let (mut after, mut pages, mut found) = (None, Vec::new(), Vec::new());
    loop {
        let (room, last) = table.store.room_in_facets(after.as_ref()).await.unwrap();
        pages.push(room.len());
        found.extend(room.into_iter().map(|told| told.id.0));
        after = last;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(pages, [490, 490, 500, 0]);
    let all: Vec<Uuid> =
        sqlx::query_scalar("select id from wakeq.events_v2").fetch_all(&table.pool).await.unwrap();
    assert_eq!(found.len(), all.len());
    assert_eq!(found.into_iter().collect::<HashSet<_>>(), all.into_iter().collect());
}

/// Takes the next copy of a facet with a limit of one, in a transaction or alone.
const TURN: &str = "select id from wakeq.take_turns('emails', $1, 1, false, '1 min', 2)";
const RUNNING: &str = "select cardinality(running)::bigint from wakeq.facets where canvas_id = '00000000-0000-0000-0000-000000000001'";

/// A facet that a turn fills while it is about to be deleted for having no copies is kept: what it
/// has in flight is stored only there.
#[tokio::test]
async fn a_facet_is_not_forgotten_beside_a_turn() {
    let table = emails(ONE).await;
    emit_emails(&table.store, canvas(1), 1).await;
    complete(&table.store, take(&table.store, 1).await).await;
    let leaves = async || {
        assert_eq!(take(&table.store, 1).await.len(), 0);
        assert!(table.holds("select position is null from wakeq.facets").await);
    };
    leaves().await;

    // The turn is not committed yet.
    let mut turn = table.pool.begin().await.unwrap();
    let copy = Uuid::new_v4();
    let insert = "insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value, queue, origin)
         values ($1, $2, 'email_event', 'opened', '_', '1', 'emails', gen_random_uuid())";
    sqlx::query(insert).bind(copy).bind(canvas(1).0).execute(&mut *turn).await.unwrap();
    sqlx::query(TURN).bind(vec![copy]).fetch_one(&mut *turn).await.unwrap();
    table.store.end_drained().await.unwrap();
    turn.commit().await.unwrap();
    assert_eq!(table.number(RUNNING).await, 1);

    // The turn commits after the snapshot in which its facet is empty, and before the deletion.
    table.run("delete from wakeq.events_v2").await;
    leaves().await;
    let drained = "insert into wakeq.queues (name, draining, created_by, updated_by) values ('old', true, 'test', 'test')";
    table.run(drained).await;
    let mut held = table.pool.begin().await.unwrap();
    let row = "select from wakeq.queues where name = 'old' for update";
    sqlx::query(row).execute(&mut *held).await.unwrap();
    let store = table.store.clone();
    let ending = tokio::spawn(async move { store.end_drained().await });
    table.until_waiting(1).await;
    sqlx::query(insert).bind(copy).bind(canvas(1).0).execute(&table.pool).await.unwrap();
    sqlx::query(TURN).bind(vec![copy]).fetch_one(&table.pool).await.unwrap();
    held.rollback().await.unwrap();
    assert_eq!(ending.await.unwrap().unwrap(), 1);
    assert_eq!(table.number(RUNNING).await, 1);
    emit_emails(&table.store, canvas(1), 1).await;
    emit_emails(&table.store, canvas(2), 1).await;
    assert_eq!(canvases(&take(&table.store, 5).await), [2], "one of the first canvas runs, and no more may");
}

/// A registration and a removal of one queue lock in the same order: whichever waits for the
/// registry holds nothing of the queue, and both succeed.
#[tokio::test]
async fn operators_change_a_queue_one_after_the_other() {
    let table = emails(ONE).await;
    let mut held = table.pool.begin().await.unwrap();
    sqlx::query("select from wakeq.queue_registry for update").execute(&mut *held).await.unwrap();
    let store = table.store.clone();
    let draining = tokio::spawn(async move { store.drain_queue(&queue(EMAILS), &tester()).await });
    table.until_waiting(1).await;
    let store = table.store.clone();
    let putting = tokio::spawn(async move { register(&store, EMAILS, &["other"], ONE).await });
    table.until_waiting(2).await;
    let mut other = table.pool.acquire().await.unwrap();
    let mut look = other.begin().await.unwrap();
    let free = "select from wakeq.queues where name = 'emails' for update nowait";
    sqlx::query(free)
        .execute(&mut *look)
        .await
        .expect("somebody holds the queue, and waits for the registry");
    look.rollback().await.unwrap();
    held.rollback().await.unwrap();
    assert!(draining.await.unwrap().unwrap());
    assert_eq!(putting.await.unwrap(), QueuePut::Replaced);
    let found = table.store.queues(Some(&queue(EMAILS))).await.unwrap().pop().unwrap();
    assert_eq!((found.patterns, found.draining), (vec!["other".to_owned()], false));
}

/// The minute's pass attends to queues when a canvas is unpaused in one, even if no facet has a
/// limit.
#[tokio::test]
async fn an_unpaused_canvas_makes_the_pass_visit_its_queue() {
    let table = emails(FacetSettings::default()).await;
    let minute = async || {
        table.run("update wakeq.chores set next_at = now() where name = 'minute'").await;
        table.store.minute(false, None).await.unwrap().queues
    };
    emit_emails(&table.store, canvas(1), 1).await;
    assert!(!minute().await);
    let weigh = async |of: CanvasId, weight, wakes| {
        let settings = FacetSettings { weight: Some(weight), in_flight_max: None };
        assert!(table.store.set_facet(&queue(EMAILS), of, settings, wakes, &tester()).await.unwrap());
    };
    weigh(canvas(2), 0, false).await;
    assert!(!minute().await, "it is paused");
    weigh(canvas(2), 1, true).await;
    assert!(minute().await);
    assert_eq!(table.store.wake_page(None).await.unwrap(), Some(Vec::new()), "nothing of it waits");
    assert!(!minute().await);
}

/// Whether a queue is pulled is looked up for copies alone, as most events are in no queue.
#[tokio::test]
async fn events_in_no_queue_are_not_looked_up_among_pulled_ones() {
    let table = emails(FacetSettings::default()).await;
    for of in [1, 2] {
        emit_emails(&table.store, canvas(of), 1).await;
    }
    table.add(3).await;
    table.run("update wakeq.queues set pulled = true, in_flight_max = 10").await;
    table
        .run(
            "create or replace function wakeq.is_pulled(queue text) returns boolean language plpgsql stable as $$
             begin
                 if queue is null then
                     raise exception 'it was called for an event in no queue';
                 end if;
                 return exists (select from wakeq.queues q where q.name = is_pulled.queue and q.pulled);
             end
             $$",
        )
        .await;
    let all = sqlx::query_as::<_, (Uuid, Uuid)>("select id, canvas_id from wakeq.events_v2");
    let all = all.fetch_all(&table.pool).await.unwrap().into_iter();
    let told: Vec<_> = all.map(|(id, of)| Notification::new(EventId(id), CanvasId(of))).collect();
    let split = table.store.split_pulled(&told).await.unwrap();
    assert_eq!((told.len(), split.workers.len(), split.pulled.len()), (5, 3, 1));
    assert!(split.workers.iter().all(|event| event.canvas == CanvasId::DEFAULT));
}
