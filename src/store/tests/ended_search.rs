//! The search of kept events in Postgres: which rows it reads, that a page is bounded also by the
//! bytes of values and results, and what another tenant has.

use sqlx::AssertSqlSafe;

use super::Table;
use super::cost::{buffers, plan};
use crate::event::{CanvasId, EndedFilter, EndedOutcome, EventId, HandlerScope};
use crate::store::FoundEnded;

const OTHER: CanvasId = CanvasId(uuid::Uuid::from_u128(7));

/// 30,000 events of two tenants, of which the first has the even ones. They are in several
/// partitions.
const FILL: &str = "
    insert into wakeq.ended_events (canvas_id, id, kept_until, module, name, modifier, value, result, outcome, error, enqueued_at,
                                    due_at, ended_at, claims, retries, losses, options)
    select case n % 2 when 0 then '00000000-0000-0000-0000-000000000000' else '00000000-0000-0000-0000-000000000007' end::uuid,
           gen_random_uuid(), now() + (1 + n % 5 * 15) * interval '1 day', 'WORKER', 'h' || n % 5, '_', '{\"n\":' || n || '}',
           '{\"receipt\":' || n || '}', (array['completed', 'failed', 'cancelled'])[1 + n % 3],
           case n % 3 when 1 then 'no route ' || n end, now(), now(), now() - n * interval '1 s', 1, 0, 0,
           jsonb_build_object('tags', jsonb_build_array('all', 'of:' || n % 1000))
      from generate_series(1, 30000) n";

fn tagged(canvas: CanvasId, tag: &str) -> EndedFilter {
    EndedFilter { canvas, tags: vec![tag.parse().unwrap()], ..EndedFilter::default() }
}

fn meant(found: &[FoundEnded]) -> usize {
    found.iter().filter(|found| found.is_meant).count()
}

/// The function that finds them reads what it returns, and one row more of each outcome in each
/// partition: in a plan that was made for an empty table, too, with or without statistics, and
/// whatever a session has set. Of a handler without events it reads nothing.
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn a_page_reads_only_what_it_looks_at() {
    let table = Table::new().await;
    let found = "select count(*) from wakeq.ended_after('00000000-0000-0000-0000-000000000000',
                     '{completed,failed,cancelled}', null, null, '-infinity', 'infinity',
                     'ffffffff-ffff-ffff-ffff-ffffffffffff', 100)";
    let of_handler = "select count(*) from wakeq.ended_after('00000000-0000-0000-0000-000000000000',
                          '{failed}', 'WORKER', 'h2', '-infinity', 'infinity',
                          'ffffffff-ffff-ffff-ffff-ffffffffffff', 100)";
    let of_nobody = "select count(*) from wakeq.ended_after('00000000-0000-0000-0000-000000000000',
                         '{completed,failed,cancelled}', 'WORKER', 'nobody', '-infinity', 'infinity',
                         'ffffffff-ffff-ffff-ffff-ffffffffffff', 100)";
    let read = "select sum(idx_tup_fetch + coalesce(seq_tup_read, 0))::int8 from pg_stat_xact_user_tables
                 where schemaname = 'wakeq' and relname like 'ended_events%'";
    for mode in ["force_generic_plan", "force_custom_plan"] {
        let mut session = table.pool.begin().await.unwrap();
        sqlx::query("select set_config('plan_cache_mode', $1, true)")
            .bind(mode)
            .execute(&mut *session)
            .await
            .unwrap();
        for sql in [found, of_handler, of_nobody] {
            let none: i64 = sqlx::query_scalar(sql).fetch_one(&mut *session).await.unwrap();
            assert_eq!(none, 0);
        }
        sqlx::query(FILL).execute(&mut *session).await.unwrap();
        if mode == "force_custom_plan" {
            sqlx::query("analyze wakeq.ended_events").execute(&mut *session).await.unwrap();
        }
        for (sql, expected) in [(found, 100), (of_handler, 100), (of_nobody, 0)] {
            let before: i64 = sqlx::query_scalar(read).fetch_one(&mut *session).await.unwrap();
            let page: i64 = sqlx::query_scalar(sql).fetch_one(&mut *session).await.unwrap();
            let after: i64 = sqlx::query_scalar(read).fetch_one(&mut *session).await.unwrap();
            assert_eq!(page, expected, "{sql}");
            assert!(
                after - before <= 2 * expected,
                "{mode}: {} rows for a page of 100: {sql}",
                after - before
            );
        }
        session.rollback().await.unwrap();
    }
}

/// The lines of a plan that use another index of kept events than that of ids.
fn other_indexes(plan: &str) -> Vec<&str> {
    let uses = plan.lines().filter(|line| line.contains(" using ended_events"));
    uses.filter(|line| !line.contains("_pkey")).collect()
}

/// By its id in the key of the table, in a plan that was made for empty partitions, too: any other
/// index might read all of the canvas.
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn a_kept_event_is_found_by_its_id() {
    for is_analyzed in [false, true] {
        let table = Table::of_one_connection().await;
        if is_analyzed {
            table.run("vacuum (analyze) wakeq.ended_events").await;
        }
        let set = sqlx::query("set plan_cache_mode = force_generic_plan");
        table.store.session().await.unwrap().execute("set", set).await.unwrap();
        let (own, id) = (CanvasId::DEFAULT, EventId::new());
        assert_eq!(table.store.ended_event(own, id).await.unwrap(), None);
        assert_eq!(table.store.ended_value(own, id).await.unwrap(), None);
        assert_eq!(table.store.attempts(own, id).await.unwrap(), []);
        table.run(FILL).await;
        for part in ["result is not null as", "select value::text as", "select d.attempts from"] {
            let plan = plan(&table.store, part, &format!("'{own}', '{id}'")).await;
            assert!(plan.contains("_pkey") && other_indexes(&plan).is_empty(), "{is_analyzed}: {plan}");
        }
    }
}

/// The other indexes are for statements that name their condition.
#[tokio::test]
async fn no_other_statement_uses_the_indexes_of_lists() {
    let table = Table::new().await;
    table.run(FILL).await;
    let of_canvas = "greatest(outcome, outcome) = 'failed'";
    let of_handler = "module = 'WORKER' and name = 'h1' and outcome = 'failed'";
    let off = "select set_config(name, 'off', true)
                 from (values ('enable_seqscan'), ('enable_bitmapscan'), ('enable_sort')) as settings (name)";
    for condition in [of_canvas, of_handler] {
        for (named, is_used) in [("", false), (" and ended_at > '-infinity'", true)] {
            let explain = format!(
                "explain select from wakeq.ended_events where canvas_id = '{OTHER}' and {condition}{named}
                  order by ended_at desc, id desc limit 10"
            );
            let mut session = table.pool.begin().await.unwrap();
            sqlx::query(off).execute(&mut *session).await.unwrap();
            let explain = sqlx::query_scalar::<_, String>(AssertSqlSafe(explain));
            let plan = explain.fetch_all(&mut *session).await.unwrap().join("\n");
            assert_eq!(!other_indexes(&plan).is_empty(), is_used, "{plan}");
        }
    }
}

/// 60,000 events of a handler whose time is over, and one of another tenant that is kept.
const SHORT: &str = "
    insert into wakeq.ended_events (canvas_id, id, kept_until, module, name, modifier, value, outcome, enqueued_at, due_at,
                                    ended_at, started_at, took_us, claims, retries, losses)
    select case n when 0 then '00000000-0000-0000-0000-000000000007' else '00000000-0000-0000-0000-000000000000' end::uuid,
           gen_random_uuid(), case n when 0 then now() + interval '1 day'
                                     else greatest(now() - interval '1 s', date_trunc('week', now(), 'UTC')) end,
           'WORKER', 'short', '_', '1', (array['completed', 'failed', 'cancelled'])[1 + n % 3], now(), now(),
           now() - interval '1 min' - n * interval '1 ms', now(), 1, 1, 0, 0
      from generate_series(0, 60000) n";

/// The last attempts of a handler whose events are kept for a moment only: a bounded number of
/// those that are left in their partition is passed over.
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn events_that_are_kept_no_longer_are_passed_over_in_bounds() {
    let table = Table::of_one_connection().await;
    let last = async |canvas| {
        let scope = HandlerScope::worker(canvas, "short").unwrap();
        table.store.last_attempts(&scope, None, 20).await.unwrap()
    };
    assert!(!last(CanvasId::DEFAULT).await.more);
    table.run(SHORT).await;
    let (own, theirs) = (last(CanvasId::DEFAULT).await, last(OTHER).await);
    assert_eq!((own.attempts.len(), own.more), (0, true), "there may be some behind them");
    assert_eq!((theirs.attempts.len(), theirs.more), (1, false));
    let arguments = format!("'{}', 'WORKER', 'short', null, 21", CanvasId::DEFAULT);
    let plan = plan(&table.store, "as modifier, queue, died_at from wakeq.dead_events", &arguments).await;
    assert!(buffers(&plan, "") < 10_000, "{plan}");
}

/// Page by page, with a mark of the last event that was looked at.
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn a_search_goes_on_where_it_stopped() {
    let table = Table::new().await;
    table.run(FILL).await;
    let filter = tagged(CanvasId::DEFAULT, "of:42");
    let first = table.store.search_ended(&filter, None, (10_000, 101), true).await.unwrap();
    let last = first.last().unwrap();
    assert_eq!((meant(&first), last.number, last.last), (20, 10_000, Some(true)));
    assert!(first.is_sorted_by_key(|found| std::cmp::Reverse(found.place())));
    let place = Some(last.place());
    let second = table.store.search_ended(&filter, place, (10_000, 101), true).await.unwrap();
    let last = second.last().unwrap();
    assert_eq!((meant(&second), last.number, last.last), (10, 5_000, Some(false)));
    let theirs = table.store.search_ended(&tagged(OTHER, "of:42"), None, (10_000, 101), true).await.unwrap();
    assert_eq!(meant(&theirs), 0, "theirs are odd");
    let theirs = tagged(OTHER, "of:43");
    let theirs = table.store.search_ended(&theirs, None, (10_000, 101), true).await.unwrap();
    assert_eq!(meant(&theirs), 20);
    assert!(theirs.iter().all(|found| found.event.address.scope.canvas == OTHER));
    table
        .run(
            "update wakeq.ended_events set kept_until = now() - interval '1 s'
              where canvas_id = '00000000-0000-0000-0000-000000000000'",
        )
        .await;
    let over = table.store.search_ended(&EndedFilter::default(), None, (10_000, 101), true).await.unwrap();
    assert_eq!(meant(&over), 0, "their time is over");
    let left = EndedFilter { canvas: OTHER, ..EndedFilter::default() };
    assert_eq!(meant(&table.store.search_ended(&left, None, (100, 101), true).await.unwrap()), 100);
}

/// Each of them alone and some together, of 15,000 events of each tenant.
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn every_condition_is_met_by_what_is_found() {
    let table = Table::new().await;
    table.run(FILL).await;
    let all = |canvas| EndedFilter { canvas, ..EndedFilter::default() };
    let scope = |canvas| Some(HandlerScope::worker(canvas, "h2").unwrap());
    for (canvas, number) in [(CanvasId::DEFAULT, 42), (OTHER, 43)] {
        let count = async |filter: EndedFilter| {
            meant(&table.store.search_ended(&filter, None, (30_000, 30_001), true).await.unwrap())
        };
        assert_eq!(count(all(canvas)).await, 15_000);
        let failed = EndedFilter { outcome: Some(EndedOutcome::Failed), ..all(canvas) };
        assert_eq!(count(failed.clone()).await, 5_000);
        assert_eq!(count(EndedFilter { scope: scope(canvas), ..all(canvas) }).await, 3_000);
        assert_eq!(count(EndedFilter { scope: scope(canvas), ..failed.clone() }).await, 1_000);
        assert_eq!(count(EndedFilter { modifier: Some("x".parse().unwrap()), ..all(canvas) }).await, 0);
        let value = format!("$.n = {number}").parse().unwrap();
        assert_eq!(count(EndedFilter { value: Some(value), ..all(canvas) }).await, 1);
        let other = format!("$.n = {}", number + 1).parse().unwrap();
        assert_eq!(count(EndedFilter { value: Some(other), ..all(canvas) }).await, 0, "another tenant's");
        let result = format!("$.receipt = {number}").parse().unwrap();
        assert_eq!(count(EndedFilter { result: Some(result), ..all(canvas) }).await, 1);
        let text = Some(format!("\":{number}}}").parse().unwrap());
        assert_eq!(count(EndedFilter { result_text: text.clone(), ..all(canvas) }).await, 1);
        assert_eq!(count(EndedFilter { value_text: text, ..all(canvas) }).await, 1);
        let error = Some("no route".parse().unwrap());
        assert_eq!(count(EndedFilter { error_text: error, ..all(canvas) }).await, 5_000);
        let first = table.store.search_ended(&all(canvas), None, (11, 11), true).await.unwrap();
        let (since, before) = (Some(first[9].event.ended_at), Some(first[4].event.ended_at));
        assert_eq!(count(EndedFilter { ended_since: since, ..all(canvas) }).await, 10);
        let between = EndedFilter { ended_since: since, ended_before: before, ..all(canvas) };
        assert_eq!(count(between).await, 5);
    }
    table.run("update wakeq.ended_events set result = null").await;
    let none = EndedFilter { result_text: Some("r".parse().unwrap()), ..EndedFilter::default() };
    assert_eq!(meant(&table.store.search_ended(&none, None, (30_000, 9), true).await.unwrap()), 0);
}

/// Values of 1 MiB with results of 64 KiB: a page looks into 7 of them, and says so.
#[tokio::test]
async fn a_page_looks_into_a_limited_number_of_bytes_of_kept_events() {
    let table = Table::new().await;
    table
        .run(
            "insert into wakeq.ended_events (canvas_id, id, kept_until, module, name, modifier, value, result, outcome,
                                             enqueued_at, due_at, ended_at, claims, retries, losses)
             select '00000000-0000-0000-0000-000000000000', gen_random_uuid(), now() + interval '1 day', 'WORKER', 'h', '_',
                    '\"' || repeat('x', 1048574) || '\"', '\"' || repeat('x', 65534) || '\"', 'completed', now(), now(),
                    now() - n * interval '1 s', 1, 0, 0
               from generate_series(1, 12) n",
        )
        .await;
    let text = Some("y".parse().unwrap());
    for filter in [
        EndedFilter { value_text: text.clone(), ..EndedFilter::default() },
        EndedFilter { result_text: text.clone(), ..EndedFilter::default() },
    ] {
        let looked = table.store.search_ended(&filter, None, (1000, 101), true).await.unwrap();
        let [last] = looked.as_slice() else { panic!("{looked:?}") };
        assert_eq!((last.is_meant, last.number, last.last), (false, 7, Some(true)));
    }
    let of_error = EndedFilter { error_text: text, ..EndedFilter::default() };
    let looked = table.store.search_ended(&of_error, None, (1000, 101), true).await.unwrap();
    assert_eq!((looked.len(), looked[0].number, looked[0].last), (1, 12, Some(false)), "values are not read");
}
