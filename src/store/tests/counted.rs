//! Statistics of minutes and hours: what processes have counted adds up, canvases apart, in a
//! bounded number of rows; minutes become hours, and hours are deleted.

use std::time::Duration;

use chrono::TimeDelta;

use super::Table;
use super::crowds::{FEW, MANY};
use crate::event::{CanvasId, CountedRun, EventCounts, HandlerScope};
use crate::store::{ExpiryPart, Retention, Store, StoreConfig};

/// Maximum number of rows of a canvas in a minute or an hour.
const ROWS: i64 = 1_001;

fn scope(canvas: CanvasId, name: &str) -> HandlerScope {
    HandlerScope::worker(canvas, name).unwrap()
}

fn run(wait_ms: u64, run_ms: u64) -> CountedRun {
    let (wait, run) = (Duration::from_millis(wait_ms), Duration::from_millis(run_ms));
    CountedRun { wait: Some(wait), run: Some(run), ..CountedRun::default() }
}

fn completed(wait_ms: u64, run_ms: u64) -> CountedRun {
    CountedRun { completed: true, ..run(wait_ms, run_ms) }
}

impl Table {
    /// The sum of all that was counted, of a handler or of the canvas.
    async fn counted(&self, canvas: CanvasId, handler: Option<&HandlerScope>) -> EventCounts {
        let now = self.store.clock().await.unwrap();
        let hour = TimeDelta::seconds(now.timestamp().rem_euclid(3600));
        let from = now - hour - TimeDelta::nanoseconds(i64::from(now.timestamp_subsec_nanos()));
        let range = (from - TimeDelta::days(20), now + TimeDelta::days(1));
        let mut sum = EventCounts::default();
        for (_, counts) in self.store.statistics(canvas, handler, range).await.unwrap() {
            sum.add(&counts);
        }
        sum
    }

    /// Adds rows of minutes that ended this long ago, in whole minutes before the first hour whose
    /// minutes are kept: one for each number, with as many emitted events as it has.
    async fn add_minutes(&self, canvas: CanvasId, name: &str, rows: &[(i32, i64)]) {
        let (ago, emitted): (Vec<i32>, Vec<i64>) = rows.iter().copied().unzip();
        let add = "insert into wakeq.minute_statistics
                   select date_trunc('hour', now() - interval '25 hours') - ago * interval '1 minute', $1,
                          case $2 when '' then '' else 'WORKER' end, $2, emitted, 1, 0, 0, 0, emitted * 1000, 5000,
                          array_fill(0, array[abs(ago) % 5]) || 1, array[1]
                     from unnest($3::integer[], $4::bigint[]) as rows (ago, emitted)";
        let adding = sqlx::query(add).bind(canvas.0).bind(name).bind(ago).bind(emitted);
        adding.execute(&self.pool).await.unwrap();
    }

    /// Each hour of a handler: how many hours before the first one whose minutes are kept it began,
    /// and how many events were emitted in it.
    async fn hours(&self, canvas: CanvasId, name: &str) -> Vec<(i64, i64)> {
        let hours = "select (extract(epoch from date_trunc('hour', now() - interval '25 hours') - at) / 3600)::bigint, emitted
                       from wakeq.hour_statistics where canvas_id = $1 and name = $2 order by at";
        sqlx::query_as(hours).bind(canvas.0).bind(name).fetch_all(&self.pool).await.unwrap()
    }

    /// Waits out the end of an hour: a test that begins now sees the same minutes as old all the
    /// time.
    async fn while_an_hour_ends(&self) {
        let second = "select extract(epoch from now())::bigint % 3600";
        wakeq_testbed::wait_while!(self.number(second).await > 3_580, "the hour does not end");
    }

    /// Repeats what is written until one minute has all of it.
    async fn in_one_minute(&self, write: impl AsyncFn()) {
        loop {
            self.run("truncate wakeq.minute_statistics").await;
            write().await;
            if self.number("select count(distinct at) from wakeq.minute_statistics").await == 1 {
                break;
            }
        }
    }
}

async fn emit(store: &Store, canvas: CanvasId, names: impl Iterator<Item = String>) {
    names.for_each(|name| store.count_emitted(&scope(canvas, &name)));
    store.write_statistics().await;
}

/// Another canvas has a handler of the same name.
#[tokio::test]
async fn counts_of_two_processes_add_up() {
    let table = Table::new().await;
    let other = table.other_store(StoreConfig::default()).await;
    let (greet, mail) = (scope(MANY, "greet"), scope(MANY, "mail"));
    let dies = CountedRun { failed: true, dead: true, ..run(90_000, 3) };
    let retries = CountedRun { failed: true, retried: true, ..run(0, 70) };
    let mut expected = EventCounts { emitted: 2, ..EventCounts::default() };
    for counted in [completed(7, 30), dies, retries, completed(1, 86_400_000)] {
        expected.add_run(&counted);
    }
    for store in [&table.store, &other] {
        store.count_emitted(&greet);
    }
    table.store.count_run(&greet, &completed(7, 30));
    table.store.count_run(&greet, &dies);
    table.store.count_emitted(&scope(FEW, "greet"));
    other.count_run(&greet, &retries);
    other.count_run(&mail, &completed(5, 5));
    table.store.write_statistics().await;
    other.write_statistics().await;
    // After it has written, a process counts from 0 again.
    table.store.count_run(&greet, &completed(1, 86_400_000));
    table.store.write_statistics().await;
    table.store.write_statistics().await;
    assert_eq!(table.counted(MANY, Some(&greet)).await, expected);
    expected.add_run(&completed(5, 5));
    assert_eq!(table.counted(MANY, None).await, expected, "all handlers of the canvas");
    let few = EventCounts { emitted: 1, ..EventCounts::default() };
    assert_eq!(table.counted(FEW, Some(&scope(FEW, "greet"))).await, few);
    assert_eq!(table.counted(FEW, None).await, few);
    assert_eq!(table.counted(FEW, Some(&scope(FEW, "mail"))).await, EventCounts::default());
    other.close().await;
}

/// Whatever is counted is written within a minute, without a call.
#[tokio::test]
async fn a_process_writes_within_a_minute() {
    let table = Table::new().await;
    table.store.count_emitted(&scope(FEW, "greet"));
    // The task waits for the time first.
    tokio::task::yield_now().await;
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(61)).await;
    tokio::time::resume();
    let rows = "select count(*) from wakeq.minute_statistics";
    wakeq_testbed::wait_while!(table.number(rows).await < 2, "nothing is written");
}

#[tokio::test]
async fn a_store_that_is_closed_writes_what_it_has_counted() {
    let table = Table::new().await;
    let other = table.other_store(StoreConfig::default()).await;
    other.count_emitted(&scope(FEW, "greet"));
    other.close().await;
    assert_eq!(table.counted(FEW, None).await.emitted, 1);
}

/// It takes no effect, and is added with what is counted next.
#[tokio::test]
async fn counts_that_can_not_be_written_are_written_later() {
    let table = Table::with(StoreConfig::default()).await;
    let mut stranger = table.pool.begin().await.unwrap();
    sqlx::query("lock table wakeq.minute_statistics").execute(&mut *stranger).await.unwrap();
    table.store.count_emitted(&scope(FEW, "greet"));
    table.store.write_statistics().await;
    stranger.rollback().await.unwrap();
    assert_eq!(table.counted(FEW, None).await.emitted, 0);
    table.store.count_emitted(&scope(FEW, "greet"));
    table.store.write_statistics().await;
    assert_eq!(table.counted(FEW, None).await.emitted, 2);
}

/// A write that takes longer than the end of a worker waits for it loses nothing. It may be written
/// after all, and then it is not written again.
#[tokio::test]
async fn counts_that_are_not_written_in_time_are_written_once_later() {
    let table = Table::with(StoreConfig::default()).await;
    let mut stranger = table.pool.begin().await.unwrap();
    sqlx::query("lock table wakeq.minute_statistics").execute(&mut *stranger).await.unwrap();
    table.store.count_emitted(&scope(FEW, "greet"));
    table.store.write_statistics_within(Duration::ZERO).await;
    stranger.rollback().await.unwrap();
    let emitted = async || {
        table.store.write_statistics().await;
        table.counted(FEW, None).await.emitted
    };
    wakeq_testbed::wait_while!(emitted().await == 0, "nothing is written");
    assert_eq!(emitted().await, 1);
    table.store.count_emitted(&scope(MANY, "greet"));
    table.store.write_statistics_within(Duration::from_secs(60)).await;
    assert_eq!(table.counted(MANY, None).await.emitted, 1);
}

/// However many processes count handlers that a canvas has made up: those without rows count for
/// the canvas, those with rows go on, and another canvas has its own.
#[tokio::test]
async fn a_canvas_has_a_limited_number_of_rows_in_a_minute() {
    let table = Table::new().await;
    let other = table.other_store(StoreConfig::default()).await;
    let names = |from: i32, to: i32| (from..to).map(|n| format!("h{n:04}"));
    table
        .in_one_minute(async || {
            emit(&table.store, MANY, names(0, 700)).await;
            emit(&other, MANY, names(600, 1_400)).await;
            emit(&other, FEW, names(0, 5)).await;
            emit(&table.store, MANY, names(0, 10).chain(names(5_000, 5_900))).await;
        })
        .await;
    let rows = "select count(*) from wakeq.minute_statistics where canvas_id = $1";
    for (canvas, expected) in [(MANY, ROWS), (FEW, 6)] {
        let rows: i64 = sqlx::query_scalar(rows).bind(canvas.0).fetch_one(&table.pool).await.unwrap();
        assert_eq!(rows, expected);
    }
    assert_eq!(table.counted(MANY, None).await.emitted, 700 + 800 + 910);
    for (name, emitted) in
        [("h0000", 2), ("h0650", 2), ("h0699", 2), ("h0700", 1), ("h0999", 1), ("h1000", 0), ("h5899", 0)]
    {
        assert_eq!(table.counted(MANY, Some(&scope(MANY, name))).await.emitted, emitted, "{name}");
    }
    other.close().await;
}

/// Whole hours leave, and what has left already is added to. A chart by the hour stays the same.
#[tokio::test]
async fn old_minutes_become_hours() {
    let table = Table::new().await;
    table.while_an_hour_ends().await;
    for (canvas, factor) in [(MANY, 1), (FEW, 100)] {
        let rows = [(1, factor), (2, 2 * factor), (60, 3 * factor), (61, 4 * factor), (200, 5 * factor)];
        table.add_minutes(canvas, "greet", &rows).await;
        table.add_minutes(canvas, "greet", &[(0, 7 * factor), (-59, 8 * factor)]).await;
    }
    let greet = scope(FEW, "greet");
    let before = table.counted(FEW, Some(&greet)).await;
    assert_eq!((before.emitted, before.completed, before.wait.count(), before.run.count()), (3_000, 7, 7, 7));
    assert_eq!(table.store.roll_up_statistics().await.unwrap(), 10);
    assert_eq!(table.hours(MANY, "greet").await, [(4, 5), (2, 4), (1, 1 + 2 + 3)]);
    assert_eq!(table.hours(FEW, "greet").await, [(4, 500), (2, 400), (1, 600)]);
    assert_eq!(table.number("select count(*) from wakeq.minute_statistics").await, 4);
    assert_eq!(table.counted(FEW, Some(&greet)).await, before);
    table.add_minutes(FEW, "greet", &[(3, 50)]).await;
    assert_eq!(table.store.roll_up_statistics().await.unwrap(), 1);
    assert_eq!(table.store.roll_up_statistics().await.unwrap(), 0);
    assert_eq!(table.hours(FEW, "greet").await, [(4, 500), (2, 400), (1, 650)]);
    assert_eq!(table.hours(MANY, "greet").await, [(4, 5), (2, 4), (1, 6)]);
    let after = table.counted(FEW, Some(&greet)).await;
    assert_eq!((after.emitted, after.wait.count(), after.run.sum().as_millis()), (3_050, 8, 8 * 5));
}

/// As in a minute. One page of old minutes follows the other.
#[tokio::test]
async fn a_canvas_has_a_limited_number_of_rows_in_an_hour() {
    let table = Table::new().await;
    table.while_an_hour_ends().await;
    for canvas in [MANY, FEW] {
        table.add_minutes(canvas, "", &[(1, 2_000), (60, 2_000)]).await;
    }
    // 1,000 handlers in one minute, and 600 others in a later one of the same hour.
    table
        .run(
            "insert into wakeq.minute_statistics
             select date_trunc('hour', now() - interval '25 hours') - case when n < 1000 then interval '60 min' else interval '1 min' end,
                    '00000000-0000-0000-0000-000000000006', 'WORKER', 'h' || to_char(n, 'FM0000'), 1, 0, 0, 0, 0, 0, 0, '{}', '{}'
               from generate_series(0, 1599) n",
        )
        .await;
    table.add_minutes(MANY, "h0000", &[(1, 5)]).await;
    table.add_minutes(FEW, "greet", &[(1, 3)]).await;
    let retention = Retention::default();
    assert!(table.store.expire(ExpiryPart::Minutes, retention).await.unwrap(), "there are more than a page");
    assert!(!table.store.expire(ExpiryPart::Minutes, retention).await.unwrap());
    assert_eq!(table.number("select count(*) from wakeq.minute_statistics").await, 0);
    let rows = table.number("select count(*) from wakeq.hour_statistics").await;
    assert_eq!(rows, ROWS + 2);
    assert_eq!(table.hours(MANY, "").await, [(1, 4_000)]);
    assert_eq!(table.hours(MANY, "h0000").await, [(1, 6)]);
    assert!(table.hours(MANY, "h1599").await.is_empty());
    assert_eq!(table.hours(FEW, "greet").await, [(1, 3)]);
}

/// Hours of any canvas, a page at a time.
#[tokio::test]
async fn hours_are_deleted_after_14_days() {
    let table = Table::new().await;
    table
        .run(
            "insert into wakeq.hour_statistics
             select now() - age, case n % 2 when 0 then $$00000000-0000-0000-0000-000000000006$$
                                            else $$00000000-0000-0000-0000-000000000007$$ end::uuid,
                    'WORKER', 'h' || n, 1, 0, 0, 0, 0, 0, 0, '{}', '{}'
               from generate_series(1, 600) n, unnest(array['15 days', '337 hours', '335 hours']::interval[]) age",
        )
        .await;
    let retention = Retention::default();
    assert!(table.store.expire(ExpiryPart::Hours, retention).await.unwrap(), "1,000 of 1,200");
    assert!(!table.store.expire(ExpiryPart::Hours, retention).await.unwrap());
    let left = "select count(*) from wakeq.hour_statistics where at > now() - interval '14 days'";
    assert_eq!(table.number(left).await, 600);
    assert_eq!(table.number("select count(*) from wakeq.hour_statistics").await, 600);
}
