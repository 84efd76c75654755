//! The SQL in docs/sql.md, run as it stands there.

use std::collections::HashMap;

use sqlx::AssertSqlSafe;
use wakeq::notify::Notifier;
use wakeq::{EventId, Execution, HandlerResult, Handlers, Notification, Outcome};

use crate::support::{Stage, quick};

const DOCUMENT: &str = include_str!("../../docs/sql.md");

/// The first block of code in each section, by the section's heading and the block's language.
fn blocks() -> HashMap<(&'static str, &'static str), String> {
    let mut blocks = HashMap::new();
    for section in DOCUMENT.split("\n## ").skip(1) {
        let heading = section.lines().next().unwrap();
        for block in section.split("\n```").skip(1).step_by(2) {
            let (language, code) = block.split_once('\n').unwrap();
            let former = blocks.insert((heading, language), code.to_owned());
            assert_eq!(former, None, "two {language} blocks under {heading}");
        }
    }
    blocks
}

fn sql(heading: &'static str) -> String {
    blocks().remove(&(heading, "sql")).unwrap_or_else(|| panic!("docs/sql.md has no SQL under {heading:?}"))
}

async fn run(stage: &Stage, sql: String) -> u64 {
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(&stage.pool).await.unwrap().rows_affected()
}

async fn handle(event: Execution) -> HandlerResult {
    event.value::<serde_json::Value>().map(drop)
}

async fn id_of(stage: &Stage, name: &str) -> EventId {
    let id = sqlx::query_scalar("select id from wakeq.events_v2 where name = $1").bind(name);
    EventId(id.fetch_one(&stage.pool).await.unwrap())
}

#[tokio::test]
async fn what_plain_sql_emits_is_run() {
    let (stage, notifier) = Stage::memory_with(quick()).await;
    run(&stage, "create table orders (id bigint primary key)".to_owned()).await;
    run(&stage, sql("In your transaction")).await;
    run(&stage, sql("With a delay")).await;
    run(&stage, sql("At once")).await;
    run(&stage, sql("With an id of your choice")).await;
    assert_eq!(run(&stage, sql("With an id of your choice")).await, 0, "emitted twice");
    run(&stage, sql("On an object")).await;
    run(&stage, sql("On an object")).await;
    let links: Vec<(i64, i64)> =
        sqlx::query_as("select seq, prev from wakeq.events_v2 where object is not null order by seq")
            .fetch_all(&stage.pool)
            .await
            .unwrap();
    assert_eq!((links[0].1, links[1].1), (0, links[0].0));
    assert_eq!(stage.rows().await, 6);
    let delayed = id_of(&stage, "send-reminder").await;

    let pass = stage.admin.wake(false).await.unwrap();
    assert_eq!(pass.woken, 4, "those that wait for the probe and are due");
    let moved = "select notify_at = delay_until - interval '60 seconds' from wakeq.events_v2 where id = $1";
    let moved: bool = sqlx::query_scalar(moved).bind(delayed.0).fetch_one(&stage.pool).await.unwrap();
    assert!(moved, "the delayed one is promised a horizon before it is due");

    let body = &blocks()[&("At once", "json")];
    let notification = Notification::parse(body.as_bytes()).unwrap();
    assert_eq!(notification.body(), body.trim_end().as_bytes());
    assert_eq!(notification.id, id_of(&stage, "greet").await);
    notifier.publish(&[notification]).await.unwrap();

    let names = ["confirm-order", "send-reminder", "greet", "charge-card", "index"];
    let handlers = names.into_iter().fold(Handlers::new(), |handlers, name| handlers.on(name, handle));
    let mut worker = stage.worker(handlers);
    let (mut alone, mut in_order) = (0, 0);
    while (alone, in_order) != (3, 2) {
        let report = worker.report().await;
        alone += i32::from(report.trail.last() == Some(&Outcome::Deleted));
        in_order += i32::from(report.trail.last() == Some(&Outcome::HandedOver));
    }
    stage.admin.run_now(wakeq::CanvasId::DEFAULT, delayed, &wakeq::Actor::user("ada")).await.unwrap();
    worker.until(delayed, Outcome::Deleted).await;
    assert_eq!(run(&stage, sql("With an id of your choice")).await, 0, "emitted again after it completed");
    worker.stop().await;
    assert_eq!(stage.rows().await, 0);
}

#[tokio::test]
async fn the_rights_in_the_document_are_enough() {
    let (stage, _) = Stage::memory().await;
    let role = format!("shop_{}", stage.database.name());
    let rights = sql("Rights").replace("to shop", &format!("to {role}"));
    let as_the_role = [
        "begin".to_owned(),
        format!("create role {role}"),
        rights,
        format!("set local role {role}"),
        sql("With a delay"),
        sql("At once"),
        sql("With an id of your choice"),
        sql("On an object").replace("begin;", "").replace("commit;", ""),
        "rollback".to_owned(),
    ];
    run(&stage, as_the_role.join(";\n")).await;
    assert_eq!(stage.rows().await, 0);
}
