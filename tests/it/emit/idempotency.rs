//! Emits under an idempotency key: one request, one answer, whether a process dies or a request
//! comes twice.

use std::time::Duration;

use wakeq::events::{IdempotencyKey, Idempotent};
use wakeq::{CanvasId, EmitError, Emitted, Event, EventId, Queue, QueueConfig, Store, StoreConfig};

use crate::support::{Stage, fit};

fn key(holder: &str, key: &str, fingerprint: &str) -> IdempotencyKey {
    IdempotencyKey::new(CanvasId::DEFAULT, holder, key, fingerprint.as_bytes()).unwrap()
}

fn events(count: usize) -> Vec<Event> {
    (0..count).map(|index| Event::new("h", &index).unwrap()).collect()
}

fn answer(emitted: &[Emitted]) -> String {
    emitted.iter().map(|one| format!("{}:{} ", one.id, one.duplicate)).collect()
}

async fn emit(stage: &Stage, key: &IdempotencyKey, count: usize) -> Result<Idempotent, EmitError> {
    stage.queue.emit_idempotent(key, events(count), answer).await
}

/// Emits for the first time under the key.
async fn emit_first(stage: &Stage, key: &IdempotencyKey, events: Vec<Event>) -> (Vec<Emitted>, String) {
    match stage.queue.emit_idempotent(key, events, answer).await.unwrap() {
        Idempotent::First { emitted, answer } => (emitted, answer),
        Idempotent::Replayed { answer } => panic!("it was emitted before: {answer}"),
    }
}

/// Asserts that the queue reports a request as in progress while the first is, and that the first,
/// which dies, leaves nothing behind.
async fn check_in_progress(stage: &Stage, queue: &Queue) {
    let mut first = stage.pool.begin().await.unwrap();
    let begun = "insert into wakeq.idempotency_keys (canvas_id, holder, key, fingerprint, answer)
                 values ($1, 'ada', 'k', 'body', '')";
    sqlx::query(begun).bind(CanvasId::DEFAULT.0).execute(&mut *first).await.unwrap();
    let one = key("ada", "k", "body");
    let second = queue.emit_idempotent(&one, events(1), answer).await;
    assert!(matches!(second, Err(EmitError::IdempotencyInProgress)), "{second:?}");
    first.rollback().await.unwrap();
    emit_first(stage, &one, events(1)).await;
    assert_eq!((stage.rows().await, keys(stage).await), (1, 1));
}

async fn keys(stage: &Stage) -> i64 {
    stage.count("select count(*) from wakeq.idempotency_keys").await
}

#[tokio::test]
async fn a_repeated_request_is_answered_again_and_adds_nothing() {
    let (stage, notifier) = Stage::memory().await;
    let one = key("ada", "k", "body");
    let (emitted, first) = emit_first(&stage, &one, events(3)).await;
    assert!(emitted.iter().all(|one| one.notified && !one.duplicate));
    assert_eq!((first.clone(), notifier.published().len()), (answer(&emitted), 3));
    assert_eq!(emit(&stage, &one, 3).await.unwrap(), Idempotent::Replayed { answer: first });
    assert_eq!((stage.rows().await, notifier.published().len()), (3, 3));
    let other = emit(&stage, &key("ada", "k", "other body"), 3).await;
    assert!(matches!(other, Err(EmitError::IdempotencyMismatch)), "{other:?}");
    assert_eq!(stage.rows().await, 3);
    for mine in [key("bob", "k", "other body"), key("ada", "K", "other body")] {
        assert!(matches!(emit(&stage, &mine, 1).await.unwrap(), Idempotent::First { .. }));
    }
    let elsewhere = IdempotencyKey::new(CanvasId(uuid::Uuid::from_u128(7)), "ada", "k", b"x").unwrap();
    assert!(matches!(emit(&stage, &elsewhere, 1).await.unwrap(), Idempotent::First { .. }));
    assert_eq!((stage.rows().await, keys(&stage).await), (6, 4));
}

/// The stored answer says which chosen ids had been emitted before, and nothing about those of
/// another canvas.
#[tokio::test]
async fn chosen_ids_are_told_in_the_kept_answer() {
    let (stage, _) = Stage::memory().await;
    let (known, foreign) = (EventId::new(), EventId::new());
    let canvas = CanvasId(uuid::Uuid::from_u128(7));
    stage.queue.emit(Event::new("h", "x").unwrap().id(known)).await.unwrap();
    stage.queue.emit(Event::new("h", "x").unwrap().id(foreign).canvas(canvas)).await.unwrap();
    let with = |id| vec![Event::new("h", "x").unwrap(), Event::new("h", "x").unwrap().id(id)];
    let one = key("ada", "k", "body");
    let (other, _) = emit_first(&stage, &key("ada", "other", "body"), with(foreign)).await;
    assert!(other.iter().all(|one| !one.duplicate), "{other:?}");
    assert_eq!((stage.rows().await, keys(&stage).await), (4, 1));
    let (emitted, first) = emit_first(&stage, &one, with(known)).await;
    assert_eq!(emitted.iter().map(|one| one.duplicate).collect::<Vec<_>>(), [false, true]);
    assert!(first.contains(&format!("{}:true", EventId::chosen(CanvasId::DEFAULT, known))), "{first}");
    let again = stage.queue.emit_idempotent(&one, with(known), answer).await.unwrap();
    assert_eq!(again, Idempotent::Replayed { answer: first });
}

/// While the first is in progress the second gets that answer, and if the first dies it leaves
/// nothing behind.
#[tokio::test]
async fn a_concurrent_request_gets_in_progress_and_leaves_nothing_behind() {
    let (stage, _) = Stage::memory().await;
    check_in_progress(&stage, &stage.queue).await;
}

/// If the server ends statements before it ends waits for locks, the second one gets the same
/// answer.
#[tokio::test]
async fn a_statement_timeout_also_reports_a_request_in_progress() {
    let (stage, notifier) = Stage::memory().await;
    let config = StoreConfig {
        statement_timeout: Duration::from_millis(300),
        lock_timeout: Duration::from_secs(30),
        ..StoreConfig::default()
    };
    let store = Store::connect(stage.database.url(), fit(config)).await.unwrap();
    check_in_progress(&stage, &Queue::new(store, notifier, QueueConfig::default())).await;
}

/// Twenty at once: one is the first, the others get its answer, or that it is in progress.
#[tokio::test]
async fn of_many_concurrent_requests_one_emits() {
    let (stage, _) = Stage::memory().await;
    let one = key("ada", "k", "body");
    let all = futures_util::future::join_all((0..20).map(|_| emit(&stage, &one, 2))).await;
    let firsts = all.iter().filter(|one| matches!(one, Ok(Idempotent::First { .. }))).count();
    let others = all.iter().all(|one| matches!(one, Ok(_) | Err(EmitError::IdempotencyInProgress)));
    assert!(firsts == 1 && others, "{all:?}");
    assert_eq!(stage.rows().await, 2);
}

/// After 24 hours a key counts as new, whether or not it has been deleted.
#[tokio::test]
async fn a_key_is_kept_for_a_day() {
    let (stage, _) = Stage::memory().await;
    emit(&stage, &key("ada", "k", "body"), 1).await.unwrap();
    let age = async |hours: f64| {
        let age = "update wakeq.idempotency_keys set created_at = now() - $1 * interval '1 h'";
        sqlx::query(age).bind(hours).execute(&stage.pool).await.unwrap();
    };
    age(23.9).await;
    let other = key("ada", "k", "other body");
    assert!(matches!(emit(&stage, &other, 1).await, Err(EmitError::IdempotencyMismatch)));
    age(24.1).await;
    let (_, answer) = emit_first(&stage, &other, events(1)).await;
    assert_eq!(emit(&stage, &other, 1).await.unwrap(), Idempotent::Replayed { answer });
    assert_eq!((stage.rows().await, keys(&stage).await), (2, 1));
}

#[test]
fn keys_have_limits() {
    let make = |holder: &str, key: &str, fingerprint: &[u8]| {
        IdempotencyKey::new(CanvasId::DEFAULT, holder, key, fingerprint).is_ok()
    };
    assert!(make("a", &"~".repeat(255), &[0; 64]));
    for (holder, key, fingerprint) in [
        ("a", "", &[0; 32][..]),
        ("a", "a b", &[0; 32]),
        ("a", "ä", &[0; 32]),
        ("a", &"x".repeat(256), &[0; 32]),
        ("", "k", &[0; 32]),
        ("a\0", "k", &[0; 32]),
        ("a", "k", &[]),
        ("a", "k", &[0; 65]),
    ] {
        assert!(!make(holder, key, fingerprint), "{holder:?} {key:?}");
    }
}
