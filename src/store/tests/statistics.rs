//! Statistics: whatever was in the tables when they were taken, no statement reads a whole table or
//! index where it needs a few rows.
//!
//! A quick queue is empty whenever it is vacuumed or analyzed, and other tables of a canvas may be.
//! The planner then expects one row, so that every index seems to be one page and the plans that it
//! compares cost the same.

mod lists;

use std::cell::Cell;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, Row as _};

use self::lists::{
    ABOUT_EVENTS, ANY_ROW, BY_ID, FEW_ROWS, HASHED, MANY, NOT_RUN, OTHER_ROWS, OTHER_WORDS, OTHERS,
    PAGES_MAX, REFUSED, WHOLE,
};
use super::Table;
use crate::store::StoreConfig;
use crate::store::kernel::Session;

/// Events of two canvases: some on objects, some copies in a queue. With their errors they take
/// more than 10,000 pages.
const ADD: &str = "insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value, delay_until, notify_at, object, seq,
                                  prev, queue, origin, last_error)
     select gen_random_uuid(), case n % 10 when 0 then '00000000-0000-0000-0000-0000000000f0'::uuid
                                           else '00000000-0000-0000-0000-000000000000' end,
            'WORKER', 'h' || n % 5, '_', '1', now(), now() + interval '30 s',
            case when n % 10 in (1, 2) then 'o' || n % 1000 end, case when n % 10 in (1, 2) then n + 1 end,
            case when n % 10 in (1, 2) then n end, case when n % 10 in (2, 3) then 'q' end,
            case when n % 10 in (2, 3) then gen_random_uuid() end, repeat('x', 250)
       from generate_series(1, 100000) n";
const HAS_PAGES: &str = "select pg_relation_size('wakeq.events_v2') > 10000 * 8192::bigint";

/// Plans for any arguments: statements that are executed often have no others.
const GENERIC: &str = "set plan_cache_mode = force_generic_plan";
/// Such plans, if nothing cost anything but the use of an index.
const ONLY_INDEXES_COST: &str = "select set_config(name, value, false) from (values
     ('plan_cache_mode', 'force_generic_plan'), ('enable_seqscan', 'on'), ('random_page_cost', '1000000'),
     ('seq_page_cost', '0'), ('cpu_tuple_cost', '0'), ('cpu_operator_cost', '0'), ('cpu_index_tuple_cost', '1000'))
     as settings (name, value)";

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
#[ignore = "long: `cargo xtask long` runs it"]
async fn no_statistics_were_ever_taken() {
    let table = table().await;
    assert!(table.holds("select reltuples = -1 from pg_class where oid = 'wakeq.events_v2'::regclass").await);
    check(&table).await;
}

#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn statistics_were_taken_while_the_queue_was_empty() {
    let table = table().await;
    used(&table, "select", 0).await;
    assert!(table.holds("select reltuples = 0 and relpages > 10000 from pg_class where oid = 'wakeq.events_v2'::regclass").await);
    check(&table).await;
}

#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn statistics_were_taken_while_the_queue_held_one_event() {
    let table = table().await;
    let one =
        "insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value, delay_until, notify_at)
               values (gen_random_uuid(), '00000000-0000-0000-0000-000000000000', 'WORKER', 'one', '_', '1',
                       now() + interval '30 days', now() + interval '30 days')";
    used(&table, one, 1).await;
    assert!(table.holds("select reltuples = 1 and relpages > 10000 from pg_class where oid = 'wakeq.events_v2'::regclass").await);
    check(&table).await;
}

/// The planner adds so much for a table without a usable index that all plans with it cost the same
/// to within a hundredth. Then it may choose one that reads another table whole as well.
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn no_table_is_read_whole_beside_another() {
    let table = table().await;
    let statements = statements();
    assert!(statements.len() > 200, "{} statements", statements.len());
    look_at(&table, statements, (GENERIC, ""), async |_, statement| {
        let mut found = Vec::new();
        joined_whole(&statement.plan, &mut found);
        found
    })
    .await;
}

/// What an `exists` asks of each row, one reading of its whole table answers for all rows, in a
/// hashed subplan. Postgres 18 compares the costs of the two as if sequential scans were on. With
/// these costs every version takes the hashed one wherever it can.
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn no_table_is_read_whole_to_be_hashed() {
    let table = table().await;
    look_at(&table, statements(), (ONLY_INDEXES_COST, "verbose,"), async |_, statement| {
        let mut tables = Vec::new();
        hashed(&statement.plan, &statement.plan.to_string(), &mut tables);
        let others = tables.into_iter().filter(|table| !HASHED.contains(table));
        others.map(|table| format!("all of {table} is hashed")).collect()
    })
    .await;
}

/// Who emits in SQL has none of a store's settings, and may have called a function while the tables
/// were empty: the session keeps the plan.
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn repeats_are_found_by_their_ids_in_the_session_of_a_caller() {
    let table = table().await;
    for name in ["events_v2", "dead_events", "emitted_ids"] {
        change(&table, format!("vacuum (analyze) wakeq.{name}")).await;
    }
    let mut session = table.pool.acquire().await.unwrap();
    let check = "explain (analyze, buffers, timing off, format json)
                 select wakeq.check_repeats(array_agg(c), array_agg(gen_random_uuid()), array_agg('WORKER'::text),
                                            array_agg('h1'::text))
                   from generate_series(1, 10), (values ('00000000-0000-0000-0000-000000000000'::uuid)) as canvas (c)";
    for _ in 0..10 {
        sqlx::query(check).execute(&mut *session).await.unwrap();
    }
    table.run(ADD).await;
    fill(&table, OTHER_ROWS).await;
    let row: PgRow = sqlx::query(check).fetch_one(&mut *session).await.unwrap();
    let plan: String = row.try_get_unchecked(0).unwrap();
    let plan = serde_json::from_str::<Value>(&plan).unwrap();
    let read = |key: &str| plan[0]["Plan"][key].as_u64().unwrap();
    let pages = read("Shared Hit Blocks") + read("Shared Read Blocks");
    assert!(pages <= PAGES_MAX, "{pages} pages");
}

/// Adds the events, and looks at the generic plan of every statement and at what it reads. Each is
/// measured, except for those that are listed.
async fn check(table: &Table) {
    table.run(ADD).await;
    assert!(table.holds(HAS_PAGES).await);
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
    let mut statements: Vec<String> = statements().into_iter().filter(|text| is_looked_at(text)).collect();
    assert!(statements.len() > 130, "{} statements", statements.len());
    // What was rolled back leaves entries in the indexes, which later statements read as well.
    let starts = WHOLE.map(|(start, ..)| start);
    let is_whole = |text: &str| starts.iter().any(|start| in_one_line(text).starts_with(start));
    statements.sort_by_cached_key(|text| (is_whole(text), is_write(text), text.clone()));
    let measured = Cell::new(0);
    look_at(table, statements, (GENERIC, ""), async |session, statement| {
        let begins = |start: &str| statement.text.starts_with(start);
        let whole = WHOLE.iter().find(|(start, ..)| begins(start));
        let mut found = Vec::new();
        scans(&statement.plan, ("", whole.map_or("", |(_, tables, ..)| *tables)), &mut found);
        if NOT_RUN.iter().any(|(start, _)| begins(start)) {
            return found;
        }
        let is_refused = REFUSED.iter().any(|(start, _)| begins(start));
        let many = MANY.iter().find(|(start, ..)| begins(start)).map_or(PAGES_MAX, |(_, pages, _)| *pages);
        let most = whole.map_or(many, |(_, _, pages, _)| *pages);
        match pages(session, statement, whole.is_some(), &batches).await {
            None if !is_refused => found.push("it refuses all arguments, and is not in `REFUSED`".to_owned()),
            None => {}
            Some(_) if is_refused => found.push("it can be measured: take it out of `REFUSED`".to_owned()),
            Some(pages) => {
                measured.set(measured.get() + 1);
                if pages > most {
                    found.push(format!("{pages} pages, at most {most}"));
                }
            }
        }
        found
    })
    .await;
    assert!(measured.get() > 120, "only {} statements were measured", measured.get());
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

/// Looks at each of these statements once it is prepared, with the plan that these settings and
/// options of `explain` show, and fails with everything that is found.
async fn look_at(
    table: &Table,
    statements: Vec<String>,
    (settings, options): (&str, &str),
    look: impl AsyncFn(&mut Session, &Prepared) -> Vec<String>,
) {
    let mut session = table.store.session().await.unwrap();
    run(&mut session, settings.into()).await.unwrap();
    let mut complaints = Vec::new();
    for statement in statements {
        let kinds = prepare(&mut session, &statement).await;
        let nulls: Vec<String> = kinds.iter().map(|_| "null".into()).collect();
        let text = in_one_line(&statement);
        let plan = explained(&mut session, options, &nulls).await;
        let plan = plan.unwrap_or_else(|| panic!("no plan: {text}"));
        let prepared = Prepared { text, kinds, plan };
        let found = look(&mut session, &prepared).await;
        complaints.extend(found.iter().map(|what| format!("{what}: {}", prepared.text)));
        run(&mut session, "deallocate looked_at".into()).await.unwrap();
    }
    assert!(complaints.is_empty(), "{}", complaints.join("\n\n"));
}

fn in_one_line(statement: &str) -> String {
    statement.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn is_write(statement: &str) -> bool {
    ["insert into wakeq.", "update wakeq.", "delete from wakeq."].iter().any(|verb| statement.contains(verb))
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

/// The top node of the statement's plan with these arguments; `None` if the server refuses them.
async fn explained(session: &mut Session, options: &str, arguments: &[String]) -> Option<Value> {
    let arguments = if arguments.is_empty() { String::new() } else { format!("({})", arguments.join(", ")) };
    let rows = run(session, format!("explain ({options} format json) execute looked_at{arguments}")).await;
    let rows = match rows {
        Ok(rows) => rows,
        // Of another kind are errors of the server or the connection, and ends of its patience.
        Err(error) => {
            let code = error.as_database_error().and_then(|error| error.code());
            let others = ["08", "53", "57", "58", "XX"];
            let is_refusal = code.is_some_and(|code| !others.contains(&&code[..2]));
            assert!(is_refusal, "{error}: {arguments}");
            return None;
        }
    };
    let plan: String = rows[0].try_get_unchecked(0).unwrap();
    Some(serde_json::from_str::<Value>(&plan).unwrap()[0]["Plan"].take())
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

/// The tables that are read for subplans which are hashed, as the expressions in all of the plan
/// say.
fn hashed<'a>(node: &'a Value, all: &str, found: &mut Vec<&'a str>) {
    if let Some(name) = node["Subplan Name"].as_str()
        && all.contains(&format!("(hashed {name})"))
    {
        tables(node, found);
    }
    for below in node["Plans"].as_array().into_iter().flatten() {
        hashed(below, all, found);
    }
}

fn tables<'a>(node: &'a Value, found: &mut Vec<&'a str>) {
    found.extend(node["Relation Name"].as_str());
    for below in node["Plans"].as_array().into_iter().flatten() {
        tables(below, found);
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

/// The most pages that the statement reads, whichever the arguments; `None` if it refuses all of
/// them. Of one that reads whole tables, the first arguments that it takes say enough.
async fn pages(
    session: &mut Session,
    statement: &Prepared,
    is_whole: bool,
    batches: &[String],
) -> Option<u64> {
    // JSON, or one text of each table.
    let is_json = statement.text.contains("::jsonb");
    let usual = if is_json { &["{}"][..] } else { &["h1", "q", "o1"] };
    let others = OTHER_WORDS.iter().map(|word| (*word, true));
    let mut most: Option<u64> = None;
    for (word, is_other) in usual.iter().map(|word| (*word, false)).chain(others) {
        for ids in batches {
            if most.is_none() || !(is_whole || is_other) {
                most = most.max(read(session, &statement.kinds, word, ids).await);
            }
        }
    }
    most
}

/// How many pages it reads with these arguments; `None` if it refuses them.
async fn read(session: &mut Session, kinds: &[String], word: &str, ids: &str) -> Option<u64> {
    let arguments: Vec<String> = kinds.iter().map(|kind| argument(kind, word, ids)).collect();
    run(session, "begin".into()).await.unwrap();
    let plan = explained(session, "analyze, buffers, timing off,", &arguments).await;
    run(session, "rollback".into()).await.unwrap();
    plan.as_ref().map(most_read)
}

/// The pages that a node of a plan has read, or one below it if that has read more: what a `with`
/// writes and nothing refers to runs after the rest, and the nodes above do not count it.
fn most_read(node: &Value) -> u64 {
    let read = |key: &str| node[key].as_u64().unwrap_or_default();
    let below = node["Plans"].as_array().into_iter().flatten().map(most_read);
    below.fold(read("Shared Hit Blocks") + read("Shared Read Blocks"), u64::max)
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
