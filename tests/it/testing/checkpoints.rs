//! Checkpoints in the kit: in memory and on Postgres.

use std::time::Duration;

use wakeq::control::DeadFilter;
use wakeq::testing::{TestKit, assert_dead};
use wakeq::{Actor, CanvasId, Event, Execution, HandlerError, HandlerResult, Handlers, RetryPolicy, Route};

use super::on_postgres;
use crate::support::OTHER;

/// Notes each attempt, and fails until the fourth has been noted.
async fn import(event: Execution) -> HandlerResult {
    let before: u32 = event.last_checkpoint().await?.unwrap_or(0);
    let noted = before + 1;
    event.checkpoint(&noted).await?;
    if noted == 4 {
        return Ok(());
    }
    Err(HandlerError::operational(format!("{noted} noted")))
}

/// Two attempts until it is dead, then a redrive and two more. A checkpoint stays with a dead
/// event, and ends with the completion.
async fn goes_on(mut kit: TestKit) {
    let retry = RetryPolicy { retries: 1, delay: Duration::from_secs(600), ..RetryPolicy::default() };
    kit.handlers(Handlers::new().on(Route::new("import").retry(retry), import)).unwrap();
    let id = kit.emit(Event::new("import", &1).unwrap()).await.unwrap().id;
    let theirs = kit.emit(Event::new("import", &1).unwrap().canvas(OTHER)).await.unwrap().id;
    let drained = kit.drain_for(Duration::from_secs(3600)).await.unwrap();
    assert_eq!((drained.retried, drained.died), (2, 2), "{drained}");
    assert_dead!(kit, "import", count = 2, error = "2 noted");
    let admin = kit.admin().clone();
    let left =
        async |canvas, id| admin.checkpoint(canvas, id).await.unwrap().map(|checkpoint| checkpoint.json);
    assert_eq!(left(CanvasId::DEFAULT, id).await.as_deref(), Some("2"));
    assert_eq!((left(OTHER, id).await, left(OTHER, theirs).await.as_deref()), (None, Some("2")));
    let dead = DeadFilter { canvas: CanvasId::DEFAULT, ..DeadFilter::default() };
    assert_eq!(admin.redrive(&dead, &Actor::user("ada"), false).await.unwrap().count, 1);
    let drained = kit.drain_for(Duration::from_secs(3600)).await.unwrap();
    assert_eq!((drained.retried, drained.completed, drained.waiting), (1, 1, 0), "{drained}");
    assert_eq!(left(CanvasId::DEFAULT, id).await, None);
    assert_eq!(left(OTHER, theirs).await.as_deref(), Some("2"));
}

#[tokio::test]
async fn in_memory_an_attempt_goes_on() {
    goes_on(TestKit::new()).await;
}

#[tokio::test]
async fn on_postgres_an_attempt_goes_on() {
    let (_stage, kit) = on_postgres().await;
    goes_on(kit).await;
}

/// A value is checked, and nothing is kept.
#[tokio::test]
async fn an_execution_made_by_hand_keeps_nothing() {
    let scope = wakeq::HandlerScope::worker(CanvasId::DEFAULT, "import").unwrap();
    let address = wakeq::HandlerAddress { scope, modifier: "_".parse().unwrap() };
    let event = Execution::new(address, "1", "2026-01-31T08:00:00Z".parse().unwrap());
    event.checkpoint(&7).await.unwrap();
    assert_eq!(event.last_checkpoint::<u32>().await.unwrap(), None);
    event.checkpoint(&"x".repeat(70_000)).await.unwrap_err();
}
