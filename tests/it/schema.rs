//! The tables that other programs see: columns, types, defaults, and what they refuse.

use sqlx::Row;

use crate::support::Stage;

/// `name type [not null] [= default]`, one line per column.
async fn columns(stage: &Stage, table: &str) -> Vec<String> {
    let rows = sqlx::query(
        "select concat_ws(' ', column_name, coalesce(domain_name, udt_name),
                          case when is_nullable = 'NO' then 'not null' end, '= ' || column_default)
           from information_schema.columns where table_schema = 'wakeq' and table_name = $1 order by ordinal_position",
    );
    rows.bind(table).fetch_all(&stage.pool).await.unwrap().iter().map(|row| row.get(0)).collect()
}

/// EV2-38: the columns of the design, then ours.
#[tokio::test]
async fn events_have_the_agreed_columns() {
    let (stage, _) = Stage::memory().await;
    assert_eq!(
        columns(&stage, "events_v2").await,
        [
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
            "notify_at timestamptz = now()",
            "probes int4 not null = 0",
            "claims int4 not null = 0",
            "losses int4 not null = 0",
            "traceparent traceparent",
            "last_error text",
        ]
    );
}

/// EV2-39.
#[tokio::test]
async fn rules_have_the_agreed_columns() {
    let (stage, _) = Stage::memory().await;
    assert_eq!(
        columns(&stage, "scheduling_rules").await,
        [
            "id int4 not null = nextval('wakeq.scheduling_rules_id_seq'::regclass)",
            "rule_type scheduling_rule_type not null",
            "canvas_id uuid not null",
            "handler_name name not null",
            "event_space name not null",
            "created_at timestamp not null = now()",
            "reason text",
            "until timestamptz",
            "created_by text not null",
        ]
    );
}

/// EV2-40.
#[tokio::test]
async fn a_rule_is_a_pause_or_a_block() {
    let (stage, _) = Stage::memory().await;
    let add = |kind: &'static str| {
        sqlx::query(
            "insert into wakeq.scheduling_rules (rule_type, canvas_id, event_space, handler_name, created_by)
             values ($1::text::wakeq.scheduling_rule_type, gen_random_uuid(), 'WORKER', 'greet', 'ada')",
        )
        .bind(kind)
        .execute(&stage.pool)
    };
    add("pause").await.unwrap();
    add("block").await.unwrap();
    let refused = add("stop").await.unwrap_err().to_string();
    assert!(refused.contains("invalid input value for enum"), "{refused}");
}

/// What a program could insert wrongly by SQL is refused by the table itself.
#[tokio::test]
async fn rows_that_no_worker_could_run_are_refused() {
    let (stage, _) = Stage::memory().await;
    let insert = async |name: &str, value: String, traceparent: &str| {
        sqlx::query(
            "insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value, traceparent)
             values (gen_random_uuid(), gen_random_uuid(), 'WORKER', $1::text, '_', $2::text, nullif($3::text, ''))",
        )
        .bind(name)
        .bind(value)
        .bind(traceparent)
        .execute(&stage.pool)
        .await
        .map_err(|error| error.to_string())
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
