//! What an idle queue costs: the minute's statement, and nothing else.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sqlx::Connection;
use wakeq::notify::NoNotifier;
use wakeq::{Event, Handlers, Queue, QueueConfig, Timing, WorkerConfig};
use wakeq_testbed::Cluster;

use crate::support::child_processes::{Durations, WORK};
use crate::support::crash_scene::{CrashScene, figure, is_full, size};
use crate::support::handlers::answering;
use crate::support::{OTHER, Stage, TIMEOUT, cluster, connect, once, quick};

/// With only paused events there is at most one statement per period and process, which reads few
/// buffers, even while a snapshot is held open. BEGIN and COMMIT are counted.
// Shows: EV2-01
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn an_idle_queue_asks_one_small_statement_a_period() {
    let Some(cluster) = cluster("a test that counts the statements of a whole server").await else { return };
    let timing = if is_full() { Durations::production() } else { Durations::quick() };
    let scene = CrashScene::on("idle", timing, Some(&cluster), None).await;
    let mut observer = observer(&cluster).await;
    park(&scene, size(20_000, 1_000_000) as i64).await;
    let paused = scene.count("select count(*) from wakeq.events_v2 where notify_at is null").await;
    figure("paused events", paused);
    let window = Window {
        length: Duration::from_secs(if is_full() { 120 } else { 4 }),
        period: Duration::from_millis(timing.probe_ms),
    };
    let one = scene.worker(64).await;
    window.until_a_first_expiry(&mut observer).await;
    window.measure(&mut observer, &scene, 1, "one process").await;
    // Of two processes, one may get every pass for a minute.
    one.child.freeze();
    let _other = scene.worker(64).await;
    window.until_a_first_expiry(&mut observer).await;
    one.child.thaw();
    let mut holder = sqlx::PgConnection::connect(&cluster.url("postgres")).await.unwrap();
    let mut snapshot = holder.begin().await.unwrap();
    sqlx::query("set transaction isolation level repeatable read").execute(&mut *snapshot).await.unwrap();
    sqlx::query("select count(*) from wakeq.chores").execute(&mut *snapshot).await.unwrap();
    window.measure(&mut observer, &scene, 2, "two processes, and a snapshot held open").await;
}

/// A connection to another database, so that its own statements are counted separately.
async fn observer(cluster: &Cluster) -> sqlx::PgConnection {
    let mut admin = sqlx::PgConnection::connect(&cluster.url("postgres")).await.unwrap();
    // A vacuum in between would have each connection read its catalogs anew.
    for change in ["alter system set autovacuum = off", "select pg_reload_conf()", "create database observer"]
    {
        sqlx::raw_sql(change).execute(&mut admin).await.unwrap();
    }
    let mut observer = sqlx::PgConnection::connect(&cluster.url("observer")).await.unwrap();
    sqlx::raw_sql("create extension pg_stat_statements").execute(&mut observer).await.unwrap();
    observer
}

/// Fills the table with events that wait under a pause, as they are once workers have parked them.
async fn park(scene: &CrashScene, count: i64) {
    use wakeq::{Actor, Stop};
    scene.admin.pause(&crate::support::scope(WORK), &Actor::user("test"), &Stop::default()).await.unwrap();
    let waiting = "insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value, notify_at)
                   select gen_random_uuid(), '00000000-0000-0000-0000-000000000000', 'WORKER', $1, '_', '{}', null
                     from generate_series(1, $2)";
    sqlx::query(waiting).bind(WORK).bind(count).execute(&scene.pool).await.unwrap();
    sqlx::raw_sql("vacuum analyze wakeq.events_v2").execute(&scene.pool).await.unwrap();
    // Its connections are idle from here on.
    scene.count("select count(*) from wakeq.events_v2").await;
}

const PASSES: &str = "select passes from wakeq.chores where name = 'minute'";

/// The pages that the minute's statement has read since the last reset.
const READ: &str =
    "select coalesce(sum(shared_blks_hit + shared_blks_read), 0)::int8, coalesce(sum(calls), 0)::int8
                      from pg_stat_statements where query like 'with others as (%update wakeq.chores%'";

/// How many pages a pass reads. Twelve are for the queue, two of them for cancelled events, since
/// the one page of an empty index is looked at twice. One is for batches, and the others for the
/// row of the worker.
const USUAL: i64 = 17;

/// How many pages of catalogs a new connection reads once: it looks up the functions in the checks
/// of a worker's row when it first writes one, and those that other parts of the statement call,
/// such as that of open jobs.
const CATALOGS: i64 = 38;

/// How often a process has asked since the last reset whether it is the one that deletes old rows.
/// Only in the database of the workers: after a reset, a prepared statement is listed with its
/// literals, and this one would count itself.
const EXPIRIES: &str = "select coalesce(sum(calls), 0)::int8
                          from pg_stat_statements join pg_database on oid = dbid
                         where datname = 'postgres' and query like 'update wakeq.chores set next_at = now() + interval%'";

struct Window {
    length: Duration,
    period: Duration,
}

impl Window {
    /// Waits until a process that started after the last reset has asked whether it deletes old
    /// rows, as each does at its first pass.
    async fn until_a_first_expiry(&self, observer: &mut sqlx::PgConnection) {
        let deadline = Instant::now() + 3 * self.period + TIMEOUT;
        while sqlx::query_scalar::<_, i64>(EXPIRIES).fetch_one(&mut *observer).await.unwrap() == 0 {
            assert!(Instant::now() < deadline, "no pass of the process asked for old rows");
            // Only the statistics show it.
            tokio::time::sleep(self.period / 10).await;
        }
    }

    /// Waits for the end of a tenth pass, which scans everything from its beginning, partitions and
    /// queues. It is the first on a new connection, which also reads what later ones have cached.
    async fn until_a_tenth_pass(&self, observer: &mut sqlx::PgConnection, scene: &CrashScene) {
        let (tenth, buffers) = loop {
            let tenth = (scene.count(PASSES).await + 13) / 10 * 10;
            scene.until_at_least(PASSES, tenth - 1).await;
            let end = "select pg_terminate_backend(pid, 10000) from pg_stat_activity
                        where application_name = 'wakeq' and datname = 'postgres' and pid <> pg_backend_pid()";
            sqlx::raw_sql(end).execute(&mut *observer).await.unwrap();
            sqlx::raw_sql("select pg_stat_statements_reset()").execute(&mut *observer).await.unwrap();
            scene.until_at_least(PASSES, tenth).await;
            let (buffers, passes): (i64, i64) = sqlx::query_as(READ).fetch_one(&mut *observer).await.unwrap();
            // On a busy machine another pass is counted with it, which may be the first on a new
            // connection, too: then what the tenth one has read is not known.
            if passes == 1 {
                break (tenth, buffers);
            }
        };
        figure("a tenth pass", format!("{buffers} buffers"));
        // 20 are of the queue, of the worker's row and of the batches.
        assert!(buffers < 20 + CATALOGS, "{buffers} buffers in a tenth pass");
        // Each connection is in use again.
        scene.until_at_least(PASSES, tenth + 3).await;
    }

    async fn measure(
        &self,
        observer: &mut sqlx::PgConnection,
        scene: &CrashScene,
        processes: u32,
        condition: &str,
    ) {
        self.until_a_tenth_pass(observer, scene).await;
        let before = scene.count(PASSES).await;
        sqlx::raw_sql("select pg_stat_statements_reset()").execute(&mut *observer).await.unwrap();
        // Measures a window in which nothing happens.
        tokio::time::sleep(self.length).await;
        let made = "select regexp_replace(left(query, 40), '\\s+', ' ', 'g'), calls, shared_blks_hit + shared_blks_read
                      from pg_stat_statements join pg_database on oid = dbid
                     where datname = 'postgres' order by calls desc";
        let statements: Vec<(String, i64, i64)> =
            sqlx::query_as(made).fetch_all(&mut *observer).await.unwrap();
        let passed = scene.count(PASSES).await - before;
        // On a busy machine a process may need the connection that was closed only now, and opens
        // it again.
        let is_new = |query: &str| query.starts_with("select set_config(name");
        let (opened, sent): (Vec<_>, Vec<_>) = statements.iter().partition(|(query, ..)| is_new(query));
        let [opened, calls] = [opened, sent].map(|of| of.iter().map(|(_, calls, _)| calls).sum::<i64>());
        assert!(opened <= i64::from(processes), "{opened} connections were opened");
        figure(condition, format!("{passed} passes in {:?}, every {:?}", self.length, self.period));
        for (query, calls, buffers) in &statements {
            let each = *buffers as f64 / *calls as f64;
            figure("  statement", format!("{calls} x {query:?}, {each:.1} buffers each"));
            let allowed = calls * (USUAL + 1) + opened * CATALOGS;
            assert!(*buffers <= allowed, "{query} reads {each} buffers, {opened} connections were opened");
        }
        let allowed = i64::from(processes) * self.length.div_duration_f64(self.period).ceil() as i64;
        assert!(passed > 0, "nobody runs the pass");
        assert!((1..=allowed).contains(&calls), "{calls} statements, {allowed} allowed: {statements:?}");
    }
}

/// Many passes of a worker that does not sleep.
const SILENCE: Duration = Duration::from_secs(2);

/// Returns once no other session has sent anything for [`SILENCE`].
pub(crate) async fn until_silent(observer: &mut sqlx::PgConnection) {
    let silence =
        "select extract(epoch from clock_timestamp() - max(state_change))::float8 from pg_stat_activity
                    where datname = current_database() and pid <> pg_backend_pid()";
    let deadline = Instant::now() + TIMEOUT;
    while sqlx::query_scalar::<_, Option<f64>>(silence)
        .fetch_one(&mut *observer)
        .await
        .unwrap()
        .is_some_and(|silent_s| silent_s < SILENCE.as_secs_f64())
    {
        assert!(Instant::now() < deadline, "something is sent all the time");
        // Silence gives no signal.
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// An idle worker that lets the database sleep sends nothing; it is back with an event's
/// notification, and when something is due that it knows of. What it can't know waits until then:
/// here the event of another tenant, whose notification was lost.
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn an_idle_worker_lets_the_database_sleep() {
    let (horizon, probe_period) = (Duration::from_secs(1), Duration::from_millis(200));
    let timing = Timing { horizon, probe_period, ..quick() };
    let (stage, _notifier) = Stage::memory_with(timing.clone()).await;
    let mut observer = sqlx::PgConnection::connect(stage.database.url()).await.unwrap();
    let (handler, mut seen) = answering(|_| Ok(()));
    let config = WorkerConfig { lets_database_sleep: true, ..WorkerConfig::default() };
    let worker = stage.worker_with(Handlers::new().on(once("greet"), handler), config);

    until_silent(&mut observer).await;
    let first = stage.emit("greet").await;
    assert_eq!(seen.next().await.id, first);

    let (began, delay) = (Instant::now(), Duration::from_secs(10));
    let late = stage.queue.emit(Event::new("greet", "late").unwrap().after(delay).unwrap()).await.unwrap();
    let elsewhere = connect(stage.database.url(), timing).await;
    let silent = Queue::new(elsewhere, Arc::new(NoNotifier), QueueConfig::default());
    until_silent(&mut observer).await;
    let lost = silent.emit(Event::new("greet", "lost").unwrap().canvas(OTHER)).await.unwrap();
    let mut ids = vec![seen.next().await.id];
    assert!(began.elapsed() >= delay - horizon, "something was sent, although nothing was due");
    ids.push(seen.next().await.id);
    ids.sort();
    assert_eq!(ids, [late.id, lost.id]);
    until_silent(&mut observer).await;
    worker.stop().await;
}
