//! Options of events on Postgres: each way to emit writes them, and they go along with the event
//! until it has ended; but not with its copies.

use std::sync::Arc;
use std::time::Duration;

use sqlx::AssertSqlSafe;

use super::queues::{canvas, complete, email, emails, take};
use super::unique::{QUIET, emit, key, keyed};
use super::{Table, limits, scope, tester, told};
use crate::event::{
    CanvasId, Cause, Event, EventId, EventOptions, HandlerAddress, NewEvent, OnConflict, UniqueOutcome,
};
use crate::store::{DeadFilter, FacetSettings, InsertOutcome};

/// What an event asks for that is to be retried this often.
fn retried(retries: u32) -> Option<Box<EventOptions>> {
    Event::new("known", &1).unwrap().retries(retries).unwrap().options
}

/// An event with options, for a handler that claims know.
fn asking(retries: u32) -> NewEvent {
    NewEvent { options: retried(retries), ..plain() }
}

fn plain() -> NewEvent {
    let address = HandlerAddress { scope: scope(), modifier: "_".parse().unwrap() };
    NewEvent::new(address, "1".into())
}

impl Table {
    /// The options of a row, as they are loaded, which is how many retries they ask for.
    async fn options(&self, id: EventId) -> Option<u32> {
        let loaded = self.store.load(&[id]).await.unwrap().pop().flatten().expect("it waits");
        loaded.options?.retries()
    }
}

#[tokio::test]
async fn each_way_to_emit_keeps_the_options() {
    let table = Table::new().await;
    let chosen = NewEvent { id: EventId::chosen(CanvasId::DEFAULT, EventId::new()), ..asking(1) };
    assert!(matches!(table.store.insert_chosen(&chosen).await.unwrap(), InsertOutcome::New { .. }));
    let alone = Arc::new(asking(2));
    table.store.insert_alone(&alone).await.unwrap();
    let together = [asking(3), plain(), asking(4)];
    table.store.insert_all(&together, &[false; 3]).await.unwrap();
    let on_object = NewEvent { object: Some("work:1".parse().unwrap()), ..asking(5) };
    table.store.insert_on(std::slice::from_ref(&on_object), &[false], None).await.unwrap();
    let unique = NewEvent { options: retried(6), ..keyed(key()) };
    table.store.insert_unique(&unique).await.unwrap();
    let [third, none, fourth] = together.map(|event| event.id);
    for (id, retries) in [
        (chosen.id, Some(1)),
        (alone.id, Some(2)),
        (third, Some(3)),
        (none, None),
        (fourth, Some(4)),
        (on_object.id, Some(5)),
        (unique.id, Some(6)),
    ] {
        assert_eq!(table.options(id).await, retries);
    }
    assert_eq!(table.number("select count(*) from wakeq.events_v2 where options is null").await, 1);
}

/// A claim brings them, and a dead event has them again after a redrive.
#[tokio::test]
async fn options_go_along_until_the_event_has_ended() {
    let table = Table::new().await;
    let event = asking(7);
    table.store.insert_all(std::slice::from_ref(&event), &[false]).await.unwrap();
    let claimed = table.store.claim(&told(&[event.id]), &limits()).await.unwrap().remove(0).unwrap();
    assert_eq!(claimed.options, event.options);
    assert!(table.store.die(claimed.claim, Cause::Expired, None, false, None).await.unwrap());
    let dead = table.store.dead_event(CanvasId::DEFAULT, event.id).await.unwrap().unwrap();
    assert_eq!((dead.cause.as_str(), dead.options), ("expired", event.options.clone()));
    let elsewhere = DeadFilter { canvas: canvas(7), ..DeadFilter::default() };
    assert!(table.store.redrive_page(&elsewhere, false, (0, 10), &tester()).await.unwrap().back.is_empty());
    let back = table.store.redrive_page(&DeadFilter::default(), false, (0, 10), &tester()).await.unwrap();
    assert_eq!(back.back.len(), 1);
    assert_eq!(table.options(event.id).await, Some(7));
}

/// Long options count against what the answer of a claim may carry of the value.
#[tokio::test]
async fn a_claim_of_an_event_with_long_options_and_a_long_value_has_both() {
    let table = Table::new().await;
    let delays = [Duration::from_millis(1_234_567); 100];
    let options = Event::new("known", &1).unwrap().delays(delays).unwrap().options;
    let value = format!("\"{}\"", "x".repeat(4_000));
    let event = NewEvent { options, value, ..plain() };
    table.store.insert_all(std::slice::from_ref(&event), &[false]).await.unwrap();
    let claimed = table.store.claim(&told(&[event.id]), &limits()).await.unwrap().remove(0).unwrap();
    assert_eq!((claimed.value, claimed.options), (event.value, event.options));
}

/// The event that waits with a key gets those of the emit that changes it, also none.
#[tokio::test]
async fn a_change_of_a_keyed_event_replaces_its_options() {
    let table = Table::new().await;
    let (first, _) = emit(&table.store, NewEvent { options: retried(1), ..keyed(key()) }).await;
    for (conflict, options, outcome, retries) in [
        (OnConflict::Keep, retried(2), UniqueOutcome::Kept, Some(1)),
        (OnConflict::Replace, retried(3), UniqueOutcome::Replaced, Some(3)),
        (OnConflict::Replace, None, UniqueOutcome::Replaced, None),
    ] {
        let event = NewEvent { options, ..keyed(key().on_conflict(conflict)) };
        assert_eq!(emit(&table.store, event).await, (first, outcome));
        assert_eq!(table.options(first).await, retries);
    }
    let postponed = NewEvent { options: retried(4), ..keyed(key().on_conflict(QUIET)) };
    assert!(matches!(emit(&table.store, postponed).await.1, UniqueOutcome::Postponed { .. }));
    assert_eq!(table.options(first).await, Some(4));
}

/// They are about the handler of the event, and not about those of its queues.
#[tokio::test]
async fn copies_ask_for_nothing() {
    let table = emails(FacetSettings::default()).await;
    let event = NewEvent { only_queues: false, options: retried(1), ..email(canvas(1)) };
    let inserted = table.store.insert_all(std::slice::from_ref(&event), &[false]).await.unwrap();
    assert_eq!(inserted[0].copies().len(), 1);
    table.store.announce(inserted[0].copies()).await.unwrap();
    assert_eq!(table.options(event.id).await, Some(1));
    let copies = take(&table.store, 1).await;
    assert_eq!(copies[0].options, None);
    complete(&table.store, copies).await;
}

/// What plain SQL may ask for is what the library allows, in the form in which it is kept.
#[tokio::test]
async fn plain_sql_asks_for_the_same() {
    let table = Table::new().await;
    let emit = async |options: &str| {
        let call = format!(
            "select event_id from wakeq.emit('known', '1', options => '{options}')
              union all select event_id from wakeq.emit_unique('known', '1', gen_random_uuid()::text, options => '{options}')"
        );
        sqlx::query_scalar::<_, uuid::Uuid>(AssertSqlSafe(call)).fetch_all(&table.pool).await
    };
    let all = r#"{"retries": 3, "delays_s": [0, 1.5], "timeout_s": 0.001, "not_after": "2030-01-31 09:00+01",
                  "limits": ["customer:7", "mails"], "urgent": true}"#;
    let event = Event::new("known", &1).unwrap().retries(3).unwrap();
    let event = event.delays([0, 1_500].map(Duration::from_millis)).unwrap();
    let event = event.timeout(Duration::from_millis(1)).unwrap();
    let event = event.not_after("2030-01-31T08:00:00Z".parse().unwrap()).unwrap();
    let event = event.limit("customer:7").unwrap().limit("mails").unwrap().urgent();
    for id in emit(all).await.unwrap() {
        let loaded = table.store.load(&[EventId(id)]).await.unwrap().pop().flatten().unwrap();
        assert_eq!(loaded.options, event.options);
    }
    for nothing in ["{}", "null"] {
        for id in emit(nothing).await.unwrap() {
            assert_eq!(table.options(EventId(id)).await, None);
        }
    }
    for (options, words) in [
        ("[]", "JSON object"),
        (r#"{"retries": 1001}"#, "out of bounds: retries"),
        (r#"{"retries": 1.5}"#, "out of bounds: retries"),
        (r#"{"delays_s": []}"#, "out of bounds: delays_s"),
        (r#"{"delays_s": [2592001]}"#, "out of bounds: delays_s"),
        (r#"{"timeout_s": 0}"#, "out of bounds: timeout_s"),
        (r#"{"not_after": "infinity"}"#, "out of bounds: not_after"),
        (r#"{"not_after": "tonight"}"#, "out of bounds: not_after"),
        (r#"{"limits": "a"}"#, "out of bounds: limits"),
        (r#"{"limits": []}"#, "out of bounds: limits"),
        (r#"{"limits": [1]}"#, "out of bounds: limits"),
        (r#"{"limits": ["a", "a"]}"#, "out of bounds: limits"),
        (r#"{"limits": ["a", "b", "c", "d"]}"#, "out of bounds: limits"),
        (r#"{"urgent": "true"}"#, "out of bounds: urgent"),
        (r#"{"urgent": 1}"#, "out of bounds: urgent"),
        (r#"{"tries": 1}"#, "not an option of an event, or out of bounds: tries"),
    ] {
        let refused = emit(options).await.unwrap_err().to_string();
        assert!(refused.contains(words), "{options}: {refused}");
    }
    assert_eq!(table.left().await, 6);
}
