//! Pushes whose caller hangs up, or whose process ends.

use std::time::Duration;

use serde_json::json;
use wakeq::machine::Outcome;
use wakeq::workers::PushError;
use wakeq::{CanvasId, Handlers, StoreError, WorkerConfig};
use wakeq_service::server::HttpConfig;

use super::{PushDeployment, empty, notification};
use crate::support::Stage;
use crate::support::handlers::{Door, recording};
use crate::support::service::Answer;

async fn counts(stage: &Stage) -> (Option<i64>, i32, i32) {
    let query = "select case when locked_at is null then 0::bigint end, losses, retries from wakeq.events_v2";
    sqlx::query_as(query).fetch_one(&stage.pool).await.unwrap()
}

fn grace(shutdown_grace: Duration) -> WorkerConfig {
    WorkerConfig { shutdown_grace, ..WorkerConfig::default() }
}

/// Pub/Sub or the load balancer hangs up: the handler still runs to its end, and the event
/// completes.
// Shows: PUSH-12
#[tokio::test]
async fn a_run_completes_even_if_the_caller_disconnects() {
    let (pushed, mut door) = PushDeployment::behind_a_door(WorkerConfig::default()).await;
    let (id, push) = pushed.running(&mut door).await;
    push.abort();
    assert!(push.await.unwrap_err().is_cancelled());
    assert_eq!(pushed.pushed(id).await, 204, "the next caller finds it locked");
    assert_eq!(pushed.counters.outcome(Outcome::IsLocked), 1);
    door.open(1);
    assert!(door.left.next().await, "it was not cut off");
    empty(&pushed.stage).await;
    pushed.stop().await;
}

/// Pushes, which take long, and the API have separate limits.
// Shows: PUSH-12
#[tokio::test]
async fn pushes_and_api_requests_do_not_block_each_other() {
    let (handler, mut door) = Door::new();
    let http = HttpConfig { max_requests: 1, ..HttpConfig::default() };
    let handlers = Handlers::new().on("greet", handler);
    let pushed = PushDeployment::within(http, handlers, WorkerConfig::default()).await;
    let (id, push) = pushed.running(&mut door).await;
    let emitted =
        pushed.post(&format!("/v1/canvases/{}/events", CanvasId::DEFAULT), &json!({"name": "other"}));
    assert_eq!(Answer::of(emitted.bearer_auth(&pushed.key)).await.status, 202, "the API has room");
    assert_eq!(pushed.wake().await["more"], false);
    assert_eq!(Answer::of(pushed.push(id)).await.problem(), (429, "too-many-requests".into()));
    door.open(1);
    assert_eq!(push.await.unwrap().unwrap().status(), 204);
    pushed.stop().await;
}

/// A handler that ends within the grace is answered as usual.
// Shows: PUSH-13
#[tokio::test]
async fn handlers_may_end_within_the_grace() {
    let (pushed, mut door) = PushDeployment::behind_a_door(grace(Duration::from_secs(20))).await;
    let (_, push) = pushed.running(&mut door).await;
    pushed.begin_to_stop();
    let runner = pushed.runner.clone();
    let ending = tokio::spawn(async move { runner.shut_down().await });
    door.open(1);
    assert_eq!(push.await.unwrap().unwrap().status(), 204);
    ending.await.unwrap();
    assert_eq!(pushed.stop().await.rows().await, 0);
}

/// One that does not is cut off and released, and its message has to come again; this costs the
/// event nothing.
// Shows: PUSH-13
#[tokio::test]
async fn a_handler_beyond_the_grace_is_cut_off_and_its_message_comes_again() {
    let (pushed, mut door) = PushDeployment::behind_a_door(grace(Duration::from_millis(50))).await;
    let (id, push) = pushed.running(&mut door).await;
    let runner = pushed.runner.clone();
    let stage = pushed.stop().await;
    assert_eq!(push.await.unwrap().unwrap().status(), 503);
    assert!(!door.left.next().await, "the handler was dropped");
    assert_eq!(counts(&stage).await, (Some(0), 0, 0));
    let refused = runner.run(&notification(id).body()).await.unwrap_err();
    assert!(matches!(refused, PushError::Stopping), "{refused}");
}

/// A push that waits for its time or for capacity is refused at once.
// Shows: PUSH-13
#[tokio::test]
async fn pushes_that_wait_are_refused_at_a_shutdown() {
    let (handler, mut door) = Door::new();
    let (waiting, mut seen) = recording();
    let config = WorkerConfig { capacity: 1, ..grace(Duration::from_millis(50)) };
    let handlers = Handlers::new().on("greet", handler).on("wait", waiting);
    let pushed = PushDeployment::with(handlers, config).await;
    let held = pushed.stage.emit("greet").await;
    let waits = pushed.stage.emit("wait").await;
    let holding = tokio::spawn(pushed.push(held).send());
    door.arrived.next().await;
    let runner = pushed.runner.clone();
    let push = async move { runner.run(&notification(waits).body()).await };
    let mut push = std::pin::pin!(push);
    assert!(futures_util::poll!(push.as_mut()).is_pending());
    let stage = pushed.stop().await;
    assert!(matches!(push.await, Err(PushError::Stopping)));
    assert_eq!(holding.await.unwrap().unwrap().status(), 503);
    assert!(seen.rest().is_empty());
    assert_eq!(stage.rows().await, 2);
}

/// Once it is noticed that the deployment has other durations, nothing more is accepted; what runs
/// ends, as the lease is the same.
#[tokio::test]
async fn a_process_with_other_durations_accepts_nothing_more() {
    let (handler, mut door) = Door::new();
    let config = WorkerConfig { capacity: 1, ..WorkerConfig::default() };
    let pushed = PushDeployment::with(Handlers::new().on("greet", handler), config).await;
    let (held, waits) = (pushed.stage.emit("greet").await, pushed.stage.emit("greet").await);
    let holding = tokio::spawn(pushed.push(held).send());
    door.arrived.next().await;
    let runner = pushed.runner.clone();
    let mut push = std::pin::pin!(async move { runner.run(&notification(waits).body()).await });
    assert!(futures_util::poll!(push.as_mut()).is_pending());
    pushed.stage.execute("update wakeq.settings set value_us = 7000000 where name = 'grace'").await;
    pushed.stage.admin.wake(false).await.unwrap_err();
    let refused = push.await.unwrap_err();
    assert!(matches!(refused, PushError::Store(StoreError::OtherTiming { name: "grace", .. })), "{refused}");
    door.open(1);
    assert_eq!(holding.await.unwrap().unwrap().status(), 204);
    assert_eq!(pushed.stop().await.rows().await, 1);
}
