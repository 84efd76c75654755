//! The tables that other programs see: columns, types, defaults, and what they refuse.

use sqlx::PgPool;

use crate::support::{Stage, Statements};

/// `name type [not null] [= default]`, one line per column.
async fn columns(stage: &Stage, table: &str) -> Vec<String> {
    let columns = "select concat_ws(' ', column_name, coalesce(domain_name, udt_name),
                          case when is_nullable = 'NO' then 'not null' end, '= ' || column_default)
           from information_schema.columns where table_schema = 'wakeq' and table_name = $1 order by ordinal_position";
    sqlx::query_scalar(columns).bind(table).fetch_all(&stage.pool).await.unwrap()
}

/// The columns of the design, then ours. The last one says that a limit has put the event off, so
/// that claims of all others look for no row of `limit_waits`.
// Shows: EV2-38
#[tokio::test]
async fn events_have_the_agreed_columns() {
    let (stage, _) = Stage::memory().await;
    let agreed = [
        "id uuid not null",
        "canvas_id uuid not null",
        "module name not null",
        "name name not null",
        "modifier name not null",
        "value payload not null",
        "retries int4 not null = 0",
        "delay_until timestamptz not null = now()",
        "enqueued_at timestamptz not null = now()",
        "locked_at timestamptz",
        "worker name",
        "notify_at timestamptz = now()",
        "probes int4 not null = 0",
        "claims int4 not null = 0",
        "nonce int4 not null = 0",
        "losses int4 not null = 0",
        "traceparent traceparent",
        "last_error text",
        "postponed_since timestamptz",
        "object object_key",
        "seq int8",
        "prev int8",
        "queue name",
        "origin uuid",
        "unique_key text",
        "unique_for interval",
        "cancelled_by text",
        "options jsonb",
        "starts_at timestamptz",
        "leased_at timestamptz",
    ];
    assert_eq!(columns(&stage, "events_v2").await, agreed);
}

// Shows: EV2-39
#[tokio::test]
async fn rules_have_the_agreed_columns() {
    let (stage, _) = Stage::memory().await;
    let agreed = [
        "id int4 not null = nextval('wakeq.scheduling_rules_id_seq'::regclass)",
        "rule_type scheduling_rule_type not null",
        "canvas_id uuid not null",
        "handler_name name not null",
        "event_space name not null",
        "created_at timestamp not null = now()",
        "reason text",
        "until timestamptz",
        "created_by text not null = ('sql:'::text || (SESSION_USER)::text)",
    ];
    assert_eq!(columns(&stage, "scheduling_rules").await, agreed);
}

/// A row needs only the agreed columns; the others have defaults, and it records its author.
// Shows: EV2-39
#[tokio::test]
async fn a_rule_can_be_inserted_with_the_agreed_columns_alone() {
    let (stage, _) = Stage::memory().await;
    let insert = "insert into wakeq.scheduling_rules (rule_type, canvas_id, handler_name, event_space)
                  values ('pause', '00000000-0000-0000-0000-000000000000', 'greet', 'WORKER'),
                         ('block', '00000000-0000-0000-0000-000000000001', 'greet', 'WORKER')";
    stage.pool.run(insert).await;
    let rules = stage.admin.rules_of(&crate::support::scope("greet")).await.unwrap();
    assert_eq!(rules.len(), 1);
    assert!(rules[0].created_by.starts_with("sql:"), "{}", rules[0].created_by);
}

// Shows: EV2-40
#[tokio::test]
async fn a_rule_is_a_pause_or_a_block() {
    let (stage, _) = Stage::memory().await;
    let rule =
        "insert into wakeq.scheduling_rules (rule_type, canvas_id, event_space, handler_name, created_by)
                values ($1::text::wakeq.scheduling_rule_type, gen_random_uuid(), 'WORKER', 'greet', 'ada')";
    let add = |kind: &'static str| sqlx::query(rule).bind(kind).execute(&stage.pool);
    add("pause").await.unwrap();
    add("block").await.unwrap();
    let refused = add("stop").await.unwrap_err().to_string();
    assert!(refused.contains("invalid input value for enum"), "{refused}");
}

/// The table itself refuses what a program could insert wrongly by SQL.
#[tokio::test]
async fn rows_that_no_worker_could_run_are_refused() {
    let (stage, _) = Stage::memory().await;
    let row = "insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value, traceparent)
               values (gen_random_uuid(), gen_random_uuid(), 'WORKER', $1::text, '_', $2::text, nullif($3::text, ''))";
    let insert = async |name: &str, value: String, traceparent: &str| {
        let inserted = sqlx::query(row).bind(name).bind(value).bind(traceparent).execute(&stage.pool).await;
        inserted.map_err(|error| error.to_string())
    };
    insert("greet", "1".into(), "").await.unwrap();
    insert("greet", "1".into(), "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01").await.unwrap();
    insert("greet", "x".repeat(16 << 20), "").await.unwrap();
    for (name, value, traceparent, domain) in [
        ("", "1".into(), "", "name"),
        ("a b", "1".into(), "", "name"),
        (&*"a".repeat(129), "1".into(), "", "name"),
        ("greet", "x".repeat((16 << 20) + 1), "", "payload"),
        ("greet", "1".into(), "00-4BF9", "traceparent"),
    ] {
        let refused = insert(name, value, traceparent).await.unwrap_err();
        assert!(refused.contains(&format!("domain wakeq.{domain}")), "{refused}");
    }
    assert_eq!(stage.rows().await, 3);
}

/// The error of a statement, which names the constraint or type.
async fn refusal(pool: &PgPool, sql: &'static str) -> String {
    sqlx::query(sql).execute(pool).await.expect_err(sql).to_string()
}

/// EV2-40: one rule of a kind per handler.
#[tokio::test]
async fn a_handler_has_one_rule_of_a_kind() {
    let (stage, _) = Stage::memory().await;
    let twice = "insert into wakeq.scheduling_rules (rule_type, canvas_id, handler_name, event_space, created_by)
                 select 'pause', 'c0ffee00-0000-0000-0000-000000000000', 'h', 'WORKER', 'ada' from generate_series(1, 2)";
    assert!(refusal(&stage.pool, twice).await.contains("scheduling_rules_one_of_a_kind"));
}

/// EV2-38, EV2-39: the document's columns are text; domains over text are shown as such.
#[tokio::test]
async fn domains_show_as_text() {
    let (stage, _) = Stage::memory().await;
    let texts = "select column_name::text from information_schema.columns
          where table_schema = 'wakeq' and table_name in ('events_v2', 'scheduling_rules') and data_type = 'text'
            and domain_name is not null order by table_name, ordinal_position";
    let texts: Vec<String> = stage.pool.values(texts).await;
    let of_events = ["module", "name", "modifier", "value", "worker", "traceparent", "object", "queue"];
    assert_eq!(texts, [&of_events[..], &["handler_name", "event_space"]].concat());
}

/// EV2-46, EV2-47: the row that an emit writes, by `emit` and by plain SQL with the defaults.
#[tokio::test]
async fn an_emitted_row_begins_as_the_document_says() {
    let (stage, _) = Stage::memory().await;
    stage.emit("greet").await;
    let by_sql = "insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value)
                  values (gen_random_uuid(), gen_random_uuid(), 'WORKER', 'greet', '_', '\"value\"')";
    stage.pool.run(by_sql).await;
    let as_documented =
        "select retries = 0 and locked_at is null and delay_until = enqueued_at and claims = 0 and losses = 0
                and enqueued_at between now() - interval '1 min' and now() and module = 'WORKER' and name = 'greet'
                and modifier = '_' and value = '\"value\"' and notify_at is not null
           from wakeq.events_v2";
    let as_documented: Vec<bool> = stage.pool.values(as_documented).await;
    assert_eq!(as_documented, [true, true]);
}

/// Limits and invariants hold, whatever writes.
#[tokio::test]
async fn the_tables_reject_invalid_rows() {
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
        ("update wakeq.events_v2 set probes = -1", "events_v2_counts"),
        ("update wakeq.events_v2 set losses = 1", "events_v2_counts"),
        ("update wakeq.events_v2 set losses = -1, claims = -1", "events_v2_counts"),
        ("update wakeq.events_v2 set locked_at = now()", "events_v2_locked_by_a_claim"),
        ("update wakeq.events_v2 set worker = 'one'", "events_v2_worker_of_a_claim"),
        ("update wakeq.events_v2 set delay_until = '-infinity'", "events_v2_moments"),
        ("update wakeq.events_v2 set notify_at = 'infinity'", "events_v2_moments"),
        ("update wakeq.events_v2 set enqueued_at = '200000-01-01'", "events_v2_moments"),
        ("update wakeq.events_v2 set enqueued_at = '0001-12-31 BC'", "events_v2_moments"),
        ("update wakeq.events_v2 set notify_at = null, delay_until = '10000-01-01Z'", "events_v2_moments"),
        ("update wakeq.events_v2 set postponed_since = '-infinity'", "events_v2_moments"),
        ("update wakeq.events_v2 set postponed_since = 'infinity', notify_at = null", "events_v2_moments"),
        ("update wakeq.events_v2 set modifier = null", "null"),
        ("insert into wakeq.events_v2 select * from wakeq.events_v2", "events_v2_pkey"),
        (
            "insert into wakeq.resume_jobs (kind, canvas_id, module, name) values ('x', gen_random_uuid(), 'm', 'n')",
            "resume_jobs_kind_check",
        ),
    ] {
        let refusal = refusal(&stage.pool, sql).await;
        assert!(refusal.contains(constraint), "{sql}: {refusal}");
    }
    assert_eq!(stage.rows().await, 1);
}

/// The single definition of the wake-up time.
#[tokio::test]
async fn the_wake_up_time_is_defined_once() {
    let (stage, _) = Stage::memory().await;
    let seconds =
        "select extract(epoch from wakeq.wake_at(c.clock + due * interval '1 s', c.clock, horizon, '30 s') - c.clock)::float8
           from (values (timestamptz '2026-01-01')) c (clock),
                (values (-5, interval '10 min'), (0, '10 min'), (600, '10 min'), (601, '10 min'), (86400, '10 min'),
                        (5, '0'), (0, '0')) v (due, horizon)";
    let seconds: Vec<f64> = stage.pool.values(seconds).await;
    assert_eq!(seconds, [30.0, 30.0, 630.0, 1.0, 85800.0, 5.0, 30.0]);
}
