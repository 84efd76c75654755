//! `POST /v1/wake`: the minute's pass, triggered by a request.

use serde_json::json;
use wakeq::Handlers;

use super::{PushDeployment, empty, promise, set};
use crate::support::service::has;
use crate::support::{Stage, Statements};

/// Makes the last pass appear to be this long ago.
async fn last_pass(stage: &Stage, ago: &'static str) {
    let query = "update wakeq.chores set next_at = now() + interval '60 s' - $1::text::interval where name = 'minute'";
    sqlx::query(query).bind(ago).execute(&stage.pool).await.unwrap();
}

/// Overdue events are published, jobs continue, crons tick and old rows are removed, all before the
/// answer.
// Shows: PUSH-14
#[tokio::test]
async fn a_call_does_the_minute_s_work() {
    let (pushed, mut seen) = PushDeployment::recorded().await;
    let stage = &pushed.stage;
    let overdue = stage.emit("greet").await;
    set(stage, overdue, "notify_at = now() - interval '1 s'").await;
    for statement in [
        "insert into wakeq.resume_jobs (kind, canvas_id, module, name) values ('lifted', gen_random_uuid(), 'WORKER', 'h')",
        "insert into wakeq.emitted_ids (id, canvas_id, due_at)
         values (gen_random_uuid(), gen_random_uuid(), now() - interval '8 days')",
        "insert into wakeq.cron_records (canvas_id, name, expression, zone, modifier, value, missed, created_by, created_at,
                                         changed_at, next_at)
         values (gen_random_uuid(), 'each', '* * * * *', 'UTC', '_', '1', 'once', 'tests', now(), now(), now())",
    ] {
        assert_eq!(sqlx::query(statement).execute(&stage.pool).await.unwrap().rows_affected(), 1);
    }
    let published = pushed.notifier.published().len();
    let woken = pushed.wake().await;
    has(&woken, json!({"woken": 1, "jobs": 1, "more": false}));
    assert!(woken["ticks"].as_u64().unwrap() >= 1, "{woken}");
    assert!(pushed.notifier.published().len() > published);
    assert_eq!(stage.pool.value::<i64>("select count(*) from wakeq.resume_jobs").await, 0);
    assert_eq!(stage.pool.value::<i64>("select count(*) from wakeq.emitted_ids").await, 0);
    assert!(promise(stage, overdue).await.unwrap() > 500.0, "the back-off");
    assert_eq!(pushed.pushed(overdue).await, 204);
    assert_eq!(seen.next().await.id, overdue);
    pushed.stop().await;
}

/// One call per period gets through; a clock that ticks a little early does not miss its turn.
// Shows: PUSH-14
#[tokio::test]
async fn surplus_wake_calls_do_nothing() {
    let pushed = PushDeployment::start(Handlers::new()).await;
    let stage = &pushed.stage;
    let id = stage.emit("greet").await;
    let overdue = async || set(stage, id, "notify_at = now() - interval '1 s'").await;
    overdue().await;
    assert_eq!(pushed.wake().await["woken"], 1);
    overdue().await;
    for _ in 0..3 {
        assert_eq!(pushed.wake().await, json!({"woken": 0, "jobs": 0, "ticks": 0, "more": false}));
    }
    last_pass(stage, "20 s").await;
    assert_eq!(pushed.wake().await["woken"], 0);
    last_pass(stage, "58 s").await;
    assert_eq!(pushed.wake().await["woken"], 1, "almost a minute later");
    pushed.stop().await;
}

/// Page after page, within one call.
// Shows: PUSH-14
#[tokio::test]
async fn a_call_goes_on_to_the_last_page() {
    let pushed = PushDeployment::start(Handlers::new()).await;
    let stage = &pushed.stage;
    let fill = "insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value, notify_at)
                select gen_random_uuid(), gen_random_uuid(), 'WORKER', 'h', '_', '1', now() - interval '1 s'
                  from generate_series(1, 2500)";
    stage.execute(fill).await;
    assert_eq!(pushed.wake().await, json!({"woken": 2500, "jobs": 0, "ticks": 0, "more": false}));
    stage.execute("delete from wakeq.events_v2").await;
    empty(stage).await;
    pushed.stop().await;
}
