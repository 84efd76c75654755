//! Statistics: whatever was in the tables when they were taken, no statement reads a whole table or
//! index where it needs a few rows.
//!
//! A quick queue is empty whenever it is vacuumed or analyzed, and other tables of a canvas may be.
//! The planner then expects one row, so that every index seems to be one page and the plans that it
//! compares cost the same.

use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, Row as _};

use super::Table;
use crate::store::StoreConfig;
use crate::store::kernel::Session;

/// Statements that read all of an index or of a table: how each begins, which tables, and why it
/// may.
const WHOLE: [(&str, &str, &str); 13] = [
    (
        "with events as ( update wakeq.events_v2 set delay_until = delay_until -",
        "events_v2 dead_events emitted_ids idempotency_keys unique_keys checkpoints unknown_handlers http_targets \
         limits limit_states limit_waits",
        "tests shift all events",
    ),
    ("select min(moment) from", "events_v2", "tests look for the next moment of any event"),
    ("select count(*) as \"count!\" from wakeq.events_v2", "events_v2", "tests count all events"),
    (
        "insert into wakeq.resume_jobs (kind, canvas_id, module, name) select distinct",
        "events_v2",
        "reads what is parked",
    ),
    (
        "with recursive named as",
        "events_v2 halted_lanes",
        "the first copy of each queue that is not parked; lanes of queues that have ended",
    ),
    (
        "select array( select coalesce(host(client_addr)",
        "events_v2",
        "looks for any claim, before durations are changed",
    ),
    ("delete from wakeq.unknown_handlers u using ( select", "unknown_handlers", "looks for old ones"),
    ("update wakeq.http_targets t set previous_secret = null", "http_targets", "looks for old ones"),
    (
        "with locked as ( select canvas_id, module",
        "unknown_handlers",
        "a worker has started: which are known",
    ),
    ("select module || '/' || name || '/' || modifier", "unknown_handlers", "lists them"),
    ("select module::text as \"module!\", name::text as \"name!\", count(*)", "halted_lanes", "reads any"),
    ("select key, count(*) as", "http_targets", "an operator looks for secrets by their keys"),
    ("select canvas_id, module::text as \"module!\"", "http_targets", "an operator seals secrets anew"),
];

/// Tables of which statements ask whether they have any row: an index without a condition, in a query
/// of its own, is read up to the first.
const ANY_ROW: [&str; 2] = ["limits", "limit_waits"];

/// Rows of each other table.
const OTHER_ROWS: u32 = 20_000;

/// Maximum number of pages that any other statement reads for ten events of 100,000.
const PAGES_MAX: u64 = 2000;

/// Statements that read more pages: how each begins, how many, and why.
const MANY: [(&str, u64, &str); 21] = [
    ("select id as \"id!\", canvas_id as \"canvas_id!\"", 50_000, "passes over copies that wait in lanes"),
    ("select id, canvas_id, notify_at as", 20_000, "reads a page of promises"),
    ("select notify_at as \"notify_at!\", id as", 20_000, "looks at 10,000 promises"),
    ("with others as ( select exists (select from wakeq.settings", 50_000, "moves 1,000 promises"),
    ("with page as ( select id from wakeq.events_v2 where notify_at > now()", 50_000, "moves 1,000 promises"),
    ("with live as", 400_000, "counts the events of a canvas, after a vacuum in the index alone"),
    ("with asked as materialized", 40_000, "counts up to 20,000 copies"),
    ("with recursive canvases as ( (select canvas_id, 1 as number", 40_000, "counts up to 10,000 copies"),
    ("with limits as materialized ( select wakeq.quota_of($1, 'events'", 200_000, "counts a canvas's events"),
    ("with limits as materialized ( select wakeq.quota_of($1, 'chosen-ids'", 50_000, "counts chosen ids"),
    ("select live.due", 250_000, "counts the dead events of ten handlers, each among all of the canvas"),
    ("select id, canvas_id, module::text as \"module!\"", 50_000, "looks for a handler's dead events"),
    ("select count(*) as \"count!\" from ( select from wakeq.dead_events", 50_000, "counts such ones"),
    ("with gone as ( delete from wakeq.dead_events", 50_000, "deletes such ones"),
    ("select id, object::text as object from wakeq.dead_events", 50_000, "redrives such ones"),
    ("with looked as ( select d.*", 50_000, "looks at a canvas's dead events, at most 10,000 at once"),
    ("select c.name::text as", 20_000, "lists the crons of a canvas"),
    ("select clock_timestamp() as \"now!\", count(*)", 20_000, "counts the crons of a canvas"),
    ("select (select count(*) from wakeq.cron_records", 50_000, "counts what a canvas has registered"),
    ("with old as materialized ( select m.at", 20_000, "adds 1,000 minutes to their hours"),
    ("delete from wakeq.hour_statistics", 20_000, "deletes 1,000 hours"),
];

/// Other tables that a canvas fills: their columns, and a row of them.
const OTHERS: [(&str, &str, &str); 19] = [
    ("objects", "canvas_id, object, last_seq", "c, 'o' || n, n"),
    (
        "dead_events",
        "canvas_id, id, module, name, modifier, value, retries, enqueued_at, claims, losses, cause, object, seq, prev",
        "c, gen_random_uuid(), 'WORKER', 'h' || n % 5, '_', '1', 0, now(), 1, 0, 'poison', 'o' || n, n, n - 1",
    ),
    (
        "halted_lanes",
        "canvas_id, object, module, name, event_id, seq, prev",
        "c, 'o' || n, 'WORKER', 'h' || n % 5, gen_random_uuid(), n, n - 1",
    ),
    ("tombstones", "canvas_id, object, seq, prev, cause", "c, 'o' || n, n, n - 1, 'dead'"),
    ("emitted_ids", "canvas_id, id", "c, gen_random_uuid()"),
    ("idempotency_keys", "canvas_id, holder, key, fingerprint, answer", "c, 'ada', n::text, '1', '1'"),
    (
        "unique_keys",
        "canvas_id, module, name, key, event_id, until",
        "c, 'WORKER', 'h' || n % 5, n::text, gen_random_uuid(), now() + interval '1 h'",
    ),
    ("checkpoints", "canvas_id, event_id, claims, value", "c, gen_random_uuid(), 1, '1'"),
    ("limits", "canvas_id, name, concurrency, created_by, updated_by", "c, 'k' || n, 1, 'test', 'test'"),
    ("limit_states", "canvas_id, name", "c, 'k' || n"),
    ("limit_waits", "event_id, canvas_id, name, due", "gen_random_uuid(), c, 'k' || n, now()"),
    ("unknown_handlers", "canvas_id, module, name, modifier", "c, 'WORKER', 'u' || n, '_'"),
    ("log_streams", "canvas_id, category, stream, position, last_seq", "c, 'work', 'o' || n, 0, n"),
    ("entities", "canvas_id, entity_type, id, version, last_link", "c, 'account', 'o' || n, 1, 1"),
    (
        "entity_events",
        "canvas_id, event_id, correlation_id, entity_type, entity, name, link_id, link_prev",
        "c, gen_random_uuid(), gen_random_uuid(), 'account', 'o' || n, 'poke', n, n - 1",
    ),
    (
        "http_targets",
        "canvas_id, module, name, modifier, url, retries, delay_ms, factor, delay_max_ms, timeout_ms, secret, created_by,
         updated_by",
        "c, 'WORKER', 'h' || n, '_', 'https://example.com', 1, 1000, 2, 10000, 1000, sha256('1'), 'test', 'test'",
    ),
    (
        "cron_records",
        "canvas_id, name, expression, zone, modifier, value, missed, next_at, created_by, created_at, changed_at",
        "c, 'c' || n, '* * * * * *', 'UTC', '_', '1', 'skip', now() + interval '1 h', 'test', now(), now()",
    ),
    (
        "minute_statistics",
        COUNTED,
        "date_trunc('minute', now()) - n % 1500 * interval '1 min', c, 'WORKER', 'h' || n, 1, 1, 0, 0, 0, 5, 5, '{1}', '{1}'",
    ),
    (
        "hour_statistics",
        COUNTED,
        "date_trunc('hour', now()) - n % 300 * interval '1 h', c, 'WORKER', 'h' || n, 1, 1, 0, 0, 0, 5, 5, '{1}', '{1}'",
    ),
];

const COUNTED: &str =
    "at, canvas_id, module, name, emitted, completed, failed, retried, dead, wait_us, run_us, wait_bins,
                       run_bins";

/// By table: how a condition on the id of a row begins, and the index that is for such conditions.
const BY_ID: [(&str, &str, &str); 5] = [
    ("events_v2", "(id = ", "events_v2_pkey"),
    ("dead_events", "(id = ", "dead_events_pkey"),
    ("halted_lanes", "(event_id = ", "halted_lanes_event"),
    ("entity_events", "(event_id = ", "entity_events_pkey"),
    ("tombstones", "(object)::text = ", "tombstones_pkey"),
];

/// Tables that may be read whole beside another one: they have one row, or those that operators
/// registered.
const FEW_ROWS: [&str; 4] = ["log_seq", "log_partitioning", "queues", "queue_patterns"];

/// What a statement that is about events contains, or calls.
const ABOUT_EVENTS: [&str; 14] = [
    "wakeq.events_v2",
    "wakeq.take_turns",
    "wakeq.pull_turns",
    "wakeq.lease_events",
    "wakeq.has_leasable",
    "wakeq.write_unique",
    "wakeq.announce(",
    "wakeq.recall_held",
    "wakeq.enter_due",
    "wakeq.room_in_facet",
    "wakeq.due_facets",
    "wakeq.claim_limited",
    "wakeq.wake_waiting",
    "wakeq.limits_with_room",
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

/// Adds rows of one canvas to each of the other tables.
async fn fill(table: &Table, count: u32) {
    for (name, columns, row) in OTHERS {
        change(
            table,
            format!(
                "insert into wakeq.{name} ({columns}) select {row} from generate_series(1, {count}) n,
                        (values ('00000000-0000-0000-0000-000000000000'::uuid)) as canvas (c)"
            ),
        )
        .await;
    }
}

async fn change(table: &Table, sql: String) {
    sqlx::query(AssertSqlSafe(sql)).execute(&table.pool).await.unwrap();
}

/// Have been in use, and hold what is left when their statistics are taken: of events, and this
/// many rows of the others, which then go.
async fn used(table: &Table, left: &'static str, rows: u32) {
    table.run(ADD).await;
    table.run("update wakeq.events_v2 set value = '2'").await;
    table.run("delete from wakeq.events_v2").await;
    table.run(left).await;
    table.run("vacuum (analyze, truncate false) wakeq.events_v2").await;
    fill(table, OTHER_ROWS).await;
    for (name, ..) in OTHERS {
        change(table, format!("delete from wakeq.{name}")).await;
    }
    fill(table, rows).await;
    for (name, ..) in OTHERS {
        change(table, format!("vacuum (analyze, truncate false) wakeq.{name}")).await;
        change(table, format!("delete from wakeq.{name}")).await;
    }
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
    for (name, ..) in OTHERS {
        change(&table, format!("alter table wakeq.{name} set (autovacuum_enabled = false)")).await;
    }
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
    used(&table, "select", 0).await;
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
    used(&table, one, 1).await;
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
    look_at(&table, statements, async |_, statement| {
        let mut found = Vec::new();
        joined_whole(&statement.plan, &mut found);
        found
    })
    .await;
}

/// Adds the events, and looks at the generic plan of every statement and at what it reads.
async fn check(table: &Table) {
    table.run(ADD).await;
    fill(table, OTHER_ROWS).await;
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
    let statements: Vec<String> = statements().into_iter().filter(|text| is_looked_at(text)).collect();
    assert!(statements.len() > 130, "{} statements", statements.len());
    look_at(table, statements, async |session, statement| {
        let begins = |start: &str| statement.text.starts_with(start);
        let whole = WHOLE.iter().find(|(start, ..)| begins(start)).map_or("", |(_, tables, _)| *tables);
        let mut found = Vec::new();
        scans(&statement.plan, ("", whole), &mut found);
        if whole.is_empty() {
            // JSON, or one text of each table.
            let is_json = statement.text.contains("::jsonb");
            let words = if is_json { ["{}"; 3] } else { ["h1", "q", "o1"] };
            let pages = pages(session, &statement.kinds, words, &batches).await;
            let most =
                MANY.iter().find(|(start, ..)| begins(start)).map_or(PAGES_MAX, |(_, pages, _)| *pages);
            if pages > most {
                found.push(format!("{pages} pages, at most {most}"));
            }
        }
        found
    })
    .await;
}

/// A statement that is looked at.
struct Prepared {
    /// In one line.
    text: String,
    /// The types of its parameters.
    kinds: Vec<String>,
    /// The top node of its generic plan.
    plan: Value,
}

/// Looks at each of these statements once it is prepared, and fails with everything that is found.
async fn look_at(
    table: &Table,
    statements: Vec<String>,
    look: impl AsyncFn(&mut Session, &Prepared) -> Vec<String>,
) {
    let mut session = table.store.session().await.unwrap();
    run(&mut session, "set plan_cache_mode = force_generic_plan".into()).await.unwrap();
    let mut complaints = Vec::new();
    for statement in statements {
        let kinds = prepare(&mut session, &statement).await;
        let nulls: Vec<String> = kinds.iter().map(|_| "null".into()).collect();
        let plan = explained(&mut session, "", &nulls).await;
        let text = statement.split_whitespace().collect::<Vec<_>>().join(" ");
        let prepared = Prepared { text, kinds, plan };
        let found = look(&mut session, &prepared).await;
        complaints.extend(found.iter().map(|what| format!("{what}: {}", prepared.text)));
        run(&mut session, "deallocate looked_at".into()).await.unwrap();
    }
    assert!(complaints.is_empty(), "{}", complaints.join("\n\n"));
}

/// Whether it is about events, or about another table that a canvas fills.
fn is_looked_at(statement: &str) -> bool {
    let names = |(name, ..): &(&str, &str, &str)| statement.contains(&format!("wakeq.{name}"));
    ABOUT_EVENTS.iter().any(|part| statement.contains(part)) || OTHERS.iter().any(names)
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

/// The top node of the statement's plan with these arguments; null if it refuses
/// them: classes 22 and 23, data exceptions and constraints.
async fn explained(session: &mut Session, options: &str, arguments: &[String]) -> Value {
    let arguments = if arguments.is_empty() { String::new() } else { format!("({})", arguments.join(", ")) };
    let rows = run(session, format!("explain ({options} format json) execute looked_at{arguments}")).await;
    let refused = |error: &sqlx::Error| {
        error.as_database_error()?.code().map(|code| ["22", "23"].contains(&&code[..2]))
    };
    if rows.as_ref().err().and_then(refused) == Some(true) {
        return Value::Null;
    }
    let plan: String = rows.unwrap()[0].try_get_unchecked(0).unwrap();
    serde_json::from_str::<Value>(&plan).unwrap()[0]["Plan"].take()
}

/// How each of its scans of these tables reads more than it needs, except of those that the
/// statement may read as a whole.
fn scans(node: &Value, (parent, whole): (&str, &str), found: &mut Vec<String>) {
    let text = |key: &str| node[key].as_str().unwrap_or_default();
    let (kind, index, filter, condition) =
        (text("Node Type"), text("Index Name"), text("Filter"), text("Index Cond"));
    let name = text("Relation Name");
    let is_filled = name == "events_v2" || OTHERS.iter().any(|(other, ..)| *other == name);
    // A sample reads as many pages as the statement asks for: these are counted.
    let reads = kind.contains("Scan") && kind != "Sample Scan";
    if is_filled && reads && !whole.split(' ').any(|table| table == name) {
        // The first row in the order of an index is one row.
        let asks_for_any = ANY_ROW.contains(&name) && text("Parent Relationship") == "InitPlan";
        let is_first = kind.contains("Index") && (parent == "Limit" || asks_for_any) && filter.is_empty();
        // A filter that a caller may leave out is not a look-up.
        let conditions = format!("{condition} {}", filter.replace("IS NULL) OR (", ""));
        let is_other = |(table, start, own): &(&str, &str, &str)| {
            *table == name && *own != index && conditions.contains(start)
        };
        if condition.is_empty() && !is_first {
            found.push(format!("{kind} of all of {name} {index} {filter}"));
        } else if BY_ID.iter().any(is_other) {
            found.push(format!("{kind} of {index} for ids: {condition} {filter}"));
        }
    }
    for below in node["Plans"].as_array().into_iter().flatten() {
        scans(below, (kind, whole), found);
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
async fn pages(session: &mut Session, kinds: &[String], words: [&str; 3], batches: &[String]) -> u64 {
    let mut most = 0;
    for word in words {
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
        "bytea" => "'1'".to_owned(),
        _ => "null".to_owned(),
    };
    match kind.strip_suffix("[]") {
        Some("uuid") => format!("'{ids}'::uuid[]"),
        Some(element) => format!("array_fill({}::{element}, array[10])", one(element)),
        None => one(kind),
    }
}
