//! Batches in the kit's tables and on Postgres: the same life of a batch, with the same answers.

use std::time::Duration;

use serde_json::{Value, json};
use wakeq::control::DeadFilter;
use wakeq::events::{BatchCounts, BatchError, BatchState, EventBatch};
use wakeq::testing::{TestKit, assert_emitted};
use wakeq::{
    Actor, CanvasId, Event, Execution, HandlerError, HandlerResult, Handlers, RetryPolicy, Route, StoreError,
};

use super::on_postgres;
use crate::support::{OTHER, scope};

async fn row(event: Execution) -> HandlerResult {
    match event.value::<String>()?.as_str() {
        "fails" => Err(HandlerError::operational("no")),
        _ => Ok(()),
    }
}

/// A kit whose handler `row` fails for the value `fails`, and is never retried.
fn working(mut kit: TestKit) -> TestKit {
    let once = RetryPolicy { retries: 0, ..RetryPolicy::default() };
    let handlers = Handlers::new().on(Route::new("row").retry(once), row);
    kit.handlers(handlers.on("imported", |_event| async { Ok(()) })).unwrap();
    kit
}

fn batch(kit: &TestKit) -> EventBatch {
    kit.queue().batch("import:42").unwrap()
}

fn member(value: &str) -> Event {
    Event::new("row", value).unwrap().batch("import:42").unwrap()
}

fn on_end() -> Event {
    Event::new("imported", "a.csv").unwrap()
}

fn spelled(counts: BatchCounts) -> [u64; 4] {
    [counts.completed, counts.dead, counts.cancelled, counts.total()]
}

async fn lives(kit: TestKit) {
    let kit = working(kit);
    let import = batch(&kit);
    assert!(import.open(on_end()).await.unwrap(), "it is new");
    assert!(!import.open(on_end()).await.unwrap(), "it is a repeat");
    let other = import.open(Event::new("imported", "b.csv").unwrap()).await.unwrap_err();
    assert!(matches!(other, BatchError::Taken(_)), "{other}");
    // Another tenant's batch of the same name stays as it is.
    assert!(import.clone().canvas(OTHER).open(on_end()).await.unwrap());

    for value in ["a", "b", "fails"] {
        kit.emit(member(value)).await.unwrap();
    }
    let later = kit.emit(member("c").after(Duration::from_secs(3600)).unwrap()).await.unwrap().id;
    let drained = kit.drain().await.unwrap();
    assert_eq!((drained.completed, drained.died, drained.waiting), (2, 1, 1));
    let progress = import.progress().await.unwrap();
    assert_eq!(
        (progress.batch.state, spelled(progress.counts), progress.left),
        (BatchState::Open, [2, 1, 0, 3], 1)
    );

    let closed = import.close().await.unwrap();
    assert_eq!((closed.batch.state, closed.left), (BatchState::Closed, 1));
    kit.emit(member("d")).await.unwrap();
    assert_eq!(kit.drain().await.unwrap().completed, 1, "its event waits for the last member");
    kit.admin().cancel(CanvasId::DEFAULT, later, &Actor::user("ada")).await.unwrap();
    let drained = kit.drain().await.unwrap();
    assert_eq!((drained.completed, drained.waiting), (1, 0), "its event was emitted and ran");
    let value = json!({
        "batch": "import:42", "completed": 3, "dead": 1, "cancelled": 1, "total": 5, "value": "a.csv",
    });
    assert_emitted!(kit, "imported", count = 1, value = value);
    let ended = import.close().await.unwrap();
    assert_eq!((ended.batch.state, spelled(ended.counts), ended.left), (BatchState::Ended, [3, 1, 1, 5], 0));

    let refused = kit.queue().emit(member("e")).await.unwrap_err().to_string();
    assert!(refused.contains("the batch import:42 is over, or was never opened"), "{refused}");
    // A redriven event is no member.
    let filter = DeadFilter { canvas: CanvasId::DEFAULT, ..DeadFilter::default() };
    kit.admin().redrive(&filter, &Actor::user("ada"), false).await.unwrap();
    kit.drain().await.unwrap();
    assert_emitted!(kit, "imported", count = 1);
    assert_eq!(spelled(import.progress().await.unwrap().counts), [3, 1, 1, 5]);
    let theirs = import.clone().canvas(OTHER).progress().await.unwrap();
    assert_eq!((theirs.batch.state, theirs.counts.total(), theirs.left), (BatchState::Open, 0, 0));
}

#[tokio::test]
async fn a_batch_lives_the_same_life_in_memory_and_on_postgres() {
    lives(TestKit::new()).await;
    let (_stage, kit) = on_postgres().await;
    lives(kit).await;
}

async fn refuses(kit: TestKit) {
    let kit = working(kit);
    let missing = |error: BatchError| matches!(error, BatchError::Missing(_));
    assert!(missing(batch(&kit).close().await.unwrap_err()));
    assert!(missing(batch(&kit).progress().await.unwrap_err()));
    let unknown = kit.queue().emit(member("a")).await.unwrap_err();
    assert!(matches!(unknown, wakeq::EmitError::Store(StoreError::NoBatch(_))), "{unknown}");
    let together = vec![Event::new("row", "a").unwrap(), member("b")];
    assert!(kit.queue().emit_all(together).await.is_err());
    assert_eq!(kit.drain().await.unwrap().completed, 0, "all or none");
    for (event, words) in [
        (on_end().canvas(OTHER), "be on another canvas"),
        (on_end().after(Duration::from_secs(1)).unwrap(), "be delayed"),
        (on_end().on("work:1").unwrap(), "be on an object"),
        (on_end().retries(1).unwrap(), "have options"),
        (on_end().only_to_queues(), "be only for queues"),
    ] {
        let refused = batch(&kit).open(event).await.unwrap_err().to_string();
        assert!(refused.contains(words), "{refused}");
    }
}

#[tokio::test]
async fn what_a_batch_refuses_is_refused_in_memory_and_on_postgres() {
    refuses(TestKit::new()).await;
    let (_stage, kit) = on_postgres().await;
    refuses(kit).await;
}

/// What nobody looked at, the minute's pass ends, which is a part of each drain.
async fn purges(kit: TestKit) {
    let kit = working(kit);
    batch(&kit).open(on_end()).await.unwrap();
    kit.emit(member("a").after(Duration::from_secs(3600)).unwrap()).await.unwrap();
    batch(&kit).close().await.unwrap();
    kit.admin().purge(&scope("row"), &Actor::user("ada"), false).await.unwrap();
    assert_eq!(kit.drain().await.unwrap().completed, 1);
    let like: Value = json!({"cancelled": 1, "total": 1});
    assert_emitted!(kit, "imported", count = 1, like = like);
}

#[tokio::test]
async fn the_pass_ends_a_batch_whose_members_were_purged() {
    purges(TestKit::new()).await;
    let (_stage, kit) = on_postgres().await;
    purges(kit).await;
}
