//! The SQL in docs/search.md: an event gets its tag, by which it is found.

use sqlx::AssertSqlSafe;
use wakeq::CanvasId;
use wakeq::control::EventFilter;

use crate::support::{OTHER, Stage};

const DOCUMENT: &str = include_str!("../../../docs/search.md");

#[tokio::test]
async fn the_documented_sql_emits_a_tagged_event() {
    let (stage, _) = Stage::memory().await;
    let sql = DOCUMENT.split("\n```sql\n").nth(1).and_then(|rest| rest.split("\n```").next()).unwrap();
    sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&stage.pool).await.unwrap();
    let filter = EventFilter { tags: vec!["customer:7".parse().unwrap()], ..EventFilter::default() };
    let found = stage.admin.events(CanvasId::DEFAULT, &filter, None, 10).await.unwrap();
    assert_eq!((found.items.len(), found.looked_at, found.next), (1, 1, None));
    assert_eq!(stage.admin.events(OTHER, &filter, None, 10).await.unwrap().items, []);
    let refused = "select wakeq.emit('ship', '1', options => '{\"tags\": [\"a,b\"]}')";
    assert!(sqlx::raw_sql(AssertSqlSafe(refused.to_owned())).execute(&stage.pool).await.is_err());
}
