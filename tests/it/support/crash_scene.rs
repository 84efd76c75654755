//! The scene of a crash test: a database, a topic, a table in which the handlers of child processes
//! record their runs, and the queries of such a test.
//!
//! `WAKEQ_CHAOS=full` makes the same tests large; `cargo xtask chaos` sets it.

use std::sync::Arc;
use std::time::Duration;

use sqlx::PgPool;
use tokio::time::{Instant, sleep};
use uuid::Uuid;
use wakeq::notify::{Notifier, PubSub};
use wakeq::{Admin, Event, EventId, Queue, Store, Timestamp};
use wakeq_testbed::{Cluster, TestDatabase};
use wakeq_testbed::{Guard, PubSub as PubSubEmulator};

use super::brokers::Broker;
use super::child_processes::{Durations, Process, Role, Services, Work};
use super::wire::Wire;
use crate::support::{self, Statements};

/// A run counts as in flight at a kill if it recorded its end less than this before: its row may
/// not have been deleted yet.
const NOT_YET_DELETED: chrono::TimeDelta = chrono::TimeDelta::seconds(2);
/// How often the tables are queried; the children write them, so nothing here could be awaited
/// instead.
const POLL_PERIOD: Duration = Duration::from_millis(20);

/// The usual size of a test, or the full one.
pub(crate) fn size(usual: usize, full: usize) -> usize {
    if is_full() { full } else { usual }
}

pub(crate) fn is_full() -> bool {
    std::env::var("WAKEQ_CHAOS").is_ok_and(|size| size == "full")
}

/// Longest wait without progress.
pub(crate) fn time_limit() -> Duration {
    Duration::from_secs(if is_full() { 120 } else { 60 })
}

/// Prints a figure, for the readers of `cargo xtask chaos`.
pub(crate) fn figure(name: &str, value: impl std::fmt::Display) {
    println!("    {name}: {value}");
}

pub(crate) struct CrashScene {
    pub(crate) services: Services,
    pub(crate) notifier: Arc<dyn Notifier>,
    pub(crate) queue: Queue,
    pub(crate) admin: Admin,
    pub(crate) pool: PgPool,
    kills: std::sync::Mutex<Vec<(i32, Timestamp)>>,
    guard: Guard,
    _database: Option<TestDatabase>,
}

/// A run that was not the last of its event.
#[derive(Clone, Debug, sqlx::FromRow)]
pub(crate) struct ExtraRun {
    pub(crate) event: Uuid,
    pub(crate) pid: i32,
    pub(crate) claimed_at: Timestamp,
    pub(crate) ended_at: Option<Timestamp>,
}

impl CrashScene {
    /// On the servers that all tests share.
    pub(crate) async fn new(name: &str, timing: Durations) -> Self {
        Self::on(name, timing, None, None).await
    }

    /// On a Postgres or an emulator of its own, which the test may kill.
    pub(crate) async fn on(
        name: &str,
        timing: Durations,
        postgres: Option<&Cluster>,
        emulator: Option<&PubSubEmulator>,
    ) -> Self {
        let config = match emulator {
            Some(emulator) => Broker::config_at(emulator.host(), name),
            None => Broker::pubsub_config(name).await,
        };
        let (database_url, database) = match postgres {
            Some(cluster) => {
                Store::migrate(&cluster.url("postgres"), false).await.unwrap();
                (cluster.url("postgres"), None)
            }
            None => {
                let database = support::database().await;
                (database.url().to_owned(), Some(database))
            }
        };
        let services = Services {
            database_url,
            emulator_host: config.emulator_host.unwrap(),
            topic: config.topic,
            subscription: config.subscription,
            timing,
        };
        Self::at(services, database).await
    }

    async fn at(services: Services, database: Option<TestDatabase>) -> Self {
        let store = services.store().await;
        let notifier: Arc<dyn Notifier> = Arc::new(PubSub::connect(services.pubsub()).await.unwrap());
        wakeq::notify::create_topics(&services.pubsub()).await.unwrap();
        let queue = Services::queue(&store, &notifier);
        let admin = Admin::new(store.clone(), Arc::clone(&notifier));
        let pool = PgPool::connect(&services.database_url).await.unwrap();
        let runs = "create table runs (event uuid, attempt integer, pid integer, enqueued_at timestamptz,
                                       claimed_at timestamptz, started_at timestamptz default clock_timestamp(),
                                       ended_at timestamptz, object text, link bigint, prev bigint);
                    create index on runs (event);
                    create table bookings (event uuid not null)";
        sqlx::raw_sql(runs).execute(&pool).await.unwrap();
        let guard = Guard::new(None).unwrap();
        let kills = std::sync::Mutex::default();
        Self { services, notifier, queue, admin, pool, kills, guard, _database: database }
    }

    /// Children that are started from now on reach Postgres through this wire.
    pub(crate) fn pass_through(&mut self, wire: &Wire) {
        self.services.database_url.clone_from(&wire.url);
    }

    /// Starts a child; `fault` is the point at which it kills itself.
    pub(crate) fn start(&self, role: &Role, fault: Option<&str>) -> Process {
        Process::start(&self.guard, &self.services, role, fault)
    }

    /// Starts a worker and waits until it is ready.
    pub(crate) async fn worker(&self, capacity: usize) -> Process {
        let worker = self.start(&Role::Worker { capacity, shutdown_grace_ms: 3_000 }, None);
        worker.says("ready").await;
        worker
    }

    pub(crate) async fn workers(&self, count: usize, capacity: usize) -> Vec<Process> {
        let mut workers = Vec::new();
        while workers.len() < count {
            workers.push(self.worker(capacity).await);
        }
        workers
    }

    /// Kills a child with -9 and records it.
    pub(crate) async fn kill_9(&self, process: &Process) {
        process.child.kill_9().await.unwrap();
        self.died(process.pid()).await;
    }

    /// Replaces the subscription by a new one, when no worker is left. Google's emulator keeps
    /// sending messages to the streams of dead processes, each for ten seconds, and a test of
    /// workers need not wait for that.
    pub(crate) async fn forget_dead_streams(&self) {
        Broker::delete_subscription(&self.services.pubsub()).await;
        wakeq::notify::create_topics(&self.services.pubsub()).await.unwrap();
    }

    /// Records a process that has died.
    pub(crate) async fn died(&self, pid: i32) {
        let now = self.clock().await;
        self.kills.lock().unwrap().push((pid, now));
    }

    pub(crate) async fn emit(&self, name: &str, work: Work) -> EventId {
        self.queue.emit(Event::new(name, &work).unwrap()).await.unwrap().id
    }

    pub(crate) async fn emit_many(&self, name: &str, count: usize, work: Work) {
        for start in (0..count).step_by(5_000) {
            let page = (start..count.min(start + 5_000)).map(|_| Event::new(name, &work).unwrap());
            self.queue.emit_all(page.collect()).await.unwrap();
        }
    }

    pub(crate) async fn clock(&self) -> Timestamp {
        self.pool.value("select clock_timestamp()").await
    }

    pub(crate) async fn count(&self, query: &'static str) -> i64 {
        self.pool.value(query).await
    }

    /// Waits until a query returns at least this number, as long as its result keeps growing.
    pub(crate) async fn until_at_least(&self, query: &'static str, wanted: i64) {
        let (mut most, mut since) = (i64::MIN, Instant::now());
        while most < wanted {
            let asked = Instant::now();
            // Postgres may be down for a moment: a test has killed it.
            if let Ok(found) = sqlx::query_scalar::<_, i64>(query).fetch_one(&self.pool).await
                && found > most
            {
                (most, since) = (found, Instant::now());
            }
            let limit = time_limit();
            assert!(since.elapsed() < limit, "{query}: {most} for {limit:?}, wanted {wanted}");
            // A slow query is repeated less often, so that it does not become the load.
            sleep(POLL_PERIOD.max(asked.elapsed() * 10)).await;
        }
    }

    /// Waits until every event is gone; returns how long it took.
    pub(crate) async fn until_empty(&self) -> Duration {
        let since = Instant::now();
        self.until_at_least("select -count(*) from wakeq.events_v2", 0).await;
        since.elapsed()
    }

    /// How many events have a run that recorded its end.
    pub(crate) async fn completed(&self) -> i64 {
        self.count("select count(distinct event) from runs where ended_at is not null").await
    }

    /// Runs that were not the last of their event. Fails if one of them was not in flight when its
    /// process was killed.
    pub(crate) async fn extra_runs(&self) -> Vec<ExtraRun> {
        let extra = "select event, pid, claimed_at, ended_at from runs r
                      where exists (select from runs l where l.event = r.event and l.claimed_at > r.claimed_at)
                      order by claimed_at";
        let extra: Vec<ExtraRun> = self.pool.table(extra).await;
        let kills = self.kills.lock().unwrap().clone();
        for run in &extra {
            let killed = kills.iter().find(|(pid, _)| *pid == run.pid);
            let Some((_, at)) = killed else { panic!("an extra run of a process that lives: {run:?}") };
            let in_flight = run.ended_at.is_none_or(|ended_at| ended_at > *at - NOT_YET_DELETED);
            assert!(in_flight, "an extra run that had ended long before the kill at {at}: {run:?}");
        }
        extra
    }
}

/// Prints the extra runs for `cargo xtask chaos`: how many, and a few of them.
pub(crate) fn list(extra: &[ExtraRun]) {
    figure("extra runs, all of them in flight at a kill", extra.len());
    for run in extra.iter().take(5) {
        let ended = run.ended_at.map_or("cut off".to_owned(), |at| format!("ended {at}"));
        let run = format!("{} in process {}, claimed {}, {ended}", run.event, run.pid, run.claimed_at);
        figure("  extra", run);
    }
    if extra.len() > 5 {
        figure("  extra", format!("… and {} more", extra.len() - 5));
    }
}
