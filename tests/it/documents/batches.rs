//! The SQL in docs/batches.md: a member is emitted by plain SQL, while its batch is open.

use sqlx::AssertSqlSafe;
use wakeq::Event;

use crate::support::{OTHER, Stage};

const DOCUMENT: &str = include_str!("../../../docs/batches.md");

#[tokio::test]
async fn a_member_is_emitted_by_plain_sql() {
    let (stage, _) = Stage::memory().await;
    let sql = DOCUMENT.split("\n```sql\n").nth(1).and_then(|rest| rest.split("\n```").next()).unwrap();
    let emit = async || sqlx::raw_sql(AssertSqlSafe(sql)).execute(&stage.pool).await;
    let batch = stage.queue.batch("import:42").unwrap();
    batch.clone().canvas(OTHER).open(Event::new("imported", &1).unwrap()).await.unwrap();
    let refused = emit().await.unwrap_err().to_string();
    assert!(refused.contains("was never opened"), "theirs is another batch: {refused}");
    batch.open(Event::new("imported", &1).unwrap()).await.unwrap();
    emit().await.unwrap();
    assert_eq!(batch.progress().await.unwrap().left, 1);
    assert_eq!(batch.canvas(OTHER).progress().await.unwrap().left, 0);
}
