//! Unique keys on Postgres: what takes a key, when it is free again, and what becomes of an event
//! that has it.

use std::sync::Arc;
use std::time::Duration;

use sqlx::AssertSqlSafe;

use super::queues::canvas;
use super::{Table, scope, tester};
use crate::event::{
    CanvasId, Cause, Due, EventId, HandlerAddress, HandlerScope, NewEvent, OnConflict, Unique, UniqueOutcome,
};
use crate::store::{DeadFilter, ExpiryPart, InsertOutcome, Renewal, Retention, Retry, Store};

const SECOND: Duration = Duration::from_secs(1);
pub(super) const HOUR: Duration = Duration::from_secs(3600);
pub(super) const QUIET: OnConflict = OnConflict::Postpone { by: SECOND, at_most: HOUR };

pub(super) fn key() -> Unique {
    Unique::key("invoice:42").unwrap()
}

pub(super) fn keyed(unique: Unique) -> NewEvent {
    let address = HandlerAddress { scope: scope(), modifier: "_".parse().unwrap() };
    NewEvent { unique: Some(Box::new(unique)), ..NewEvent::new(address, "1".into()) }
}

/// The id of the event that stands after an emit, and what was done.
pub(super) async fn emit(store: &Store, event: NewEvent) -> (EventId, UniqueOutcome) {
    match store.insert_unique(&event).await.unwrap() {
        InsertOutcome::New { .. } => (event.id, UniqueOutcome::Inserted),
        InsertOutcome::Stands { id, outcome, .. } => (id, outcome),
        InsertOutcome::Known => panic!("it has no id of the caller's choice"),
    }
}

impl Table {
    pub(super) async fn emit_key(&self, unique: Unique) -> (EventId, UniqueOutcome) {
        emit(&self.store, keyed(unique)).await
    }

    /// The events that have a key now.
    pub(super) async fn holders(&self) -> i64 {
        self.number("select count(*) from wakeq.events_v2 where unique_key is not null").await
    }
}

/// While it waits: one that was claimed frees the key for the next emit, and runs on. Afterwards
/// the key is the new event's.
#[tokio::test]
async fn a_key_is_taken_while_its_event_waits() {
    let table = Table::new().await;
    let (first, outcome) = table.emit_key(key()).await;
    assert_eq!(outcome, UniqueOutcome::Inserted);
    assert_eq!(table.emit_key(key()).await, (first, UniqueOutcome::Kept));
    let claims = table.claim(&[first]).await;
    let (second, outcome) = table.emit_key(key()).await;
    assert!(second != first && outcome == UniqueOutcome::Inserted);
    assert_eq!(table.emit_key(key()).await, (second, UniqueOutcome::Kept));
    assert_eq!((table.store.renew(&claims).await.unwrap(), table.left().await), (vec![Renewal::Renewed], 2));
    assert_eq!(table.store.complete(&claims).await.unwrap(), [true]);
    assert_eq!(table.emit_key(key()).await, (second, UniqueOutcome::Kept));
    assert_eq!((table.left().await, table.holders().await), (1, 1));
}

/// A claim alone does not take the key away: what is given up or retried has it as before. But once
/// another event waits with the key, the retried one waits without.
#[tokio::test]
async fn a_retried_event_has_its_key_unless_it_was_given_on() {
    let table = Table::new().await;
    let (first, _) = table.emit_key(key()).await;
    let claims = table.claim(&[first]).await;
    table.store.release(&claims).await.unwrap();
    assert_eq!(table.emit_key(key()).await, (first, UniqueOutcome::Kept));
    let retry =
        |claim| Arc::new(Retry { claim, retries: 1, delay: Duration::ZERO, error: "no".into(), noted: None });
    let claim = table.claim(&[first]).await[0];
    assert_eq!(table.store.retry(&[retry(claim)]).await.unwrap(), [true]);
    assert_eq!(table.emit_key(key()).await, (first, UniqueOutcome::Kept));

    let claim = table.claim(&[first]).await[0];
    let (second, _) = table.emit_key(key()).await;
    assert_eq!(table.store.retry(&[retry(claim)]).await.unwrap(), [true]);
    assert_eq!(table.emit_key(key()).await, (second, UniqueOutcome::Kept));
    assert_eq!((table.left().await, table.holders().await), (2, 1), "both wait");
    let claims = table.claim(&[first, second]).await;
    assert_eq!(table.store.complete(&claims).await.unwrap(), [true, true]);
}

/// An event whose worker was lost counts as running: it may have begun.
#[tokio::test]
async fn a_lost_event_counts_as_running() {
    let table = Table::new().await;
    let (first, _) = table.emit_key(key()).await;
    table.claim(&[first]).await;
    table.end_leases().await;
    let (second, outcome) = table.emit_key(key()).await;
    assert!(second != first && outcome == UniqueOutcome::Inserted);
    assert_eq!(table.claim(&[first, second]).await.len(), 2);
}

#[tokio::test]
async fn a_key_is_taken_until_its_event_has_ended() {
    let table = Table::new().await;
    let ends = || key().until_ended();
    let (first, _) = table.emit_key(ends()).await;
    let claims = table.claim(&[first]).await;
    for unique in [ends(), key(), ends().on_conflict(OnConflict::Replace), ends().on_conflict(QUIET)] {
        assert_eq!(table.emit_key(unique).await, (first, UniqueOutcome::Kept), "it runs");
    }
    table.store.complete(&claims).await.unwrap();
    let (second, outcome) = table.emit_key(ends()).await;
    assert!(second != first && outcome == UniqueOutcome::Inserted);
    assert!(table.store.cancel(CanvasId::DEFAULT, second, &tester()).await.is_ok());
    assert_eq!(table.emit_key(ends()).await.1, UniqueOutcome::Inserted, "it was cancelled");
}

/// A dead event has lost its key, and comes back without one.
#[tokio::test]
async fn a_redriven_event_has_no_key() {
    let table = Table::new().await;
    let (first, _) = table.emit_key(key().until_ended()).await;
    let claim = table.claim(&[first]).await[0];
    assert!(table.store.die(claim, Cause::Retries, None, false, None).await.unwrap());
    let (second, outcome) = table.emit_key(key().until_ended()).await;
    assert_eq!(outcome, UniqueOutcome::Inserted);
    let back =
        table.store.redrive_page(&DeadFilter::default(), false, (0, 10), &tester()).await.unwrap().back;
    assert_eq!(back.iter().map(|told| told.id).collect::<Vec<_>>(), [first]);
    assert_eq!((table.left().await, table.holders().await), (2, 1));
    assert_eq!(table.store.unique_key(CanvasId::DEFAULT, first).await.unwrap(), None);
    let found = table.store.unique_key(CanvasId::DEFAULT, second).await.unwrap();
    assert_eq!(found.as_deref(), Some("invoice:42"));
    assert_eq!(table.store.unique_key(canvas(7), second).await.unwrap(), None, "another canvas's");
}

/// For a time after it was due: whoever asks, and also once it has ended; then the key is free,
/// whether or not it was forgotten.
#[tokio::test]
async fn a_key_is_remembered_for_a_time() {
    let table = Table::new().await;
    let remembered = || key().remembered_for(HOUR);
    let (first, _) = table.emit_key(remembered()).await;
    let claims = table.claim(&[first]).await;
    table.store.complete(&claims).await.unwrap();
    for unique in [remembered(), key(), key().until_ended().on_conflict(OnConflict::Replace)] {
        assert_eq!(table.emit_key(unique).await, (first, UniqueOutcome::Kept));
    }
    assert_eq!(table.left().await, 0);
    table.run("update wakeq.unique_keys set until = until - interval '2 hours'").await;
    let (second, outcome) = table.emit_key(remembered()).await;
    assert_eq!(outcome, UniqueOutcome::Inserted);
    let kept = "select extract(epoch from until - now())::bigint from wakeq.unique_keys";
    assert!((3_590..=3_600).contains(&table.number(kept).await));
    let later = NewEvent { due: Due::After(HOUR), ..keyed(key().on_conflict(OnConflict::Replace)) };
    assert_eq!(emit(&table.store, later).await, (second, UniqueOutcome::Replaced));
    assert!((7_190..=7_200).contains(&table.number(kept).await), "as long after the new due time");
}

/// Old keys are forgotten in pages, those of other canvases and fresh ones stay.
#[tokio::test]
async fn old_keys_are_forgotten_page_by_page() {
    let table = Table::new().await;
    table
        .run(
            "insert into wakeq.unique_keys (canvas_id, module, name, key, event_id, until)
             select case n % 2 when 0 then '00000000-0000-0000-0000-0000000000f0'::uuid
                               else '00000000-0000-0000-0000-000000000000' end,
                    'WORKER', 'known', 'k' || n / 2, gen_random_uuid(),
                    now() + case when n < 2 then interval '1 hour' else n * interval '-1 ms' end
               from generate_series(0, 1501) n",
        )
        .await;
    let page = async || table.store.expire(ExpiryPart::UniqueKeys, Retention::default()).await.unwrap();
    assert!(page().await && !page().await);
    assert_eq!(table.number("select count(*) from wakeq.unique_keys where key = 'k0'").await, 2);
    assert_eq!(table.number("select count(*) from wakeq.unique_keys").await, 2);
}

/// The value, the modifier, the trace and the due time are the new ones, and the retries begin
/// anew. Its id, its claims and when it was emitted stay.
#[tokio::test]
async fn a_replaced_event_begins_anew() {
    let table = Table::new().await;
    let (first, _) = table.emit_key(key()).await;
    let claim = table.claim(&[first]).await[0];
    let retry = Retry { claim, retries: 2, delay: HOUR, error: "no".into(), noted: None };
    table.store.retry(&[Arc::new(retry)]).await.unwrap();
    table.run("update wakeq.events_v2 set losses = 1, probes = 3, postponed_since = now()").await;
    table.run("create table public.before as select id, enqueued_at, traceparent from wakeq.events_v2").await;
    let mut new = keyed(key().on_conflict(OnConflict::Replace));
    (new.value, new.address.modifier) = ("2".into(), "eu".parse().unwrap());
    let due_soon = table.store.insert_unique(&new).await.unwrap();
    let expected =
        InsertOutcome::Stands { id: first, outcome: UniqueOutcome::Replaced, due_soon: true, room: None };
    assert_eq!(due_soon, expected, "an hour away there was no notification of it");
    assert!(
        table
            .holds(
                "select e.value = '2' and e.modifier = 'eu' and e.traceparent <> b.traceparent and e.retries = 0
                        and e.losses = 0 and e.probes = 0 and e.claims = 1 and e.last_error is null
                        and e.postponed_since is null and e.enqueued_at = b.enqueued_at and e.delay_until <= now()
                        and e.notify_at between now() and now() + interval '30 s'
                   from wakeq.events_v2 e join public.before b on b.id = e.id"
            )
            .await
    );
    let again = keyed(key().on_conflict(OnConflict::Replace));
    let known =
        InsertOutcome::Stands { id: first, outcome: UniqueOutcome::Replaced, due_soon: false, room: None };
    assert_eq!(table.store.insert_unique(&again).await.unwrap(), known, "its notification is on its way");
}

/// A debounce under a steady stream ends: however often an event is postponed, it is due at most
/// the longest wait after it was emitted, and never earlier than before.
#[tokio::test]
async fn a_postponed_event_has_a_longest_wait() {
    let table = Table::new().await;
    let waits = |by: u64, at_most: u64| {
        let [by, at_most] = [by, at_most].map(Duration::from_secs);
        NewEvent { due: Due::After(by), ..keyed(key().on_conflict(OnConflict::Postpone { by, at_most })) }
    };
    let (first, _) = emit(&table.store, waits(10, 60)).await;
    let due = "select round(extract(epoch from delay_until - enqueued_at))::bigint from wakeq.events_v2";
    assert_eq!(table.number(due).await, 10);
    for (passed, expected) in [(5, 15), (20, 30), (45, 55), (52, 60), (59, 60), (70, 60), (3600, 60)] {
        let aged = format!(
            "update wakeq.events_v2 set delay_until = now() - $1 * interval '1 s' + (delay_until - enqueued_at),
                    enqueued_at = now() - $1 * interval '1 s' where id = '{first}'"
        );
        sqlx::query(AssertSqlSafe(aged)).bind(passed).execute(&table.pool).await.unwrap();
        let (id, outcome) = emit(&table.store, waits(10, 60)).await;
        assert!(id == first && matches!(outcome, UniqueOutcome::Postponed { .. }), "{outcome:?}");
        // A busy machine may take seconds; the bound does not move.
        let late = if expected == 60 { 0 } else { 5 };
        assert!((expected..=expected + late).contains(&table.number(due).await), "after {passed} s");
    }
    let (id, outcome) = emit(&table.store, waits(1, 7200)).await;
    let later = "select round(extract(epoch from delay_until - now()))::bigint from wakeq.events_v2";
    assert!(id == first && matches!(outcome, UniqueOutcome::Postponed { .. }));
    assert!((-5..=1).contains(&table.number(later).await), "of two bounds that of the last emit counts");
}

/// One that was cancelled while it ran has its key as any that runs. Once it runs no more it is as
/// good as gone, and nothing that is emitted gets its mark.
#[tokio::test]
async fn a_cancelled_event_is_neither_replaced_nor_postponed() {
    for unique in [key(), key().until_ended()] {
        for conflict in [OnConflict::Keep, OnConflict::Replace, QUIET] {
            let table = Table::new().await;
            let again = || unique.clone().on_conflict(conflict);
            let (first, _) = table.emit_key(unique.clone()).await;
            let claim = table.claim(&[first]).await[0];
            table.store.cancel_running(CanvasId::DEFAULT, first, &tester()).await.unwrap();
            if unique.held_for().is_some() {
                assert_eq!(table.emit_key(again()).await, (first, UniqueOutcome::Kept));
            }
            let retry = Retry { claim, retries: 1, delay: HOUR, error: "no".into(), noted: None };
            table.store.retry(&[Arc::new(retry)]).await.unwrap();
            let (second, outcome) = table.emit_key(again()).await;
            assert!(second != first && outcome == UniqueOutcome::Inserted, "{conflict:?}: {outcome:?}");
            let marked =
                "select count(*) from wakeq.events_v2 where cancelled_by is not null and unique_key is null";
            assert_eq!((table.holders().await, table.number(marked).await, table.left().await), (1, 1, 2));
            assert_eq!(table.store.remove_unclaimed_cancelled().await.unwrap().0, 1);
            assert_eq!(table.emit_key(key()).await, (second, UniqueOutcome::Kept));
        }
    }
}

/// An event under a rule stays parked, whatever its new due time is.
#[tokio::test]
async fn a_parked_event_stays_parked() {
    let table = Table::new().await;
    let (first, _) = table.emit_key(key()).await;
    table.run("update wakeq.events_v2 set notify_at = null").await;
    for conflict in [OnConflict::Replace, QUIET] {
        let changed = table.store.insert_unique(&keyed(key().on_conflict(conflict))).await.unwrap();
        assert!(
            matches!(changed, InsertOutcome::Stands { id, due_soon: false, .. } if id == first),
            "{changed:?}"
        );
        assert!(table.holds("select notify_at is null from wakeq.events_v2").await);
    }
}

/// The same key of another handler, and of another canvas, is another key.
#[tokio::test]
async fn a_key_is_its_handlers_on_its_canvas() {
    let table = Table::new().await;
    let of = |canvas, name: &str| {
        let scope = HandlerScope::worker(canvas, name).unwrap();
        NewEvent { address: HandlerAddress { scope, modifier: "_".parse().unwrap() }, ..keyed(key()) }
    };
    for (on, name) in [(CanvasId::DEFAULT, "known"), (CanvasId::DEFAULT, "other"), (canvas(7), "known")] {
        let (first, outcome) = emit(&table.store, of(on, name)).await;
        assert_eq!(outcome, UniqueOutcome::Inserted, "{on} {name}");
        let (address, value) = (of(on, name).address, format!("\"{on}\""));
        let replaced = NewEvent { address, value, ..keyed(key().on_conflict(OnConflict::Replace)) };
        assert_eq!(emit(&table.store, replaced).await, (first, UniqueOutcome::Replaced));
    }
    assert_eq!(table.number("select count(distinct (canvas_id, value)) from wakeq.events_v2").await, 2);
    assert_eq!((table.left().await, table.holders().await), (3, 3));
}
