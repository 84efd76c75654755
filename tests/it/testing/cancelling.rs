//! Running events that are cancelled, in the kit: in memory and on Postgres.

use std::time::Duration;

use wakeq::testing::{TestKit, assert_dead};
use wakeq::{
    Actor, Admin, CanvasId, Event, Execution, HandlerError, HandlerResult, Handlers, RetryPolicy, Route,
};

use super::on_postgres;
use crate::support::OTHER;

/// Cancels its own event, as somebody else may at the same moment; then does what its value says.
async fn cancelled(event: Execution, admin: Admin) -> HandlerResult {
    let ada = Actor::user("ada");
    if admin.cancel_running(OTHER, event.id, &ada).await.is_ok() {
        return Ok(());
    }
    admin.cancel_running(CanvasId::DEFAULT, event.id, &ada).await?;
    match event.value::<String>()?.as_str() {
        "heeds" => Err(HandlerError::operational(format!("{:?}", event.cancelled().await))),
        "fails at once" => Err(HandlerError::operational("before it is told")),
        _ => Ok(()),
    }
}

async fn cancels_what_runs(mut kit: TestKit) {
    let admin = kit.admin().clone();
    let retry = RetryPolicy { delay: Duration::from_secs(600), ..RetryPolicy::default() };
    let handler = move |event| cancelled(event, admin.clone());
    kit.handlers(Handlers::new().on(Route::new("h").retry(retry), handler)).unwrap();
    let heeds = kit.emit(Event::new("h", "heeds").unwrap()).await.unwrap().id;
    for value in ["fails at once", "completes"] {
        kit.emit(Event::new("h", value).unwrap()).await.unwrap();
    }
    let drained = kit.drain().await.unwrap();
    assert_eq!((drained.attempts(), drained.completed, drained.waiting), (3, 1, 0), "{drained}");
    assert_eq!(drained.of(heeds).next().unwrap().error.as_deref(), Some("Cancelled"));
    assert!(drained.cancelled > 0 && drained.to_string().contains("was cancelled"), "{drained}");
    assert_dead!(kit, "h", count = 0);
}

#[tokio::test]
async fn in_memory_running_events_are_cancelled() {
    cancels_what_runs(TestKit::new()).await;
}

#[tokio::test]
async fn on_postgres_running_events_are_cancelled() {
    let (_stage, kit) = on_postgres().await;
    cancels_what_runs(kit).await;
}
