//! Emitted rows: promises around the horizon, chosen ids, batches in which one row is refused.

use std::sync::Arc;
use std::time::Duration;

use super::{Table, scope};
use crate::event::{
    CanvasId, Cause, Due, EventId, HandlerAddress, Metadata, NewEvent, Timestamp, Traceparent,
};
use crate::store::{Coalescer, InsertOutcome, StoreConfig};

const NEW: InsertOutcome =
    InsertOutcome::New { due_soon: true, link: None, copies: Vec::new(), pulled: Vec::new() };

fn event(due: Due) -> NewEvent {
    let address = HandlerAddress { scope: scope(), modifier: "_".parse().unwrap() };
    NewEvent { due, ..NewEvent::new(address, "1".into()) }
}

/// If due within the horizon, the promise is the grace after the due time; if later, the horizon
/// before it.
// Shows: EV2-18, EV2-27, EV2-34
#[tokio::test]
async fn promises_are_made_by_one_rule() {
    let table = Table::new().await;
    let seconds = |count| Due::After(Duration::from_secs(count));
    let past = Due::At(Timestamp::from_timestamp_millis(0).unwrap());
    let dues = [
        (Due::Now, true),
        (past, true),
        (seconds(599), true),
        (seconds(605), false),
        (seconds(86_400), false),
    ];
    let events: Vec<_> = dues.iter().map(|(due, _)| Arc::new(event(*due))).collect();
    let inserted = table.store.insert(&events).await.unwrap();
    let new =
        |due_soon: bool| InsertOutcome::New { due_soon, link: None, copies: Vec::new(), pulled: Vec::new() };
    let expected: Vec<_> = dues.iter().map(|(_, due_soon)| new(*due_soon)).collect();
    assert_eq!(inserted, expected);
    let chosen = event(seconds(86_400));
    assert_eq!(table.store.insert_chosen(&chosen).await.unwrap(), new(false));
    assert!(table.holds(
        "select count(*) = 6 and bool_and(case
                    when delay_until > enqueued_at + interval '10 min' then notify_at = delay_until - interval '10 min'
                    when delay_until > enqueued_at then notify_at = delay_until + interval '30 s'
                    else notify_at between enqueued_at + interval '30 s' and enqueued_at + interval '40 s' end)
           from wakeq.events_v2").await);
}

/// What all events of a statement have alike is sent once or not at all. The rows are the same.
#[tokio::test]
async fn each_event_of_a_statement_has_its_own_due_time_and_trace() {
    let table = Table::new().await;
    let later = Due::After(Duration::from_secs(60));
    let past = Due::At(Timestamp::from_timestamp_millis(0).unwrap());
    let (one, other) = (Some(Traceparent::root()), Some(Traceparent::root()));
    let traces = [
        [None, None, None],
        [one.clone(), one.clone(), one.clone()],
        [one.clone(), None, None],
        [None, other.clone(), None],
        [one.clone(), other, one],
    ];
    for dues in [[Due::Now; 3], [later; 3], [past; 3], [Due::Now, later, Due::Now], [past, Due::Now, later]] {
        for traces in &traces {
            has_rows_of_its_own(&table, dues, traces).await;
        }
    }
}

async fn has_rows_of_its_own(table: &Table, dues: [Due; 3], traces: &[Option<Traceparent>; 3]) {
    let new = |(due, traceparent): (Due, &Option<Traceparent>)| {
        let metadata = Metadata { traceparent: traceparent.clone() };
        Arc::new(NewEvent { metadata, ..event(due) })
    };
    let events: Vec<_> = dues.into_iter().zip(traces).map(new).collect();
    assert_eq!(table.store.insert(&events).await.unwrap(), vec![NEW; 3]);
    let row = |event: &Arc<NewEvent>| {
        let waits_s = match event.due {
            Due::Now => Some(0.0),
            Due::After(delay) => Some(delay.as_secs_f64()),
            Due::At(_) => None,
        };
        (waits_s, event.metadata.traceparent.as_ref().map(ToString::to_string))
    };
    let expected: Vec<(Option<f64>, Option<String>)> = events.iter().map(row).collect();
    let rows: Vec<(Option<f64>, Option<String>)> = sqlx::query_as(
        "select case when delay_until > 'epoch' then extract(epoch from delay_until - enqueued_at)::float8 end,
                traceparent::text
           from wakeq.events_v2 where id = any ($1) order by array_position($1, id)",
    )
    .bind(events.iter().map(|event| event.id.0).collect::<Vec<_>>())
    .fetch_all(&table.pool)
    .await
    .unwrap();
    assert_eq!(rows, expected);
}

/// A chosen id makes one event: while it waits, after it completed, and again once the id is
/// forgotten.
#[tokio::test]
async fn a_chosen_id_makes_one_event() {
    let table = Table::new().await;
    let chosen = event(Due::Now);
    assert_eq!(table.store.insert_chosen(&chosen).await.unwrap(), NEW);
    assert_eq!(table.store.insert_chosen(&chosen).await.unwrap(), InsertOutcome::Known);
    let claims = table.claim(&[chosen.id]).await;
    table.store.complete(&claims).await.unwrap();
    assert_eq!(table.store.insert_chosen(&chosen).await.unwrap(), InsertOutcome::Known, "it completed");
    table.run("delete from wakeq.emitted_ids").await;
    assert_eq!(table.store.insert_chosen(&chosen).await.unwrap(), NEW, "it was forgotten");
    assert_eq!(table.number("select count(*) from wakeq.events_v2").await, 1);
}

/// SQL and the library derive the same id from a canvas and a chosen id.
#[tokio::test]
async fn a_chosen_id_is_the_same_everywhere() {
    let table = Table::new().await;
    let canvases = [CanvasId::DEFAULT, CanvasId(uuid::Uuid::from_u128(7)), CanvasId(uuid::Uuid::new_v4())];
    let ids = [EventId(uuid::Uuid::nil()), EventId::new(), EventId(uuid::Uuid::max())];
    let mut seen = std::collections::BTreeSet::new();
    for (canvas, id) in canvases.into_iter().flat_map(|canvas| ids.map(|id| (canvas, id))) {
        let made = EventId::chosen(canvas, id);
        let of_sql: uuid::Uuid = sqlx::query_scalar("select wakeq.chosen_id($1, $2)")
            .bind(canvas.0)
            .bind(id.0)
            .fetch_one(&table.pool)
            .await
            .unwrap();
        assert_eq!((EventId(of_sql), of_sql.get_version_num()), (made, 8), "{canvas} {id}");
        assert!(seen.insert(made), "{canvas} {id}");
    }
}

/// An id may be forgotten while its event still waits, paused or far off, or is dead. Then the row
/// counts.
#[tokio::test]
async fn a_chosen_id_is_known_as_long_as_its_event_waits() {
    let table = Table::new().await;
    let chosen = event(Due::Now);
    table.store.insert_chosen(&chosen).await.unwrap();
    table.run("delete from wakeq.emitted_ids").await;
    assert_eq!(table.store.insert_chosen(&chosen).await.unwrap(), InsertOutcome::Known);
    let claim = table.claim(&[chosen.id]).await[0];
    assert!(table.store.die(claim, Cause::Retries, None, false, None).await.unwrap());
    let linked = NewEvent { object: Some("work:1".parse().unwrap()), ..chosen.clone() };
    assert_eq!(table.store.insert_chosen(&chosen).await.unwrap(), InsertOutcome::Known, "it is dead");
    assert_eq!(table.store.insert_all(&[linked], &[true]).await.unwrap(), [InsertOutcome::Known]);
    assert_eq!(table.number("select count(*) from wakeq.emitted_ids").await, 0);
}

/// Eight callers choose the same id at the same time: one event, seven duplicates.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_callers_with_the_same_id_one_inserts() {
    let table = Table::new().await;
    for _ in 0..10 {
        let chosen = event(Due::Now);
        let mut callers = tokio::task::JoinSet::new();
        for _ in 0..8 {
            let (store, chosen) = (table.store.clone(), chosen.clone());
            callers.spawn(async move { store.insert_chosen(&chosen).await.unwrap() });
        }
        let inserted = callers.join_all().await;
        assert_eq!(inserted.iter().filter(|inserted| **inserted == NEW).count(), 1, "{inserted:?}");
        assert!(inserted.iter().all(|inserted| [NEW, InsertOutcome::Known].contains(inserted)));
    }
    assert_eq!(table.number("select count(*) from wakeq.events_v2").await, 10);
}

/// Another session's open transaction holds an id: callers that want the same one soon get an
/// error, all others do not wait.
#[tokio::test]
async fn an_open_transaction_with_an_id_blocks_nobody_else() {
    let table = Table::with(StoreConfig::default()).await;
    let chosen = event(Due::Now);
    let mut stranger = table.pool.begin().await.unwrap();
    let shared = Arc::new(chosen.clone());
    let inserted = crate::store::add_one(&mut stranger, &shared, true, table.store.emission()).await;
    assert_eq!(inserted.unwrap(), NEW);
    let error = table.store.insert_chosen(&chosen).await.unwrap_err();
    assert_eq!(error.code().as_deref(), Some("55P03"));
    let others: Vec<_> = (0..20).map(|_| Arc::new(event(Due::Now))).collect();
    assert_eq!(table.store.insert(&others).await.unwrap(), [NEW; 20]);
    assert_eq!(table.store.insert_chosen(&event(Due::Now)).await.unwrap(), NEW);
    stranger.rollback().await.unwrap();
    assert_eq!(table.store.insert_chosen(&chosen).await.unwrap(), NEW);
}

/// A row that Postgres refuses does not fail the others of its statement.
#[tokio::test]
async fn a_refused_row_stands_alone() {
    let table = Table::new().await;
    let store = table.store.clone();
    let inserts = Coalescer::new(500, 1, move |events: Vec<Arc<NewEvent>>| {
        let store = store.clone();
        async move { store.insert(&events).await }
    });
    let mut callers = tokio::task::JoinSet::new();
    for index in 0..60 {
        let inserts = inserts.clone();
        let value = if index == 33 { "\"\0\"".into() } else { index.to_string() };
        callers.spawn(async move { inserts.call(Arc::new(NewEvent { value, ..event(Due::Now) })).await });
    }
    let answers = callers.join_all().await;
    assert_eq!(answers.iter().filter(|answer| answer.is_err()).count(), 1);
    assert_eq!(table.number("select count(*) from wakeq.events_v2").await, 59);
}

/// All or none, with generated and chosen ids, over several pages.
#[tokio::test]
async fn events_of_one_transaction_are_all_there_or_none() {
    let table = Table::new().await;
    let events: Vec<_> = (0..2105).map(|_| event(Due::Now)).collect();
    let mut chosen = vec![false; 2105];
    chosen[3] = true;
    chosen[2100] = true;
    assert_eq!(table.store.insert_all(&events, &chosen).await.unwrap(), vec![NEW; 2105]);
    let again = [events[3].clone(), event(Due::Now), events[2100].clone()];
    let inserted = table.store.insert_all(&again, &[true, false, true]).await.unwrap();
    assert_eq!(inserted, [InsertOutcome::Known, NEW, InsertOutcome::Known]);
    assert_eq!(table.number("select count(*) from wakeq.events_v2").await, 2106);
    let refused = [event(Due::Now), NewEvent { value: "\0".into(), ..event(Due::Now) }];
    assert!(table.store.insert_all(&refused, &[true, false]).await.unwrap_err().is_data());
    assert_eq!(table.number("select count(*) from wakeq.emitted_ids").await, 2, "nothing is left of it");
}

/// An id that one call names twice is one event.
#[tokio::test]
async fn an_id_twice_in_a_call_is_one_event() {
    let table = Table::new().await;
    let (one, two) = (event(Due::Now), event(Due::After(Duration::from_secs(86_400))));
    let events = [two.clone(), one.clone(), two.clone()];
    let inserted = table.store.insert_all(&events, &[true; 3]).await.unwrap();
    let later = InsertOutcome::New { due_soon: false, link: None, copies: Vec::new(), pulled: Vec::new() };
    assert_eq!(inserted, [later, NEW, InsertOutcome::Known]);
    assert_eq!(table.number("select count(*) from wakeq.events_v2").await, 2);
}

/// The largest call that is allowed completes within the time of a statement, also with chosen ids.
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn ten_thousand_chosen_ids_are_inserted_within_one_statement_timeout() {
    let table = Table::new().await;
    let events: Vec<_> = (0..10_000).map(|_| event(Due::Now)).collect();
    let inserted = table.store.insert_all(&events, &vec![true; 10_000]).await.unwrap();
    assert_eq!(inserted, vec![NEW; 10_000]);
    assert_eq!(
        table.store.insert_all(&events, &vec![true; 10_000]).await.unwrap(),
        vec![InsertOutcome::Known; 10_000]
    );
    assert_eq!(table.number("select count(*) from wakeq.events_v2").await, 10_000);
}

/// The same ids in another order, by two callers: they wait for each other, but do not deadlock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_callers_with_the_same_ids_do_not_deadlock() {
    let table = Table::new().await;
    let events: Vec<_> = (0..40).map(|_| event(Due::Now)).collect();
    let backwards: Vec<_> = events.iter().rev().cloned().collect();
    let mut callers = tokio::task::JoinSet::new();
    for events in [events, backwards] {
        let store = table.store.clone();
        callers.spawn(async move { store.insert_all(&events, &[true; 40]).await.unwrap() });
    }
    let inserted = callers.join_all().await.concat();
    assert_eq!(inserted.iter().filter(|inserted| **inserted == NEW).count(), 40);
}
