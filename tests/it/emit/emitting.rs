//! Emit, seen from outside: rows, notifications, duplicates, the caller's own transaction, and
//! programs that write rows without it.

use std::time::Duration;

use sqlx::Executor;
use wakeq::{CanvasId, Event, EventId};

use crate::support::{Stage, Statements, canvas};

/// Larger than any event may be.
fn too_large() -> Event {
    Event::new("greet", &"x".repeat(20_000_000)).unwrap()
}

fn greeting() -> Event {
    Event::new("greet", "hello").unwrap()
}

/// EV2-04, EV2-18, EV2-47, CARD-04: one row and one notification each; far-off events get theirs
/// later.
#[tokio::test]
async fn an_emit_is_a_row_and_a_notification() {
    let (stage, notifier) = Stage::memory().await;
    let soon = stage.queue.emit(greeting()).await.unwrap();
    let later = stage.queue.emit(greeting().after(Duration::from_secs(86_400)).unwrap()).await.unwrap();
    assert!(soon.notified && !soon.duplicate && !later.notified);
    let published: Vec<EventId> = notifier.published().iter().map(|notification| notification.id).collect();
    assert_eq!(published, [soon.id]);
    assert_eq!(stage.rows().await, 2);
}

/// A chosen id makes one event and one notification per canvas, whatever others do with the same
/// id.
#[tokio::test]
async fn an_event_with_a_chosen_id_is_emitted_once() {
    let (stage, notifier) = Stage::memory().await;
    let id = EventId::new();
    let first = stage.queue.emit(greeting().id(id)).await.unwrap();
    let again = stage.queue.emit(greeting().id(id)).await.unwrap();
    assert_eq!((first.duplicate, again.duplicate, again.notified), (false, true, false));
    assert_eq!((first.id, again.id), (EventId::chosen(CanvasId::DEFAULT, id), first.id));
    let elsewhere = stage.queue.emit(greeting().id(id).canvas(canvas(7))).await.unwrap();
    assert_eq!((elsewhere.id, elsewhere.duplicate), (EventId::chosen(canvas(7), id), false));
    stage.admin.cancel(CanvasId::DEFAULT, id, &wakeq::Actor::user("ada")).await.unwrap();
    assert!(stage.queue.emit(greeting().id(id)).await.unwrap().duplicate, "also when it has ended");
    assert_eq!((stage.rows().await, notifier.published().len()), (1, 2), "the other canvas's waits on");
}

/// All or none, and the error of a limit says what to do.
#[tokio::test]
async fn events_emitted_together_are_all_there_or_none() {
    let (stage, notifier) = Stage::memory().await;
    let taken = stage.queue.emit(greeting().canvas(canvas(7))).await.unwrap().id;
    let refused =
        vec![greeting(), greeting().at("9999-12-31T00:00:00Z".parse().unwrap()).unwrap(), too_large()];
    assert!(stage.queue.emit_all(refused).await.is_err());
    assert_eq!((stage.rows().await, notifier.published().len()), (1, 1));
    let events = vec![greeting().id(taken), greeting().id(taken).canvas(canvas(7))];
    let emitted = stage.queue.emit_all(events).await.unwrap();
    assert!(emitted.iter().all(|emitted| !emitted.duplicate && emitted.id != taken), "{emitted:?}");
    stage.admin.purge(&crate::support::scope("greet"), &wakeq::Actor::user("ada"), false).await.unwrap();
    notifier.forget_everything();
    assert_eq!(stage.rows().await, 2);
    let later = greeting().after(Duration::from_secs(86_400)).unwrap();
    let emitted = stage.queue.emit_all(vec![greeting(), later, greeting().id(EventId::new())]).await.unwrap();
    assert_eq!(emitted.iter().map(|emitted| emitted.notified).collect::<Vec<_>>(), [true, false, true]);
    assert_eq!((stage.rows().await, notifier.pending()), (5, 2));
    let error = stage.queue.emit_all(vec![greeting(); 10_001]).await.unwrap_err();
    assert!(error.to_string().contains("the limit is 10000"), "{error}");
    assert!(stage.queue.emit_all(Vec::new()).await.unwrap().is_empty());
}

/// EV2-18: in the caller's transaction, on the caller's search path; a rollback leaves nothing.
#[tokio::test]
async fn an_emit_shares_the_callers_transaction() {
    let (stage, notifier) = Stage::memory().await;
    let mut transaction = stage.pool.begin().await.unwrap();
    transaction.execute("set local search_path = pg_catalog").await.unwrap();
    let chosen = EventId::new();
    let dropped = stage.queue.emit_in(&mut transaction, greeting().id(chosen)).await.unwrap();
    assert_eq!(dropped.id(), EventId::chosen(CanvasId::DEFAULT, chosen));
    transaction.rollback().await.unwrap();
    drop(dropped);
    assert_eq!((stage.rows().await, notifier.published().len()), (0, 0));

    let mut transaction = stage.pool.begin().await.unwrap();
    transaction.execute("set local search_path = pg_catalog").await.unwrap();
    let one = stage.queue.emit_in(&mut transaction, greeting()).await.unwrap();
    let two = stage.queue.emit_in(&mut transaction, greeting().id(chosen)).await.unwrap();
    assert_eq!(notifier.published().len(), 0, "nothing before the commit");
    transaction.commit().await.unwrap();
    assert!(one.notify().await.notified && two.notify().await.notified);
    assert_eq!((stage.rows().await, notifier.published().len()), (2, 2));
}

/// EV2-10, EV2-15: Pub/Sub is down. The event is stored all the same, and the minute's pass
/// publishes it.
#[tokio::test]
async fn a_notification_that_was_not_published_is_made_up_for() {
    let (stage, notifier) = Stage::memory().await;
    notifier.break_down("nobody home");
    let emitted = stage.queue.emit(greeting()).await.unwrap();
    assert!(!emitted.notified);
    notifier.mend();
    assert_eq!(stage.admin.wake(false).await.unwrap().woken, 0, "it has its grace");
    stage.execute("update wakeq.events_v2 set notify_at = notify_at - interval '31 s'").await;
    stage.execute("update wakeq.chores set next_at = now()").await;
    assert_eq!(stage.admin.wake(false).await.unwrap().woken, 1);
    assert_eq!(notifier.published().last().unwrap().id, emitted.id);
}

/// Rows that another program inserts are published by the next pass, on their own canvas.
#[tokio::test]
async fn rows_inserted_by_plain_sql_are_published_by_the_next_pass() {
    let (stage, notifier) = Stage::memory().await;
    let sql = "insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value)
               select gen_random_uuid(), '00000000-0000-0000-0000-000000000007', 'WORKER', 'greet', '_', '1'
                 from generate_series(1, 3)";
    stage.execute(sql).await;
    assert_eq!(stage.admin.wake(false).await.unwrap().woken, 3);
    assert!(notifier.published().iter().all(|notification| notification.canvas == canvas(7)));
    assert_eq!(stage.admin.wake(false).await.unwrap().woken, 0, "a minute later at the earliest");
}

/// EV2-32: the value is returned byte for byte.
#[tokio::test]
async fn a_value_is_kept_to_the_letter() {
    let (stage, _) = Stage::memory().await;
    let json = r#"{"b":[1.0,1e300,"é\u00e9 \ud83d\ude00"],  "a":{"b":{"c":null}},"a":"twice"}"#;
    stage.queue.emit(Event::from_json("greet", json).unwrap()).await.unwrap();
    let kept: String = stage.pool.value("select value::text from wakeq.events_v2").await;
    assert_eq!(kept, json);
}
