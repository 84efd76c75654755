//! The SQL in docs/limits.md: its event names the key of a limit, and is counted by it.

use sqlx::AssertSqlSafe;
use wakeq::limits::{LimitKey, NewLimit};
use wakeq::machine::Outcome;
use wakeq::{Actor, CanvasId, EventId};

use crate::support::{OTHER, Stage};

const DOCUMENT: &str = include_str!("../../../docs/limits.md");

/// The page's only block of SQL.
fn block() -> &'static str {
    let blocks: Vec<_> =
        DOCUMENT.split("\n```sql\n").skip(1).map(|rest| rest.split("\n```").next()).collect();
    let [Some(block)] = blocks[..] else { panic!("{blocks:?}") };
    block
}

#[tokio::test]
async fn events_that_plain_sql_emits_are_limited() {
    let (stage, _) = Stage::memory().await;
    let one = NewLimit { concurrency: Some(1), ..NewLimit::default() };
    for canvas in [CanvasId::DEFAULT, OTHER] {
        stage
            .admin
            .put_limit(canvas, &"customer".parse().unwrap(), &one, &Actor::user("test"))
            .await
            .unwrap();
    }
    let theirs = block().replace(", options =>", &format!(", canvas => '{OTHER}', options =>"));
    for (canvas, sql) in
        [(CanvasId::DEFAULT, block()), (CanvasId::DEFAULT, block()), (OTHER, theirs.as_str())]
    {
        let emitted = sqlx::query_scalar::<_, uuid::Uuid>(AssertSqlSafe(sql.to_owned()));
        let id = EventId(emitted.fetch_one(&stage.pool).await.unwrap());
        let options = stage.live(canvas, id).await.options.unwrap();
        assert_eq!(options.limits().iter().map(LimitKey::as_str).collect::<Vec<_>>(), ["customer:7"]);
    }
    let (mut worker, mut door) = stage.door("sync-orders");
    stage.admin.wake(true).await.unwrap();
    door.arrived.take(2).await;
    worker.until_count(1, Outcome::LimitFull).await;
    assert_eq!(door.most(), 2, "one of each canvas");
    door.open(3);
    door.left.take(3).await;
    assert_eq!(door.most(), 2, "the third came after the first of its canvas");
    worker.stop().await;
    assert_eq!(stage.rows().await, 0);
}
