//! The SQL in docs/options.md, emitted by a role with the documented rights; and what its events
//! ask for.

use sqlx::{AssertSqlSafe, Connection, PgConnection};
use wakeq::machine::Outcome;
use wakeq::workers::Verdict;
use wakeq::{CanvasId, EventId, HandlerError};

use crate::support::{OTHER, Stage, login};

const DOCUMENT: &str = include_str!("../../../docs/options.md");
const RIGHTS: &str = "
    grant usage on schema wakeq to shop;
    grant execute on function wakeq.emit to shop;
    insert into wakeq.emitters (role, canvas_id) values ('shop', '00000000-0000-0000-0000-000000000000');";

/// The page's only block of SQL.
fn block() -> &'static str {
    let blocks: Vec<_> =
        DOCUMENT.split("\n```sql\n").skip(1).map(|rest| rest.split("\n```").next()).collect();
    let [Some(block)] = blocks[..] else { panic!("{blocks:?}") };
    block
}

#[tokio::test]
async fn events_with_options_are_emitted_by_plain_sql() {
    let (stage, _) = Stage::memory().await;
    let (role, url) = login(&stage.database, "shop").await;
    let rights = RIGHTS.replace("to shop;", &format!("to {role};")).replace("'shop'", &format!("'{role}'"));
    sqlx::raw_sql(AssertSqlSafe(rights)).execute(&stage.pool).await.unwrap();
    let mut session = PgConnection::connect(&url).await.unwrap();
    let mut ids = Vec::new();
    for statement in block().split(';').filter(|statement| !statement.trim().is_empty()) {
        let emitted = sqlx::query_scalar::<_, uuid::Uuid>(AssertSqlSafe(statement.to_owned()));
        ids.push(EventId(emitted.fetch_one(&mut session).await.unwrap()));
    }
    let [retried, expires] = ids[..] else { panic!("{ids:?}") };
    let options = stage.live(CanvasId::DEFAULT, retried).await.options.unwrap();
    assert_eq!((options.retries(), options.delays().unwrap().len()), (Some(5), 3));
    let live = stage.live(CanvasId::DEFAULT, expires).await;
    let left = live.options.unwrap().not_after().unwrap() - live.enqueued_at;
    assert_eq!(left.num_minutes(), 5, "{left}");

    let elsewhere = format!("select wakeq.emit('send-code', '1', canvas => '{OTHER}', options => '{{}}')");
    let refused = sqlx::raw_sql(AssertSqlSafe(elsewhere)).execute(&mut session).await.unwrap_err();
    assert!(refused.to_string().contains("may not emit"), "{refused}");

    let (mut worker, _seen) = stage.answering("send-code", |_| Err(HandlerError::operational("no")));
    stage.admin.wake(true).await.unwrap();
    let (mut delay, mut has_expired) = (None, false);
    while delay.is_none() || !has_expired {
        let report = worker.report().await;
        has_expired |= report.notification.id == expires && report.trail.contains(&Outcome::Expired);
        if report.notification.id == retried
            && let Verdict::Waits(wait) = report.verdict
        {
            delay = delay.or(Some(wait.as_secs_f64()));
        }
    }
    assert!(delay.is_some_and(|delay| (1.0..=1.2).contains(&delay)), "{delay:?}");
    worker.stop().await;
}
