//! Copies beside their originals: their links, and the ids of their events.

use std::sync::Arc;

use uuid::Uuid;

use super::queues::{canvas, complete, email, emails, register, take};
use super::{Table, tester};
use crate::event::{CanvasId, Cause, EventId, NewEvent, ObjectKey, Turn};
use crate::store::{DeadFilter, FacetSettings, InsertOutcome, Retention};

/// A redriven copy is seen only by its queue: other consumers of the object's chain miss nothing,
/// and those of the queue process it after what was there before.
#[tokio::test]
async fn a_redriven_copy_leaves_the_chain_of_its_object_alone() {
    let table = emails(FacetSettings::default()).await;
    let key: ObjectKey = "work:1".parse().unwrap();
    let emit_on = async |of: CanvasId| {
        let event = NewEvent { object: Some(key.clone()), only_queues: false, ..email(of) };
        let inserted = table.store.insert_on(&[event], &[false], None).await.unwrap();
        table.store.announce(inserted[0].copies()).await.unwrap();
        let InsertOutcome::New { link: Some(link), .. } = inserted[0] else { panic!("{inserted:?}") };
        link
    };
    let first = emit_on(canvas(1)).await;
    let dying = take(&table.store, 1).await.remove(0);
    assert!(table.store.die(dying.claim, Cause::Retries, Some("no"), false, None).await.unwrap());
    let (second, other) = (emit_on(canvas(1)).await, emit_on(canvas(2)).await);
    let filter = DeadFilter { canvas: canvas(1), ..DeadFilter::default() };
    let back = table.store.redrive_page(&filter, true, (0, 10), &tester()).await.unwrap().back;
    assert_eq!(back.iter().map(|told| told.id).collect::<Vec<_>>(), [dying.claim.id]);
    let third = emit_on(canvas(1)).await;
    assert_eq!((second.prev, third.prev), (first.id, second.id), "one after the other");
    assert_eq!(emit_on(canvas(2)).await.prev, other.id);
    let copy = table.store.load(&[dying.claim.id]).await.unwrap().pop().flatten().unwrap();
    let link = copy.place.unwrap().link;
    assert_eq!(link.prev, second.id, "a consumer of the queue takes it after what was there before");
    assert!(second.id < link.id && link.id < third.id, "and before what comes later");
    assert_eq!(copy.schedule.turn, Turn::Behind, "the queue has the second first");
}

/// A chosen id is remembered as long as a copy of its event waits in a queue, even if the event has
/// no row of its own.
#[tokio::test]
async fn a_chosen_id_is_known_as_long_as_a_copy_waits() {
    let table = emails(FacetSettings::default()).await;
    let chosen = |of| NewEvent { id: EventId::chosen(of, EventId(Uuid::nil())), ..email(of) };
    let emitted = async |of| {
        let inserted = table.store.insert_chosen(&chosen(of)).await.unwrap();
        table.store.announce(inserted.copies()).await.unwrap();
        inserted.copies().len()
    };
    let expire = async || {
        table.run("update wakeq.emitted_ids set due_at = now() - interval '1 year'").await;
        table.expire(Retention::default()).await;
    };
    assert_eq!((emitted(canvas(1)).await, emitted(canvas(2)).await), (1, 1));
    expire().await;
    assert_eq!((emitted(canvas(1)).await, emitted(canvas(2)).await), (0, 0), "known");
    let taken = take(&table.store, 1).await;
    let of = taken[0].address.scope.canvas;
    complete(&table.store, taken).await;
    expire().await;
    let other = if of == canvas(1) { canvas(2) } else { canvas(1) };
    assert_eq!((emitted(of).await, emitted(other).await), (1, 0), "forgotten when its copy is done");
}

/// However many queues copy them, events and copies are stored by one prepared statement.
// Shows: DRV-13
#[tokio::test]
async fn an_emit_is_one_statement_however_many_queues_copy_it() {
    let table = Table::of_one_connection().await;
    let executed = async || {
        let count = "select sum(generic_plans + custom_plans)::bigint from pg_prepared_statements where statement !~ 'pg_prepared'";
        let mut session = table.store.session().await.unwrap();
        let count = session.limit(|connection| sqlx::query_scalar(count).fetch_one(connection)).await;
        session.answered("count statements", count).await.unwrap()
    };
    let insert = async |count: usize| {
        let events: Vec<_> = (0..count).map(|_| Arc::new(email(canvas(1)))).collect();
        let inserted = table.store.insert(&events).await.unwrap();
        inserted.iter().map(|inserted| inserted.copies().len()).sum::<usize>()
    };
    for queues in 1..=5_usize {
        register(&table.store, &format!("queue-{queues}"), &["email"], FacetSettings::default()).await;
        // This process learns of the queue.
        insert(1).await;
        for events in [1, 10] {
            let before: i64 = executed().await;
            assert_eq!(insert(events).await, events * queues);
            assert_eq!(executed().await - before, 1, "{events} events for {queues} queues");
        }
    }
}
