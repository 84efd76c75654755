//! Events that wait for different reasons, side by side, with one worker and nothing else running.

use std::time::Duration;

use wakeq::machine::Outcome;
use wakeq::{
    Actor, Event, EventId, Execution, HandlerError, HandlerResult, Handlers, RetryPolicy, Route, Stop,
};

use crate::support::{Stage, patient, scope};

async fn fail_once(event: Execution) -> HandlerResult {
    if event.attempt == 1 { Err(HandlerError::operational("not yet")) } else { Ok(()) }
}

async fn complete(_event: Execution) -> HandlerResult {
    Ok(())
}

async fn parked(stage: &Stage, id: EventId) -> bool {
    let parked = sqlx::query_scalar("select notify_at is null from wakeq.events_v2 where id = $1");
    parked.bind(id.0).fetch_one(&stage.pool).await.unwrap()
}

// Shows: EV2-02, EV2-03
#[tokio::test]
async fn paused_blocked_retried_and_delayed_events_are_all_kept_and_run_in_the_end() {
    let (stage, _) = Stage::memory_with(patient()).await;
    let ada = Actor::admin("ada");
    stage.admin.pause(&scope("paused"), &ada, &Stop::default()).await.unwrap();
    stage.admin.block(&scope("blocked"), &ada, &Stop::default()).await.unwrap();
    let retry = RetryPolicy { delay: Duration::from_millis(300), ..RetryPolicy::default() };
    let handlers = Handlers::new()
        .on("paused", complete)
        .on("blocked", complete)
        .on("delayed", complete)
        .on(Route::new("retried").retry(retry), fail_once);
    let mut worker = stage.worker(handlers);

    let paused = stage.emit("paused").await;
    worker.until(paused, Outcome::RulePaused).await;
    let blocked = stage.emit("blocked").await;
    worker.until(blocked, Outcome::RuleBlocked).await;
    let delayed = Event::new("delayed", "value").unwrap().after(Duration::from_millis(800)).unwrap();
    let delayed = stage.queue.emit(delayed).await.unwrap().id;
    let retried = stage.emit("retried").await;
    let mut completed = Vec::new();
    while completed.len() < 2 {
        let report = worker.report().await;
        if report.trail.last() == Some(&Outcome::Deleted) {
            completed.push((report.notification.id, report.attempt));
        }
    }
    completed.sort_unstable();
    let mut expected = [(delayed, Some(1)), (retried, Some(2))];
    expected.sort_unstable();
    assert_eq!(completed, expected);
    assert_eq!(stage.rows().await, 2);
    assert!(parked(&stage, paused).await && parked(&stage, blocked).await);

    stage.admin.unpause(&scope("paused"), &ada).await.unwrap();
    worker.until(paused, Outcome::Deleted).await;
    stage.admin.unblock(&scope("blocked"), &ada).await.unwrap();
    worker.until(blocked, Outcome::Deleted).await;
    assert_eq!(stage.rows().await, 0);
    worker.stop().await;
}
