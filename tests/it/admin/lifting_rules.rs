//! Lifting a rule: how long the caller waits, and that waking continues without it.

use std::time::Duration;

use wakeq::machine::Outcome;
use wakeq::{Actor, Handlers, Stop};

use crate::support::{Stage, TIMEOUT, scope, wait_while};

/// A stage with a pause and this many parked events.
async fn parked(count: usize) -> (Stage, std::sync::Arc<wakeq::testing::MemoryNotifier>) {
    let (stage, notifier) = Stage::memory().await;
    stage.admin.pause(&scope("h"), &Actor::user("ada"), &Stop::default()).await.unwrap();
    let mut worker = stage.worker(Handlers::new().on("h", async |_| Ok(())));
    stage.emit_many("h", count).await;
    worker.until_count(count, Outcome::RulePaused).await;
    worker.stop().await;
    (stage, notifier)
}

async fn until_published(notifier: &wakeq::testing::MemoryNotifier, count: usize) {
    wait_while!(notifier.published().len() < count, "waking did not go on");
}

/// A caller with little patience learns that waking continues, and it does, without the minute's
/// pass.
#[tokio::test]
async fn waking_goes_on_after_the_callers_patience() {
    let (stage, notifier) = parked(2500).await;
    let before = notifier.published().len();
    let resumed =
        stage.admin.clone().patience(Duration::ZERO).unpause(&scope("h"), &Actor::user("ada")).await.unwrap();
    assert!(resumed.lifted && resumed.waking && resumed.woken < 2500, "{resumed:?}");
    until_published(&notifier, before + 2500).await;
    let again = stage.admin.patience(TIMEOUT).unpause(&scope("h"), &Actor::user("ada")).await.unwrap();
    assert!(!again.lifted && !again.waking, "{again:?}");
}

/// A caller that hangs up while pages are published stops nothing.
#[tokio::test]
async fn waking_goes_on_when_the_caller_hangs_up() {
    let (stage, notifier) = parked(2500).await;
    let before = notifier.published().len();
    let (admin, ada, handler) = (stage.admin.clone(), Actor::user("ada"), scope("h"));
    let mut lifting = Box::pin(admin.unpause(&handler, &ada));
    while notifier.published().len() == before {
        let pending = tokio::time::timeout(Duration::from_millis(1), &mut lifting).await.is_err();
        assert!(pending, "it ended with its first page");
    }
    drop(lifting);
    until_published(&notifier, before + 2500).await;
}

/// Unpausing wakes what the pause held and what waits for a target that has answered 410 Gone, both
/// before it returns. Another canvas's target stays as it is, and so do its events.
#[tokio::test]
async fn unpausing_wakes_what_a_gone_target_holds_as_well() {
    let (stage, notifier) = parked(3).await;
    stage.emit_many("h", 4).await;
    let there = "00000000-0000-0000-0000-000000000007";
    for statement in [
        format!(
            "update wakeq.events_v2 set canvas_id = '{there}'
              where id in (select id from wakeq.events_v2 where notify_at is not null limit 2)"
        ),
        "update wakeq.events_v2 set notify_at = now() + interval '4 min' where notify_at is not null".to_owned(),
        format!(
            "insert into wakeq.http_targets (canvas_id, module, name, modifier, url, retries, delay_ms, factor,
                                             delay_max_ms, timeout_ms, secret, created_by, updated_by, gone_at)
             select canvas, 'WORKER', 'h', '_', 'https://example.com', 0, 1, 1, 1, 1000, decode(repeat('5e', 32), 'hex'),
                    'ada', 'ada', now()
               from unnest(array['{there}', '00000000-0000-0000-0000-000000000000']::uuid[]) as canvas"
        ),
    ] {
        sqlx::query(sqlx::AssertSqlSafe(statement)).execute(&stage.pool).await.unwrap();
    }
    let before = notifier.published().len();
    let resumed = stage.admin.unpause(&scope("h"), &Actor::user("ada")).await.unwrap();
    assert_eq!((resumed.lifted, resumed.woken, resumed.waking), (true, 3 + 2, false));
    assert_eq!(notifier.published().len(), before + 5);
    let left = format!(
        "select (select count(*) from wakeq.events_v2 where notify_at > now() + interval '2 min' and canvas_id = '{there}')
              + (select count(*) from wakeq.http_targets where gone_at is not null and canvas_id = '{there}')
              + (select count(*) from wakeq.resume_jobs)"
    );
    let left: i64 = sqlx::query_scalar(sqlx::AssertSqlSafe(left)).fetch_one(&stage.pool).await.unwrap();
    assert_eq!(left, 2 + 1);
}
