//! The tables as the documents list them, and what they refuse.

use sqlx::PgPool;

use crate::support::Stage;

/// Name, type, nullable, default.
type Column = (String, String, String, Option<String>);

async fn columns(pool: &PgPool, table: &str) -> Vec<Column> {
    sqlx::query_as(
        "select column_name::text, data_type::text, is_nullable::text, column_default::text
           from information_schema.columns where table_schema = 'wakeq' and table_name = $1 order by ordinal_position",
    )
    .bind(table)
    .fetch_all(pool)
    .await
    .unwrap()
}

fn column(name: &str, kind: &str, nullable: bool, default: Option<&str>) -> Column {
    let nullable = if nullable { "YES" } else { "NO" };
    (name.into(), kind.into(), nullable.into(), default.map(Into::into))
}

/// The constraint or type that refuses a statement.
async fn refusal(pool: &PgPool, sql: &'static str) -> String {
    sqlx::query(sql).execute(pool).await.expect_err(sql).to_string()
}

/// EV2-38, EV2-31, EV2-33: the document's ten columns, in its order, then ours; `id` has no default.
#[tokio::test]
async fn events_v2_has_the_documents_columns() {
    let (stage, _) = Stage::memory().await;
    let time = "timestamp with time zone";
    let documents = [
        column("id", "uuid", false, None),
        column("canvas_id", "uuid", false, None),
        column("module", "text", false, None),
        column("name", "text", false, None),
        column("modifier", "text", false, None),
        column("value", "text", false, None),
        column("retries", "integer", false, Some("0")),
        column("delay_until", time, false, Some("now()")),
        column("enqueued_at", time, false, Some("now()")),
        column("locked_at", time, true, None),
    ];
    let ours = [
        column("notify_at", time, true, Some("now()")),
        column("probes", "integer", false, Some("0")),
        column("claims", "integer", false, Some("0")),
        column("losses", "integer", false, Some("0")),
        column("traceparent", "text", true, None),
        column("last_error", "text", true, None),
    ];
    assert_eq!(columns(&stage.pool, "events_v2").await, [&documents[..], &ours].concat());
}

/// EV2-39: the document's six columns, in its order, then ours.
#[tokio::test]
async fn scheduling_rules_has_the_documents_columns() {
    let (stage, _) = Stage::memory().await;
    let expected = [
        column("id", "integer", false, Some("nextval('wakeq.scheduling_rules_id_seq'::regclass)")),
        column("rule_type", "USER-DEFINED", false, None),
        column("canvas_id", "uuid", false, None),
        column("handler_name", "text", false, None),
        column("event_space", "text", false, None),
        column("created_at", "timestamp without time zone", false, Some("now()")),
        column("reason", "text", true, None),
        column("until", "timestamp with time zone", true, None),
        column("created_by", "text", false, None),
    ];
    assert_eq!(columns(&stage.pool, "scheduling_rules").await, expected);
}

/// EV2-40: pause or block, nothing else; one of a kind on a handler.
#[tokio::test]
async fn a_rule_is_a_pause_or_a_block() {
    let (stage, _) = Stage::memory().await;
    let kinds: Vec<String> = sqlx::query_scalar(
        "select enumlabel::text from pg_enum where enumtypid = 'wakeq.scheduling_rule_type'::regtype order by enumsortorder",
    )
    .fetch_all(&stage.pool)
    .await
    .unwrap();
    assert_eq!(kinds, ["pause", "block"]);
    let third =
        "insert into wakeq.scheduling_rules (rule_type, canvas_id, handler_name, event_space, created_by)
                 values ('throttle', gen_random_uuid(), 'h', 'WORKER', 'ada')";
    assert!(refusal(&stage.pool, third).await.contains("scheduling_rule_type"));
    let twice = "insert into wakeq.scheduling_rules (rule_type, canvas_id, handler_name, event_space, created_by)
                 select 'pause', 'c0ffee00-0000-0000-0000-000000000000', 'h', 'WORKER', 'ada' from generate_series(1, 2)";
    assert!(refusal(&stage.pool, twice).await.contains("scheduling_rules_one_of_a_kind"));
}

/// EV2-46, EV2-47: what an emit writes, by `emit` and by plain SQL with the defaults.
#[tokio::test]
async fn an_emitted_row_begins_as_the_document_says() {
    let (stage, _) = Stage::memory().await;
    stage.emit("greet").await;
    sqlx::query(
        "insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value)
         values (gen_random_uuid(), gen_random_uuid(), 'WORKER', 'greet', '_', '\"value\"')",
    )
    .execute(&stage.pool)
    .await
    .unwrap();
    let as_documented: Vec<bool> = sqlx::query_scalar(
        "select retries = 0 and locked_at is null and delay_until = enqueued_at and claims = 0 and losses = 0
                and enqueued_at between now() - interval '1 min' and now() and module = 'WORKER' and name = 'greet'
                and modifier = '_' and value = '\"value\"' and notify_at is not null
           from wakeq.events_v2",
    )
    .fetch_all(&stage.pool)
    .await
    .unwrap();
    assert_eq!(as_documented, [true, true]);
}

/// Limits and invariants hold whoever writes.
#[tokio::test]
async fn the_tables_refuse_what_makes_no_sense() {
    let (stage, _) = Stage::memory().await;
    stage.emit("greet").await;
    for (sql, constraint) in [
        ("update wakeq.events_v2 set name = 'no spaces'", "name_check"),
        ("update wakeq.events_v2 set name = ''", "name_check"),
        ("update wakeq.events_v2 set name = E'line\\n'", "name_check"),
        ("update wakeq.events_v2 set name = repeat('x', 129)", "name_check"),
        ("update wakeq.events_v2 set value = repeat('x', 16777217)", "payload_check"),
        ("update wakeq.events_v2 set traceparent = '00-00-00-00'", "traceparent_check"),
        ("update wakeq.events_v2 set retries = -1", "events_v2_counts"),
        ("update wakeq.events_v2 set losses = 1", "events_v2_counts"),
        ("update wakeq.events_v2 set locked_at = now()", "events_v2_locked_by_a_claim"),
        ("update wakeq.events_v2 set modifier = null", "not-null"),
        ("insert into wakeq.events_v2 select * from wakeq.events_v2", "events_v2_pkey"),
        (
            "insert into wakeq.resume_jobs (kind, canvas_id, module, name) values ('x', gen_random_uuid(), 'm', 'n')",
            "resume_jobs_kind_check",
        ),
    ] {
        let refusal = refusal(&stage.pool, sql).await;
        assert!(
            refusal.contains(constraint) || (constraint == "not-null" && refusal.contains("null")),
            "{sql}: {refusal}"
        );
    }
    assert_eq!(stage.rows().await, 1);
}

/// The one definition of the wake-up time.
#[tokio::test]
async fn the_wake_up_time_is_defined_once() {
    let (stage, _) = Stage::memory().await;
    let seconds: Vec<f64> = sqlx::query_scalar(
        "select extract(epoch from wakeq.wake_at(c.clock + due * interval '1 s', c.clock, horizon, '30 s') - c.clock)::float8
           from (values (timestamptz '2026-01-01')) c (clock),
                (values (-5, interval '10 min'), (0, '10 min'), (600, '10 min'), (601, '10 min'), (86400, '10 min'),
                        (5, '0'), (0, '0')) v (due, horizon)",
    )
    .fetch_all(&stage.pool)
    .await
    .unwrap();
    assert_eq!(seconds, [30.0, 30.0, 630.0, 1.0, 85800.0, 5.0, 30.0]);
}
