//! Statistics: whatever was in the table of events when they were taken, no statement reads a whole
//! table or index where it needs a few rows.
//!
//! A quick queue is empty whenever it is vacuumed or analyzed. The planner then expects one row, so
//! that every index seems to be one page and the plans that it compares cost the same.

use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, Row as _};

use super::Table;
use crate::store::StoreConfig;
use crate::store::session::Session;

/// Statements that read all of an index or of the table: how each begins, and why it may.
const WHOLE: [(&str, &str); 6] = [
    ("with events as ( update wakeq.events_v2 set delay_until = delay_until -", "tests shift all events"),
    ("select min(moment) from", "tests look for the next moment of any event"),
    ("select count(*) as \"count!\" from wakeq.events_v2", "tests count all events"),
    ("insert into wakeq.resume_jobs (kind, canvas_id, module, name) select distinct", "reads what is parked"),
    ("with recursive named as", "the first copy of each queue that is not parked"),
    ("select array( select coalesce(host(client_addr)", "looks for any claim, before durations are changed"),
];

/// Most pages that any other statement reads for ten events of 100,000.
const PAGES_MAX: u64 = 2000;

/// Statements that read more pages: how each begins, how many, and why.
const MANY: [(&str, u64, &str); 8] = [
    ("select id as \"id!\", canvas_id as \"canvas_id!\"", 50_000, "passes over copies that wait in lanes"),
    ("select id, canvas_id, notify_at as", 20_000, "reads a page of promises"),
    ("with gate as ( update wakeq.chores set next_at = now() + $2", 50_000, "moves 1,000 promises"),
    ("with page as ( select id from wakeq.events_v2 where notify_at > now()", 50_000, "moves 1,000 promises"),
    ("with live as", 400_000, "counts the events of a canvas, after a vacuum in the index alone"),
    ("with asked as materialized", 40_000, "counts up to 20,000 copies"),
    ("with recursive canvases as ( (select canvas_id, 1 as number", 40_000, "counts up to 10,000 copies"),
    ("with limits as materialized ( select wakeq.quota_of($1, 'events'", 100_000, "counts a canvas's events"),
];

/// Tables that may be read whole beside another one: they have one row, or those that operators
/// registered.
const FEW_ROWS: [&str; 4] = ["log_seq", "log_partitioning", "queues", "queue_patterns"];

/// What a statement that is about events contains, or calls.
const ABOUT_EVENTS: [&str; 8] = [
    "wakeq.events_v2",
    "wakeq.take_turns",
    "wakeq.pull_turns",
    "wakeq.announce(",
    "wakeq.recall_held",
    "wakeq.enter_due",
    "wakeq.room_in_facet",
    "wakeq.due_facets",
];

/// Events of two canvases: some on objects, some copies in a queue.
const ADD: &str = "insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value, delay_until, notify_at, object, seq,
                                  prev, queue, origin)
     select gen_random_uuid(), case n % 10 when 0 then '00000000-0000-0000-0000-0000000000f0'::uuid
                                           else '00000000-0000-0000-0000-000000000000' end,
            'WORKER', 'h' || n % 5, '_', '1', now(), now() + interval '30 s',
            case when n % 10 in (1, 2) then 'o' || n % 1000 end, case when n % 10 in (1, 2) then n + 1 end,
            case when n % 10 in (1, 2) then n end, case when n % 10 in (2, 3) then 'q' end,
            case when n % 10 in (2, 3) then gen_random_uuid() end
       from generate_series(1, 100000) n";

/// Has been in use, and holds what is left when its statistics are taken.
async fn used(table: &Table, left: &'static str) {
    table.run(ADD).await;
    table.run("update wakeq.events_v2 set value = '2'").await;
    table.run("delete from wakeq.events_v2").await;
    table.run(left).await;
    table.run("vacuum (analyze, truncate false) wakeq.events_v2").await;
}

async fn table() -> Table {
    let config = StoreConfig {
        max_connections: 1,
        statement_timeout: Duration::from_secs(60),
        lock_timeout: Duration::from_secs(30),
        ..StoreConfig::default()
    };
    let table = Table::with(config).await;
    table.run("alter table wakeq.events_v2 set (autovacuum_enabled = false)").await;
    table
        .run("insert into wakeq.queues (name, created_by, updated_by, in_flight_max, pulled) values ('q', 'test', 'test', 100, true)")
        .await;
    table
}

#[tokio::test]
async fn no_statistics_were_ever_taken() {
    let table = table().await;
    assert!(table.holds("select reltuples = -1 from pg_class where oid = 'wakeq.events_v2'::regclass").await);
    check(&table).await;
}

#[tokio::test]
async fn statistics_were_taken_while_the_queue_was_empty() {
    let table = table().await;
    used(&table, "select").await;
    assert!(table.holds("select reltuples = 0 and relpages > 4000 from pg_class where oid = 'wakeq.events_v2'::regclass").await);
    check(&table).await;
}

#[tokio::test]
async fn statistics_were_taken_while_the_queue_held_one_event() {
    let table = table().await;
    let one =
        "insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value, delay_until, notify_at)
               values (gen_random_uuid(), '00000000-0000-0000-0000-000000000000', 'WORKER', 'one', '_', '1',
                       now() + interval '30 days', now() + interval '30 days')";
    used(&table, one).await;
    assert!(table.holds("select reltuples = 1 and relpages > 4000 from pg_class where oid = 'wakeq.events_v2'::regclass").await);
    check(&table).await;
}

/// The planner adds so much for a table without a usable index that all plans with it cost the same
/// to within a hundredth. Then it may choose one that reads another table whole as well.
#[tokio::test]
async fn no_table_is_read_whole_beside_another() {
    let table = table().await;
    let statements = statements();
    assert!(statements.len() > 200, "{} statements", statements.len());
    let mut session = table.store.session().await.unwrap();
    run(&mut session, "set plan_cache_mode = force_generic_plan".into()).await.unwrap();
    let mut complaints = Vec::new();
    for statement in statements {
        let nulls: Vec<String> =
            prepare(&mut session, &statement).await.iter().map(|_| "null".into()).collect();
        let mut found = Vec::new();
        joined_whole(&explained(&mut session, "", &nulls).await, &mut found);
        complaints.extend(found.iter().map(|what| format!("{what}: {statement}")));
        run(&mut session, "deallocate looked_at".into()).await.unwrap();
    }
    assert!(complaints.is_empty(), "{}", complaints.join("\n\n"));
}

/// Adds the events, and looks at the generic plan of every statement and at what it reads.
async fn check(table: &Table) {
    table.run(ADD).await;
    table
        .run(
            "insert into wakeq.facets (queue, canvas_id, position, running, was_full)
             select 'q', '00000000-0000-0000-0000-000000000000', 1,
                    array(select id from wakeq.events_v2 where queue = 'q' limit 10), true",
        )
        .await;
    let ids = async |condition: &str| -> String {
        let some = format!(
            "select array(select id from wakeq.events_v2 where {condition} order by id desc limit 10)::text"
        );
        sqlx::query_scalar(AssertSqlSafe(some)).fetch_one(&table.pool).await.unwrap()
    };
    let batches = [ids("queue is null").await, ids("queue = 'q'").await];
    let statements: Vec<String> = statements().into_iter().filter(|text| is_about_events(text)).collect();
    assert!(statements.len() > 70, "{} statements", statements.len());
    let mut session = table.store.session().await.unwrap();
    run(&mut session, "set plan_cache_mode = force_generic_plan".into()).await.unwrap();
    let mut complaints = Vec::new();
    for statement in statements {
        let kinds = prepare(&mut session, &statement).await;
        let text = statement.split_whitespace().collect::<Vec<_>>().join(" ");
        let begins = |start: &str| text.starts_with(start);
        let mut found = Vec::new();
        if !WHOLE.iter().any(|(start, _)| begins(start)) {
            let nulls: Vec<String> = kinds.iter().map(|_| "null".into()).collect();
            scans(&explained(&mut session, "", &nulls).await, "", &mut found);
            let pages = pages(&mut session, &kinds, &batches).await;
            let most =
                MANY.iter().find(|(start, ..)| begins(start)).map_or(PAGES_MAX, |(_, pages, _)| *pages);
            if pages > most {
                found.push(format!("{pages} pages, at most {most}"));
            }
        }
        complaints.extend(found.iter().map(|what| format!("{what}: {text}")));
        run(&mut session, "deallocate looked_at".into()).await.unwrap();
    }
    assert!(complaints.is_empty(), "{}", complaints.join("\n\n"));
}

fn is_about_events(statement: &str) -> bool {
    ABOUT_EVENTS.iter().any(|part| statement.contains(part))
}

/// The statements of all packages.
fn statements() -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let files = ["", "streams", "service"].iter().flat_map(|package| {
        root.join(package).join(".sqlx").read_dir().unwrap().map(|file| file.unwrap().path())
    });
    let text = files.map(|file| {
        let described: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
        described["query"].as_str().unwrap().to_owned()
    });
    text.collect()
}

/// Prepares the statement that is looked at; returns the types of its parameters.
async fn prepare(session: &mut Session, statement: &str) -> Vec<String> {
    run(session, format!("prepare looked_at as {statement}")).await.unwrap();
    let kinds = "select parameter_types::text[] from pg_prepared_statements where name = 'looked_at'";
    run(session, kinds.into()).await.unwrap()[0].get(0)
}

async fn run(session: &mut Session, sql: String) -> Result<Vec<PgRow>, sqlx::Error> {
    let rows =
        session.limit(|connection| sqlx::query(AssertSqlSafe(sql)).persistent(false).fetch_all(connection));
    rows.await.expect("an answer in time")
}

/// The top node of the statement's plan with these arguments.
async fn explained(session: &mut Session, options: &str, arguments: &[String]) -> Value {
    let arguments = if arguments.is_empty() { String::new() } else { format!("({})", arguments.join(", ")) };
    let rows = run(session, format!("explain ({options} format json) execute looked_at{arguments}")).await;
    let plan: String = rows.unwrap()[0].try_get_unchecked(0).unwrap();
    serde_json::from_str::<Value>(&plan).unwrap()[0]["Plan"].take()
}

/// How each of its scans of events reads more than it needs.
fn scans(node: &Value, parent: &str, found: &mut Vec<String>) {
    let text = |key: &str| node[key].as_str().unwrap_or_default();
    let (kind, index, filter) = (text("Node Type"), text("Index Name"), text("Filter"));
    if text("Relation Name") == "events_v2" && kind.contains("Scan") {
        // The first row in the order of an index is one row.
        let is_first = kind.contains("Index") && parent == "Limit" && filter.is_empty();
        if text("Index Cond").is_empty() && !is_first {
            found.push(format!("{kind} of all of {index} {filter}"));
        } else if index != "events_v2_pkey" && filter.contains("(id = ") {
            found.push(format!("{kind} of {index} for ids: {filter}"));
        }
    }
    for below in node["Plans"].as_array().into_iter().flatten() {
        scans(below, kind, found);
    }
}

/// Which joins of a table that has to be read whole read another one whole as well.
fn joined_whole(node: &Value, found: &mut Vec<String>) {
    let plans: Vec<&Value> = node["Plans"].as_array().into_iter().flatten().collect();
    if node["Node Type"] == "Nested Loop" {
        let sides: Vec<&Value> = plans.iter().copied().filter(|side| is_side(side)).collect();
        for (side, other) in [(sides[0], sides[1]), (sides[1], sides[0])] {
            let others = whole(other).into_iter().filter(|(table, _)| !FEW_ROWS.contains(table));
            if whole(side).iter().any(|(_, kind)| *kind == "Seq Scan") {
                found.extend(others.map(|(table, kind)| format!("{kind} of all of {table}")));
            }
        }
    }
    for below in plans {
        joined_whole(below, found);
    }
}

/// Whether a plan is a part of the join above it, and not a query of its own.
fn is_side(plan: &Value) -> bool {
    plan["Parent Relationship"] == "Outer" || plan["Parent Relationship"] == "Inner"
}

/// The tables that are read whole on one side of a join, and how.
fn whole(node: &Value) -> Vec<(&str, &str)> {
    let text = |key: &str| node[key].as_str().unwrap_or_default();
    let (kind, of) = (text("Node Type"), text("Relation Name"));
    let is_whole = kind.contains("Scan") && !of.is_empty() && text("Index Cond").is_empty();
    let below = node["Plans"].as_array().into_iter().flatten().filter(|below| is_side(below));
    is_whole.then_some((of, kind)).into_iter().chain(below.flat_map(whole)).collect()
}

/// The most pages that the statement reads, whichever the arguments.
async fn pages(session: &mut Session, kinds: &[String], batches: &[String]) -> u64 {
    let mut most = 0;
    for word in ["h1", "q", "o1"] {
        for ids in batches {
            let arguments: Vec<String> = kinds.iter().map(|kind| argument(kind, word, ids)).collect();
            run(session, "begin".into()).await.unwrap();
            let plan = explained(session, "analyze, buffers, timing off,", &arguments).await;
            run(session, "rollback".into()).await.unwrap();
            let read = |key: &str| plan[key].as_u64().unwrap_or_default();
            most = most.max(read("Shared Hit Blocks") + read("Shared Read Blocks"));
        }
    }
    most
}

/// An argument of this type; it need not make sense, as a bad plan reads as much.
fn argument(kind: &str, word: &str, ids: &str) -> String {
    let one = |kind: &str| match kind {
        "uuid" => "'00000000-0000-0000-0000-000000000000'".to_owned(),
        "text" => format!("'{word}'"),
        "integer" => "5".to_owned(),
        "bigint" => "100".to_owned(),
        "interval" => "'2 h'".to_owned(),
        "timestamp with time zone" => "now()".to_owned(),
        "double precision" => "1".to_owned(),
        "boolean" => "false".to_owned(),
        _ => "null".to_owned(),
    };
    match kind.strip_suffix("[]") {
        Some("uuid") => format!("'{ids}'::uuid[]"),
        Some(element) => format!("array_fill({}::{element}, array[10])", one(element)),
        None => one(kind),
    }
}
