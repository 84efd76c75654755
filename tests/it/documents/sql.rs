//! The SQL in docs/sql.md, run exactly as documented, by a role with the documented rights.

use std::collections::HashMap;
use std::sync::Arc;

use sqlx::{AssertSqlSafe, Connection, PgConnection};
use uuid::Uuid;
use wakeq::machine::Outcome;
use wakeq::notify::{Notification, Notifier};
use wakeq::testing::MemoryNotifier;
use wakeq::{CanvasId, EventId, Execution, HandlerResult, Handlers};

use crate::support::{Stage, Statements, login, quick};

const DOCUMENT: &str = include_str!("../../../docs/sql.md");

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

/// A login with the documented rights and no others, and the stage whose tables it emits into.
struct Shop {
    stage: Stage,
    notifier: Arc<MemoryNotifier>,
    session: PgConnection,
}

impl Shop {
    async fn open() -> Self {
        let (stage, notifier) = Stage::memory_with(quick()).await;
        let (role, url) = login(&stage.database, "shop").await;
        let rights =
            sql("Rights").replace("to shop;", &format!("to {role};")).replace("'shop'", &format!("'{role}'"));
        let orders =
            format!("create table orders (id bigint primary key); grant insert on orders to {role};");
        sqlx::raw_sql(AssertSqlSafe(rights + &orders)).execute(&stage.pool).await.unwrap();
        Self { stage, notifier, session: PgConnection::connect(&url).await.unwrap() }
    }

    async fn run(&mut self, sql: &str) -> Result<(), sqlx::Error> {
        sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&mut self.session).await.map(drop)
    }

    /// Runs a statement that is refused; returns the reason.
    async fn refused(&mut self, sql: &str) -> String {
        self.run(sql).await.expect_err(sql).to_string()
    }

    async fn rows(&self) -> i64 {
        self.stage.rows().await
    }
}

async fn handle(event: Execution) -> HandlerResult {
    event.value::<serde_json::Value>().map(drop)
}

async fn id_of(stage: &Stage, name: &str) -> EventId {
    let id = sqlx::query_scalar("select id from wakeq.events_v2 where name = $1").bind(name);
    EventId(id.fetch_one(&stage.pool).await.unwrap())
}

#[tokio::test]
async fn events_emitted_by_plain_sql_run() {
    let mut shop = Shop::open().await;
    for heading in ["In your transaction", "With a delay", "At once", "On an object", "On an object"] {
        shop.run(&sql(heading)).await.unwrap();
    }
    let chosen = sql("With an id of your choice");
    let again = async |session: &mut PgConnection| {
        let answer = sqlx::query_as::<_, (Uuid, bool)>(AssertSqlSafe(chosen.clone()));
        answer.fetch_one(session).await.unwrap()
    };
    let (first, second) = (again(&mut shop.session).await, again(&mut shop.session).await);
    assert_eq!((first.1, second), (true, (first.0, false)), "emitted twice");
    let stage = &shop.stage;
    let sql = "select seq, prev from wakeq.events_v2 where object is not null order by seq";
    let links: Vec<(i64, i64)> = stage.pool.table(sql).await;
    assert_eq!((links[0].1, links[1].1), (0, links[0].0));
    assert_eq!(stage.rows().await, 6);
    let delayed = id_of(stage, "send-reminder").await;
    let promised =
        "select notify_at = delay_until - interval '60 seconds' from wakeq.events_v2 where id = $1";
    let promised: bool = sqlx::query_scalar(promised).bind(delayed.0).fetch_one(&stage.pool).await.unwrap();
    // A horizon before it is due, and a horizon is a minute here.
    assert!(promised, "the delayed one is promised");

    let pass = stage.admin.wake(false).await.unwrap();
    assert_eq!(pass.woken, 4, "those that wait for the probe and are due");

    let body = &blocks()[&("At once", "json")];
    let notification = Notification::parse(body.as_bytes()).unwrap();
    assert_eq!(notification.body(), body.trim_end().as_bytes());
    assert_eq!(notification.id, id_of(stage, "greet").await);
    shop.notifier.publish(&[notification]).await.unwrap();

    let names = ["confirm-order", "send-reminder", "greet", "charge-card", "index"];
    let handlers = names.into_iter().fold(Handlers::new(), |handlers, name| handlers.on(name, handle));
    let mut worker = stage.worker(handlers);
    let (mut alone, mut in_order) = (0, 0);
    while (alone, in_order) != (3, 2) {
        let report = worker.report().await;
        alone += i32::from(report.trail.last() == Some(&Outcome::Deleted));
        in_order += i32::from(report.trail.last() == Some(&Outcome::HandedOver));
    }
    stage.admin.run_now(CanvasId::DEFAULT, delayed, &wakeq::Actor::user("ada")).await.unwrap();
    worker.until(delayed, Outcome::Deleted).await;
    assert_eq!(again(&mut shop.session).await, (first.0, false), "emitted again after it completed");
    worker.stop().await;
    assert_eq!(shop.rows().await, 0);
}

/// What Postgres grants everyone, and the document takes away.
#[tokio::test]
async fn a_role_fills_no_disk_and_counts_no_rows_of_others() {
    let mut shop = Shop::open().await;
    let everybodys = [
        "create temporary table filler as select 1",
        "select lo_from_bytea(0, 'x')",
        "select lo_create(0)",
        "select lo_creat(-1)",
        "select n_tup_ins from pg_stat_user_tables",
        "select n_tup_ins from pg_stat_all_tables",
    ];
    for sql in everybodys {
        shop.run(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
    let (owner, _) = login(&shop.stage.database, "owner").await;
    let name: String = shop.stage.pool.value("select current_database()::text").await;
    let recipe =
        sql("What Postgres lets every role do").replace("database app ", &format!("database \"{name}\" "));
    let recipe = recipe.replace("app_owner, app_api, app_worker;", &format!("{owner};"));
    sqlx::raw_sql(AssertSqlSafe(recipe)).execute(&shop.stage.pool).await.unwrap();
    for sql in ["create temporary table filler_2 as select 1"].iter().chain(&everybodys[1..]) {
        let refused = shop.refused(sql).await;
        assert!(refused.contains("permission denied"), "{sql}: {refused}");
    }
    shop.run(&sql("In your transaction")).await.unwrap();
}

/// The function is the only way: no table, no other canvas, no reserved name, nothing that a
/// handler can't read.
#[tokio::test]
async fn the_rights_in_the_document_are_all_that_a_role_has() {
    let mut shop = Shop::open().await;
    let other = "00000000-0000-0000-0000-000000000007";
    let theirs =
        format!("select wakeq.emit('greet', '1', canvas => '{other}', object => 'acct:9', id => '{other}')");
    sqlx::raw_sql(AssertSqlSafe(theirs.clone())).execute(&shop.stage.pool).await.unwrap();
    for sql in [
        "select from wakeq.objects",
        "update wakeq.objects set state = '{\"balance\":1000000}', last_seq = 9223372036854775807",
        "insert into wakeq.objects (canvas_id, object) values (gen_random_uuid(), 'acct:9')",
        "select from wakeq.emitted_ids",
        "insert into wakeq.emitted_ids (id, canvas_id) values (gen_random_uuid(), gen_random_uuid())",
        "select from wakeq.events_v2",
        "update wakeq.events_v2 set notify_at = null",
        "delete from wakeq.events_v2",
        "insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value)
         values (gen_random_uuid(), 'ffffffff-ffff-ffff-ffff-ffffffffffff', 'QUEUE', 'billing', '_', '1')",
        "select from wakeq.settings",
        "select from wakeq.emitters",
        "insert into wakeq.emitters (role) values (session_user)",
        "select from wakeq.log_appenders",
        "select nextval('wakeq.event_seq')",
        "select wakeq.log_floor()",
        "select wakeq.lock_queue('emails')",
        "select wakeq.chosen_id(gen_random_uuid(), gen_random_uuid())",
        "select wakeq.grant_rights(session_user, 'api')",
        "do $$ begin lock table wakeq.claim_gate in access share mode; end $$",
    ] {
        let refused = shop.refused(sql).await;
        assert!(refused.contains("permission denied"), "{sql}: {refused}");
    }
    for (sql, why) in [
        (theirs.as_str(), "may not emit on the canvas 00000000-0000-0000-0000-000000000007"),
        ("select wakeq.emit('greet', '1', canvas => null)", "may not emit"),
        ("select wakeq.emit('billing', '1', module => 'QUEUE')", "reserved"),
        ("select wakeq.emit('nightly', '1', module => 'CRON')", "reserved"),
        ("select wakeq.emit('paid', '1', module => 'ANSWER')", "reserved"),
        ("select wakeq.emit('_', '1', module => 'CANVAS')", "reserved"),
        ("select wakeq.emit('greet', '{')", "json"),
        ("select wakeq.emit('greet', null)", "262,144"),
        ("select wakeq.emit('greet', to_json(repeat('x', 262143))::text)", "262,144"),
        ("select wakeq.emit('no spaces', '1')", "name_check"),
        ("select wakeq.emit('greet', '1', object => 'no spaces')", "object_key_check"),
        ("select wakeq.emit('greet', '1', due => 'infinity')", "events_v2_moments"),
        ("select wakeq.emit('greet', '1', traceparent => 'x')", "traceparent_check"),
    ] {
        let refused = shop.refused(sql).await;
        assert!(refused.contains(why), "{sql}: {refused}");
    }
    assert_eq!(shop.rows().await, 1, "only that of the other canvas");
    let reserved = "insert into wakeq.emitters (role, canvas_id) values ('shop', 'ffffffff-ffff-ffff-ffff-ffffffffffff')";
    assert!(sqlx::query(reserved).execute(&shop.stage.pool).await.is_err(), "nobody emits there");

    // The object and the id of the same names are the shop's own.
    let ours = theirs.replace(&format!("canvas => '{other}', "), "");
    shop.run(&ours).await.unwrap();
    let rows: Vec<(Uuid, i64)> =
        shop.stage.pool.table("select id, prev from wakeq.events_v2 order by seq").await;
    assert!(rows.len() == 2 && rows[0].0 != rows[1].0, "{rows:?}");
    assert_eq!((rows[0].1, rows[1].1), (0, 0), "each is the first of its object");
}
