//! The cost of statements: every claim is a HOT update, every lookup uses an index, nothing grows
//! with the queue.

use std::fmt::Write;
use std::time::Duration;

use sqlx::AssertSqlSafe;

use super::{Table, scope, tester};
use crate::event::{CanvasId, EventFilter, EventId, HandlerScope};
use crate::store::{Depth, HandlerDepth, Renewal, Store, StoreConfig};

impl Table {
    /// With one connection, so that the statements it has prepared can be examined.
    pub(super) async fn of_one_connection() -> Self {
        Self::with(StoreConfig { max_connections: 1, ..StoreConfig::default() }).await
    }
}

/// Part of the claiming statement.
pub(super) const CLAIM: &str = "insert into wakeq.claim_gate";

/// The arguments of the minute's statement.
pub(super) const MINUTE_ARGUMENTS: &str = "false, '1 min', '1 min', '10 min', '30 s', '10 min', '1 h', null, now() - interval '2 min', '75 s', \
     '{lease}', '{60000000}', null";

const MINUTE: Duration = Duration::from_secs(60);

macro_rules! updates {
    ($column:literal) => {
        concat!("select ", $column, " from pg_stat_user_tables where relname = 'events_v2'")
    };
}

/// Runs a statement that the store has prepared, found by a part of its text, and returns its plan.
pub(super) async fn plan(store: &Store, part: &str, arguments: &str) -> String {
    let mut session = store.session().await.unwrap();
    let name = sqlx::query_scalar(
        "select name from pg_prepared_statements where statement like '%' || $1 || '%' and statement not like '%pg_prepared%'",
    );
    let name: String =
        session.limit(|connection| name.bind(part).fetch_one(connection)).await.unwrap().unwrap();
    let explain =
        AssertSqlSafe(format!("explain (analyze, buffers, timing off) execute \"{name}\" ({arguments})"));
    let lines = session
        .limit(|connection| sqlx::query_scalar::<_, String>(explain).persistent(false).fetch_all(connection))
        .await;
    // Postgres 18 counts rows in hundredths.
    session.answered("explain", lines).await.unwrap().join("\n").replace(".00 loops=", " loops=")
}

/// Shared buffer pages that the node whose line contains `part` read, including all below it.
pub(super) fn buffers(plan: &str, part: &str) -> i64 {
    let from = plan.lines().skip_while(|line| !line.contains(part));
    let line =
        from.into_iter().find(|line| line.contains("Buffers: shared")).unwrap_or("Buffers: shared hit=0");
    let counted =
        line.split_whitespace().filter_map(|word| word.strip_prefix("hit=").or(word.strip_prefix("read=")));
    counted.map(|count| count.parse::<i64>().unwrap()).sum()
}

pub(super) fn array(ids: &[EventId]) -> String {
    let mut text = String::new();
    for id in ids {
        write!(text, "{id},").unwrap();
    }
    format!("'{{{}}}'::uuid[]", text.trim_end_matches(','))
}

/// As long as the names of pods.
const WORKER: &str = "orders-6d4cf9b7c8-x7k2p-1f0c5a9e";

pub(super) fn claim_arguments(ids: &[EventId]) -> String {
    let (ids, canvas) = (array(ids), CanvasId::DEFAULT);
    format!(
        "{ids}, '{{}}', '{canvas}', '{{WORKER/known/_}}', '{{}}', '1 min', 5, 2147483647, '{WORKER}', null, 0"
    )
}

/// A claim changes no index, and finds room for its new version on the page; so do renewal and
/// release. Row versions kept by a transaction elsewhere on the server are not their fault: the
/// second half has room for all.
#[tokio::test]
async fn every_claim_and_renewal_is_a_hot_update() {
    let mut table = Table::new().await;
    table.store = table.store.claiming_as(WORKER.parse().unwrap());
    let options = "select reloptions::text like '%fillfactor=42%' from pg_class where oid = 'wakeq.events_v2'::regclass";
    assert!(table.holds(options).await);
    for batch in table.add(2000).await.chunks(200) {
        table.claim(batch).await;
    }
    table.run("alter table wakeq.events_v2 set (fillfactor = 20)").await;
    for batch in table.add(2000).await.chunks(200) {
        let claims = table.claim(batch).await;
        assert_eq!(table.store.renew(&claims).await.unwrap(), [Renewal::Renewed; 200]);
        table.store.release(&claims).await.unwrap();
    }
    // A connection reports its statistics when it ends.
    table.store.close().await;
    wakeq_testbed::wait_while!(table.number(updates!("n_tup_upd")).await < 8000, "no report");
    assert_eq!(table.number(updates!("n_tup_hot_upd")).await, 8000);
}

/// Counting is an index-only scan.
// Shows: EV2-30
#[tokio::test]
async fn counting_is_an_index_only_scan() {
    let table = Table::of_one_connection().await;
    table.add(5000).await;
    table.run("vacuum analyze wakeq.events_v2").await;
    let counts = table.store.counts(CanvasId::DEFAULT, &[scope()]).await.unwrap();
    assert_eq!(counts[0].due, 5000);
    let arguments = format!("'{}', '{{WORKER}}', '{{known}}'", CanvasId::DEFAULT);
    let plan = plan(&table.store, "select live.due", &arguments).await;
    assert!(plan.contains("Index Only Scan using events_v2_handler"), "{plan}");
    assert!(buffers(&plan, "Index Only Scan using events_v2_handler") < 100, "{plan}");
}

/// Running events are counted among the 2,000 due events at either end; up to 4,000 that is all of
/// them.
#[tokio::test]
async fn counting_what_runs_reads_four_thousand_events() {
    let table = Table::of_one_connection().await;
    table
        .run(
            "insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value, delay_until, locked_at, claims)
             select gen_random_uuid(), '00000000-0000-0000-0000-000000000000', 'WORKER', 'known', '_', '1',
                    now() - n * interval '1 ms', case when n in (1, 2000, 2001, 4000) then now() end, 1
               from generate_series(1, 4000) n",
        )
        .await;
    let running = async || table.store.doing(CanvasId::DEFAULT, &[scope()], MINUTE).await.unwrap()[0].running;
    assert_eq!(running().await, 4);
    table
        .run(
            "delete from wakeq.events_v2 where id = any (array(
                 select id from wakeq.events_v2 where locked_at is null order by delay_until limit 1000))",
        )
        .await;
    assert_eq!(running().await, 4, "none twice, where the ends overlap");
    table.add(7000).await;
    table.run("vacuum analyze wakeq.events_v2").await;
    assert_eq!(running().await, 3, "those at the older end");
    let arguments = format!("'{}', '{{WORKER}}', '{{known}}', '1 min', '1 min', 2000", CanvasId::DEFAULT);
    let plan = plan(&table.store, "as looked", &arguments).await;
    assert!(!plan.contains("Seq Scan on events_v2"), "{plan}");
    assert!(!plan.contains("actual rows=10000"), "{plan}");
    assert!(!plan.contains("Sort"), "{plan}");
}

/// EV2-30: a thousand handlers are one statement, which reads 8 rows of each at either end.
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn a_page_of_handlers_is_read_in_one_statement() {
    let table = Table::of_one_connection().await;
    table
        .run(
            "insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value, delay_until, locked_at, claims)
             select gen_random_uuid(), c.id::uuid, 'WORKER', 'h' || n % 1000, '_', '1', now() - n * interval '1 ms',
                    case when n % 1000 = c.runs and n not between 5000 and 55000 then now() end, 1
               from generate_series(1, 60000) n,
                    (values ('00000000-0000-0000-0000-000000000000', 7), ('00000000-0000-0000-0000-0000000000f0', 6)) c (id, runs)",
        )
        .await;
    table
        .run(
            "insert into wakeq.unknown_handlers (canvas_id, module, name, modifier, first_seen, last_seen)
             select c.id::uuid, 'WORKER', c.name, m.name, now() - m.age, now()
               from (values ('00000000-0000-0000-0000-000000000000', 'h8'), ('00000000-0000-0000-0000-0000000000f0', 'h9')) c (id, name),
                    (values ('a', interval '1 min'), ('b', interval '2 min')) m (name, age)",
        )
        .await;
    table.run("vacuum analyze wakeq.events_v2").await;
    let named = |number: usize| HandlerScope { name: format!("h{number}").parse().unwrap(), ..scope() };
    let page: Vec<_> = (0..1000).map(named).collect();
    let doing = table.store.doing(CanvasId::DEFAULT, &page, MINUTE).await.unwrap();
    let running: Vec<_> = (0..1000).filter(|at| doing[*at].running > 0).collect();
    assert_eq!((running, doing[7].running), (vec![7], 10), "of its own canvas, at either end");
    let unknown: Vec<_> = (0..1000).filter(|at| doing[*at].unknown_since.is_some()).collect();
    assert_eq!(unknown, [8]);
    let names: Vec<_> = page.iter().map(|scope| scope.name.as_str()).collect();
    let modules = ["WORKER"; 1000].join(",");
    let arguments =
        format!("'{}', '{{{modules}}}', '{{{}}}', '1 min', '1 min', 8", CanvasId::DEFAULT, names.join(","));
    let plan = plan(&table.store, "as looked", &arguments).await;
    assert!(!plan.contains("Seq Scan on events_v2") && !plan.contains("Seq Scan on unknown"), "{plan}");
    assert!(plan.contains("rows=8 loops=1000"), "{plan}");
}

/// A worker accesses events by their keys.
// Shows: EV2-01, EV2-20
#[tokio::test]
async fn workers_reach_events_by_their_keys() {
    let table = Table::of_one_connection().await;
    // With fewer, a later Postgres may prefer to read all of another index that has the ids.
    let ids = table.add(20_000).await[..100].to_vec();
    table.run("vacuum analyze wakeq.events_v2").await;
    let claims = table.claim(&ids).await;
    table.store.load(&ids).await.unwrap();
    table.store.park(&ids).await.unwrap();
    table.store.defer(&ids).await.unwrap();
    table.store.release(&claims).await.unwrap();
    table.store.complete(&claims[..1]).await.unwrap();
    table.store.cancel(CanvasId::DEFAULT, ids[0], &tester()).await.unwrap();
    let (many, fences) = (array(&ids), format!("'{{{}}}'::bigint[]", vec!["1"; ids.len()].join(",")));
    let statements = [
        ("from wakeq.events_v2 e where e.id = any", format!("{many}, '1 min'")),
        ("set notify_at = null", many.clone()),
        ("with deferred as", format!("{many}, '5 min', '1 min', 9999")),
        ("set locked_at = null, worker = null", format!("{many}, {fences}")),
        ("delete from wakeq.events_v2\n              where id = any", format!("{many}, {fences}")),
        (
            "with gone as (\n                   delete from wakeq.events_v2 e\n                    where id = $1",
            format!("'{}', '{}', '1 min', 'test', null, null, '10 min', '30 s'", ids[0], CanvasId::DEFAULT),
        ),
    ];
    for (part, arguments) in statements {
        let plan = plan(&table.store, part, &arguments).await;
        assert!(plan.contains("Index Scan using events_v2_pkey"), "{part}: {plan}");
        assert!(!plan.contains("Seq Scan on events_v2"), "{part}: {plan}");
        // An update of a promise writes into each index of the event: up to 17 pages for each.
        assert!(buffers(&plan, "") < 1700, "{part}: {plan}");
    }
}

/// PUSH-07: the promises of pushed events are brought forward by their keys as well.
#[tokio::test]
async fn promises_are_brought_forward_by_key() {
    let table = Table::of_one_connection().await;
    let ids = table.add(20_000).await[..100].to_vec();
    table.run("vacuum analyze wakeq.events_v2").await;
    let asked: Vec<_> = ids.iter().map(|id| (*id, Duration::from_secs(10))).collect();
    table.store.bring_forward(&asked).await.unwrap();
    let arguments = format!("{}, array_fill(10::float8, array[100])", array(&ids));
    let plan = plan(&table.store, "then least(notify_at", &arguments).await;
    assert!(plan.contains("Index Scan using events_v2_pkey"), "{plan}");
    assert!(!plan.contains("Seq Scan on events_v2"), "{plan}");
    assert!(buffers(&plan, "") < 1500, "{plan}");
}

/// The cost of a claim does not depend on the backlog.
// Shows: EV2-25
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn a_claim_costs_the_same_in_a_long_queue() {
    let table = Table::of_one_connection().await;
    let ids = table.add(1000).await;
    table.claim(&ids[..1]).await;
    let few = buffers(&plan(&table.store, CLAIM, &claim_arguments(&ids[100..200])).await, "");
    table
        .run(
            "insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value, notify_at)
             select gen_random_uuid(), '00000000-0000-0000-0000-000000000000', 'WORKER', 'known', '_', '1', null
               from generate_series(1, 100000)",
        )
        .await;
    table.run("vacuum analyze wakeq.events_v2").await;
    let parked = sqlx::query_scalar("select id from wakeq.events_v2 where notify_at is null limit 50");
    let parked: Vec<_> = parked.fetch_all(&table.pool).await.unwrap().into_iter().map(EventId).collect();
    let chosen = [&ids[200..250], &parked].concat();
    plan(&table.store, CLAIM, &claim_arguments(&ids[300..400])).await;
    let many = buffers(&plan(&table.store, CLAIM, &claim_arguments(&chosen)).await, "");
    println!("pages for 100 claims: {few} among 1,000 events, {many} among 101,000");
    assert_eq!(table.number("select count(*) from wakeq.events_v2 where locked_at is not null").await, 301);
    // A later Postgres reads fewer pages of the short queue: then what counts is that it stays at
    // eight per event.
    assert!(many <= 800.max(few * 12 / 10), "{few} pages among 1,000 events, {many} among 101,000");
}

/// ORD-05: whose turn it is follows from the lane. Neither the length of the handler's queue nor
/// the number of objects is read, whether it is an event's turn or not; and a claim on an object is
/// a HOT update, too.
#[tokio::test]
async fn a_claim_on_an_object_reads_its_lane() {
    let table = Table::of_one_connection().await;
    table
        .run(
            "insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value, object, seq, prev)
             select gen_random_uuid(), '00000000-0000-0000-0000-000000000000', 'WORKER', 'known', '_', '1',
                    'o' || n % 2000, n, greatest(n - 2000, 0) from generate_series(1, 40000) n",
        )
        .await;
    table.run("vacuum analyze wakeq.events_v2").await;
    let ids = sqlx::query_scalar("select id from wakeq.events_v2 order by seq").fetch_all(&table.pool).await;
    let ids: Vec<EventId> = ids.unwrap().into_iter().map(EventId).collect();
    table.claim(&ids[..1]).await;
    for (those, claimed) in [(&ids[100..200], 100), (&ids[30_000..30_100], 0)] {
        let before = table.number("select count(*) from wakeq.events_v2 where locked_at is not null").await;
        let pages = buffers(&plan(&table.store, CLAIM, &claim_arguments(those)).await, "");
        let after = table.number("select count(*) from wakeq.events_v2 where locked_at is not null").await;
        println!("pages for 100 claims on objects, of which {claimed} succeed: {pages} among 40,000 events");
        assert_eq!(after - before, claimed);
        assert!(pages < 2000, "{pages} pages");
    }
    table.store.load(&ids[..1]).await.unwrap();
    let arguments = format!("{}, '1 min'", array(&ids[..100]));
    let loaded = plan(&table.store, "from wakeq.events_v2 e where e.id = any", &arguments).await;
    assert!(!loaded.contains("Seq Scan on events_v2"), "{loaded}");
    assert!(buffers(&loaded, "") < 1500, "{loaded}");
    table.store.close().await;
    wakeq_testbed::wait_while!(table.number(updates!("n_tup_upd")).await < 101, "no report");
    // A claimed row is larger than before: on a page where all are claimed at once, the last finds
    // no room.
    assert!(table.number(updates!("n_tup_hot_upd")).await >= 90);
}

/// Under a snapshot that keeps completed events alive, a batch reads the dead rows of a lane once,
/// not for each of its events; the events of other lanes in it read none.
#[tokio::test]
async fn a_batch_reads_the_dead_of_a_lane_once() {
    let table = Table::of_one_connection().await;
    table
        .run(
            "insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value, object, seq, prev)
             select gen_random_uuid(), '00000000-0000-0000-0000-000000000000', 'WORKER', 'known', '_', '1', 'hot', n, n - 1
               from generate_series(1, 20200) n",
        )
        .await;
    table.run("vacuum analyze wakeq.events_v2").await;
    let mut snapshot = table.pool.begin().await.unwrap();
    sqlx::query("set transaction isolation level repeatable read").execute(&mut *snapshot).await.unwrap();
    sqlx::query("select from wakeq.chores").execute(&mut *snapshot).await.unwrap();
    table.run("delete from wakeq.events_v2 where seq <= 20000").await;
    let ids = sqlx::query_scalar("select id from wakeq.events_v2 order by seq").fetch_all(&table.pool).await;
    let ids: Vec<EventId> = ids.unwrap().into_iter().map(EventId).collect();
    let innocent = table.add(1).await;
    let batch = [&ids[..100], &innocent].concat();
    table.claim(&innocent).await;
    table.store.load(&ids[..1]).await.unwrap();
    table.run("update wakeq.events_v2 set locked_at = null, worker = null").await;
    let claimed = buffers(&plan(&table.store, CLAIM, &claim_arguments(&batch)).await, "");
    assert_eq!(table.number("select count(*) from wakeq.events_v2 where locked_at is not null").await, 2);
    let arguments = format!("{}, '1 min'", array(&batch));
    let loaded = plan(&table.store, "from wakeq.events_v2 e where e.id = any", &arguments).await;
    let loaded = buffers(&loaded, "");
    let alone = buffers(&plan(&table.store, CLAIM, &claim_arguments(&innocent)).await, "");
    println!(
        "pages beside 20,000 dead of a lane: {claimed} for 101 claims, {loaded} for their load, {alone} for one elsewhere"
    );
    assert!(claimed < 3000 && loaded < 3000 && alone < 50, "{claimed}, {loaded}, {alone}");
    snapshot.rollback().await.unwrap();
}

/// The minute's statement reads what is overdue, not the queue: neither parked events nor, under a
/// snapshot that keeps dead versions alive, what was woken or parked before.
// Shows: EV2-01
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn the_minutes_statement_does_not_read_the_queue() {
    let table = Table::of_one_connection().await;
    table
        .run(
            "insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value, notify_at)
             select gen_random_uuid(), gen_random_uuid(), 'WORKER', 'known', '_', '1', now() - interval '1 h'
               from generate_series(1, 20000)",
        )
        .await;
    let mut snapshot = table.pool.begin().await.unwrap();
    sqlx::query("set transaction isolation level repeatable read").execute(&mut *snapshot).await.unwrap();
    sqlx::query("select from wakeq.chores").execute(&mut *snapshot).await.unwrap();
    table.run("update wakeq.events_v2 set notify_at = null").await;
    table.run("insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value, notify_at)
               select gen_random_uuid(), gen_random_uuid(), 'WORKER', 'known', '_', '1', null from generate_series(1, 80000)").await;
    table.store.minute(false, None).await.unwrap();
    table.run("update wakeq.chores set next_at = now()").await;
    let plan = async || plan(&table.store, "), overdue as (", MINUTE_ARGUMENTS).await;
    let (plan, closed) = (plan().await, plan().await);
    let (overdue, all) = (buffers(&plan, "events_v2_promised"), buffers(&plan, ""));
    println!(
        "the minute's statement among 100,000 parked events: {overdue} pages of the promises, {all} in all"
    );
    assert!(overdue < 10, "{plan}");
    // One of them is of the batches, for those that are closed, and one of what waits for limits.
    assert!(all <= 14, "{plan}");
    println!("where another process was first: {} pages", buffers(&closed, ""));
    assert!(buffers(&closed, "") <= 4, "{closed}");
    snapshot.rollback().await.unwrap();
}

/// A page of a resume job reads its own events, however many others wait.
// Shows: EV2-42
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn a_resume_page_reads_only_its_own_events() {
    let table = Table::of_one_connection().await;
    table.add(4000).await;
    table.run("update wakeq.events_v2 set notify_at = null").await;
    table.pause().await;
    let job = table.unpause().await;
    table.store.resume_page(job).await.unwrap();
    let arguments = format!("{job}, 1000, '10 min', '30 s', '5 min', '1 min'");
    let few = buffers(&plan(&table.store, "parked as (", &arguments).await, "CTE parked");
    table.add_for(40_000, "other").await;
    table.run("update wakeq.events_v2 set notify_at = null where name = 'other'").await;
    let many = buffers(&plan(&table.store, "parked as (", &arguments).await, "CTE parked");
    println!("pages to find and lock 1,000 parked events: {few} among 4,000, {many} among 44,000");
    assert!(few > 0 && many * 10 <= few * 12 + 100, "{few} and {many}");
}

/// Adds 80,000 events that do not count: half of them paused, the others delayed.
async fn add_what_waits(table: &Table) {
    table.add_for(40_000, "paused").await;
    table
        .run(
            "insert into wakeq.scheduling_rules (rule_type, canvas_id, event_space, handler_name, created_by)
               select 'pause', '00000000-0000-0000-0000-000000000000', 'WORKER', 'paused', 'test'",
        )
        .await;
    table.add_for(40_000, "later").await;
    table.run("update wakeq.events_v2 set delay_until = now() + interval '1 h' where name = 'later'").await;
}

/// The depth skips from handler to handler, and reads no parked or delayed events.
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn the_depth_does_not_read_what_waits() {
    let table = Table::of_one_connection().await;
    table.add(500).await;
    add_what_waits(&table).await;
    table.run("vacuum analyze wakeq.events_v2").await;
    let depth = table.store.depth(CanvasId::DEFAULT, None).await.unwrap();
    assert_eq!((depth.depth, depth.capped), (500, false));
    let arguments = format!("'{}', null, null, '1 min', 10000, 10000", CanvasId::DEFAULT);
    let plan = plan(&table.store, "), visited as (", &arguments).await;
    println!("the depth of 500 free events among 80,000 others: {} pages", buffers(&plan, ""));
    assert!(buffers(&plan, "") < 600, "{plan}");
}

/// The gauges over all canvases do the same, and read a share of a long queue.
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn the_gauges_do_not_read_what_waits() {
    let table = Table::of_one_connection().await;
    table.add(300).await;
    add_what_waits(&table).await;
    table.run("update wakeq.events_v2 set locked_at = now(), claims = 1 where name = 'known' and id in (select id from wakeq.events_v2 where name = 'known' order by id limit 100)").await;
    table
        .run(
            "insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value, delay_until)
             select gen_random_uuid(), gen_random_uuid(), 'WORKER', 'known', '_', '1', now() - interval '1 h'
               from generate_series(1, 50)",
        )
        .await;
    table.run("vacuum analyze wakeq.events_v2").await;
    let depths = table.store.depths().await.unwrap();
    let shown = |found: &HandlerDepth| {
        let Depth { depth, capped, oldest_due, .. } = found.depth;
        (found.scope.name.to_string(), depth, capped, oldest_due.is_some())
    };
    let expected = [("known", 250, false, true), ("later", 0, false, false), ("paused", 0, false, false)];
    let expected = expected.map(|(name, depth, capped, due)| (name.to_owned(), depth, capped, due));
    assert_eq!(depths.iter().map(shown).collect::<Vec<_>>(), expected);
    assert!(depths[0].depth.oldest_age().unwrap() >= Duration::from_secs(3600));
    let arguments = "'1 min', 1000, 20000, 100, 10000";
    let quiet =
        plan(&table.store, "), unruled as materialized (\n                   select canvas_id", arguments)
            .await;
    println!("the gauges, 250 free events of 51 handlers among 80,000 others: {} pages", buffers(&quiet, ""));
    assert!(buffers(&quiet, "") < 1500, "{quiet}");

    table.add_for(60_000, "busy").await;
    table.run("vacuum analyze wakeq.events_v2").await;
    let depths = table.store.depths().await.unwrap();
    let of = |name: &str| depths.iter().find(|depth| depth.scope.name.as_str() == name).unwrap().depth;
    assert_eq!((of("busy").depth, of("busy").capped), (20_000 / 53, true), "its share of what is read");
    let busy =
        plan(&table.store, "), unruled as materialized (\n                   select canvas_id", arguments)
            .await;
    assert!(buffers(&busy, "") < 3000, "{busy}");
}

/// A page of a list is a range of the index, also in a generic plan.
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn a_page_of_events_reads_a_page() {
    let table = Table::of_one_connection().await;
    table.add_for(200, "rare").await;
    table.add_for(40_000, "known").await;
    table.add_for(40_000, "zebra").await;
    table.run("vacuum analyze wakeq.events_v2").await;
    let rare = EventFilter { name: Some("rare".parse().unwrap()), ..EventFilter::default() };
    let listed = table.store.events(CanvasId::DEFAULT, &rare, true, None, (101, 101)).await.unwrap();
    assert_eq!(listed.len(), 101);
    for mode in ["force_custom_plan", "force_generic_plan"] {
        let set = sqlx::query("select set_config('plan_cache_mode', $1, false)").bind(mode);
        table.store.session().await.unwrap().execute("set", set).await.unwrap();
        for (filter, look, pages) in [("null", 101, 600), (r#"'{"states":["delayed"]}'"#, 10_000, 1300)] {
            let arguments = format!(
                "'{}', {look}, '1 min', {filter}, 101, true, false, 'WORKER', 'rare', 'WORKER', 'rare', null, '{}'",
                CanvasId::DEFAULT,
                CanvasId::DEFAULT
            );
            let plan = plan(&table.store, "as is_shown  from wakeq.events_v2 e where", &arguments).await;
            println!("a page of events, {mode}, filter {filter}: {} pages", buffers(&plan, ""));
            assert!(buffers(&plan, "") < pages, "{plan}");
        }
    }
}
