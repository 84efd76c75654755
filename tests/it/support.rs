//! Shared by the tests of the whole queue: a database of their own, a notifier, workers that are
//! stopped at the end.

use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgConnection, PgRow};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, FromRow};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use wakeq::database::RoleKind;
use wakeq::machine::Outcome;
use wakeq::notify::Notifier;
use wakeq::testing::MemoryNotifier;
use wakeq::workers::{Counters, RunReport};
use wakeq::{
    Admin, CanvasId, Event, EventId, Execution, HandlerScope, Handlers, Queue, QueueConfig, QueueWorker,
    Store, StoreConfig, Timing, WorkerConfig,
};
use wakeq_services::{Cluster, ClusterOptions, Folder, TestDatabase};
pub(crate) use wakeq_services::{is_skipped, wait_while};
use wakeq_streams::Groups;

use crate::door::{Recording, recording};

/// The canvas of another tenant.
pub(crate) const OTHER: CanvasId = canvas(7);

pub(crate) const fn canvas(number: u128) -> CanvasId {
    CanvasId(uuid::Uuid::from_u128(number))
}

/// Longest wait for anything that must happen.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);

/// A queue on a database of its own.
pub(crate) struct Stage {
    pub(crate) database: TestDatabase,
    pub(crate) store: Store,
    pub(crate) notifier: Arc<dyn Notifier>,
    pub(crate) queue: Queue,
    pub(crate) admin: Admin,
    /// For the test's own queries.
    pub(crate) pool: sqlx::PgPool,
}

/// A database with the tables, for one test.
pub(crate) async fn database() -> TestDatabase {
    let state = Store::migrations_hash().to_le_bytes();
    let migrate = async |url: String| Store::migrate(&url, false).await.map(drop);
    TestDatabase::create(&state, migrate).await.unwrap()
}

/// Creates a login on the database's server, without rights; returns its role and its URL.
pub(crate) async fn login(database: &TestDatabase, name: &str) -> (String, String) {
    let role = format!("{}_{name}", database.name());
    let mut owner = PgConnection::connect(database.url()).await.unwrap();
    let create = format!("create role {role} login password '{name}'");
    sqlx::raw_sql(AssertSqlSafe(create)).execute(&mut owner).await.unwrap();
    let options: PgConnectOptions = database.url().parse().unwrap();
    let url = options.username(&role).password(name).to_url_lossy();
    (role, url.into())
}

/// The URL by which a stage's store connects: the owner's, or, if `TEST_ROLE` names kinds of
/// processes (`api`, `worker`, `api,worker`), that of a login with exactly their rights.
async fn url_of_the_store(database: &TestDatabase) -> String {
    let Ok(kinds) = std::env::var("TEST_ROLE") else { return database.url().to_owned() };
    let (role, url) = login(database, "role").await;
    for kind in kinds.split(',') {
        let kind = match kind {
            "api" => RoleKind::Api,
            "worker" => RoleKind::Worker,
            other => panic!("TEST_ROLE is api, worker or api,worker, not {other}"),
        };
        Store::grant_rights(database.url(), &StoreConfig::default(), &role, kind).await.unwrap();
    }
    url
}

/// A server of the test's own. `None`, with a message about what is skipped, if Postgres is not
/// installed.
pub(crate) async fn cluster(skipped: &str) -> Option<Cluster> {
    let options = ClusterOptions { folder: Folder::Memory, ..ClusterOptions::default() };
    Cluster::start_if_installed(options, skipped).await.unwrap()
}

/// Durations for a quick test: whatever is lost is found within two seconds.
pub(crate) fn quick() -> Timing {
    Timing {
        lease: Duration::from_secs(2),
        horizon: Duration::from_secs(60),
        grace: Duration::from_secs(1),
        probe_period: Duration::from_secs(1),
        probe_backoff: Duration::from_secs(1),
        probe_backoff_max: Duration::from_secs(4),
        unknown_handler_wait: Duration::from_secs(2),
    }
}

impl Stage {
    /// The consumer groups of its database.
    pub(crate) fn groups(&self) -> Groups {
        Groups::new(self.store.clone())
    }

    /// With a notifier in memory and the defaults.
    pub(crate) async fn memory() -> (Self, Arc<MemoryNotifier>) {
        Self::memory_with(Timing::default()).await
    }

    pub(crate) async fn memory_with(timing: Timing) -> (Self, Arc<MemoryNotifier>) {
        let notifier = Arc::new(MemoryNotifier::new());
        (Self::with(notifier.clone(), timing).await, notifier)
    }

    pub(crate) async fn with(notifier: Arc<dyn Notifier>, timing: Timing) -> Self {
        let database = database().await;
        let url = url_of_the_store(&database).await;
        Self::through(database, &url, notifier, timing).await
    }

    /// On a database that the queue reaches at another address, such as a proxy's.
    pub(crate) async fn through(
        database: TestDatabase,
        url: &str,
        notifier: Arc<dyn Notifier>,
        timing: Timing,
    ) -> Self {
        let store = connect(url, timing).await;
        let queue = Queue::new(store.clone(), notifier.clone(), QueueConfig::default());
        let admin = Admin::new(store.clone(), notifier.clone());
        let pool = sqlx::PgPool::connect(database.url()).await.unwrap();
        Self { database, store, notifier, queue, admin, pool }
    }

    pub(crate) async fn emit(&self, name: &str) -> EventId {
        self.queue.emit(Event::new(name, "value").unwrap()).await.unwrap().id
    }

    pub(crate) async fn emit_many(&self, name: &str, count: usize) -> Vec<EventId> {
        let events = (0..count).map(|index| Event::new(name, &index).unwrap()).collect();
        self.queue.emit_all(events).await.unwrap().into_iter().map(|emitted| emitted.id).collect()
    }

    /// The number of rows in `events_v2`.
    pub(crate) async fn rows(&self) -> i64 {
        sqlx::query_scalar("select count(*) from wakeq.events_v2").fetch_one(&self.pool).await.unwrap()
    }

    /// Executes SQL of the test's own.
    pub(crate) async fn execute(&self, sql: &'static str) {
        sqlx::raw_sql(sql).execute(&self.pool).await.unwrap();
    }

    /// What a query with one row and one column finds.
    pub(crate) async fn scalar<T>(&self, sql: &'static str) -> T
    where
        T: Send + Unpin,
        (T,): for<'row> FromRow<'row, PgRow>,
    {
        sqlx::query_scalar(sql).fetch_one(&self.pool).await.unwrap()
    }

    /// What a query with one column finds, row by row.
    pub(crate) async fn scalars<T>(&self, sql: &'static str) -> Vec<T>
    where
        T: Send + Unpin,
        (T,): for<'row> FromRow<'row, PgRow>,
    {
        sqlx::query_scalar(sql).fetch_all(&self.pool).await.unwrap()
    }

    /// What a query finds, row by row.
    pub(crate) async fn tuples<T>(&self, sql: &'static str) -> Vec<T>
    where
        T: Send + Unpin + for<'row> FromRow<'row, PgRow>,
    {
        sqlx::query_as(sql).fetch_all(&self.pool).await.unwrap()
    }

    pub(crate) fn worker(&self, handlers: Handlers) -> RunningWorker {
        self.worker_with(handlers, WorkerConfig::default())
    }

    /// A worker with a handler of this name that completes, and what that runs.
    pub(crate) fn recorded(&self, name: &'static str) -> (RunningWorker, Recording<Execution>) {
        let (handler, seen) = recording();
        (self.worker(Handlers::new().on(name, handler)), seen)
    }

    pub(crate) fn worker_with(&self, handlers: Handlers, config: WorkerConfig) -> RunningWorker {
        RunningWorker::start(self.store.clone(), self.notifier.clone(), handlers, config)
    }
}

/// Asks again and again until there is an answer.
pub(crate) async fn until<T>(expected: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let asking = async {
        loop {
            if let Some(answer) = ask().await {
                return answer;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(TIMEOUT, asking).await.expect(expected)
}

/// A handler of the default canvas.
pub(crate) fn scope(name: &str) -> HandlerScope {
    HandlerScope::worker(CanvasId::DEFAULT, name).unwrap()
}

pub(crate) async fn connect(url: &str, timing: Timing) -> Store {
    Store::connect(url, fit(StoreConfig { timing, ..StoreConfig::default() })).await.unwrap()
}

/// The configuration of a store for this run of the tests: with `TEST_POOL` connections, unless the
/// test itself sets a number, and with permission to work on the embedded Postgres.
pub(crate) fn fit(config: StoreConfig) -> StoreConfig {
    let asked = std::env::var("TEST_POOL").ok().map(|count| count.parse().expect("TEST_POOL is a number"));
    let is_usual = config.max_connections == StoreConfig::default().max_connections;
    StoreConfig {
        max_connections: asked.filter(|_| is_usual).unwrap_or(config.max_connections),
        allow_unsafe_durability: config.allow_unsafe_durability || ALLOWED == durability().1,
        secret_keys: if config.secret_keys.ids().is_empty() { secret_keys() } else { config.secret_keys },
        ..config
    }
}

/// The variable and value of the key that encrypts the tests' signing secrets.
pub(crate) const SECRET_KEY: (&str, &str) =
    ("WAKEQ_SECRET_KEY", "5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e");

/// The same for a store.
pub(crate) fn secret_keys() -> wakeq::targets::SecretKeys {
    SECRET_KEY.1.parse().unwrap()
}

const ALLOWED: &str = "1";

/// The variable and value that allow a process of the tests to work on their server.
pub(crate) fn durability() -> (&'static str, &'static str) {
    const VARIABLE: &str = "WAKEQ_ALLOW_UNSAFE_DURABILITY";
    let inherited = std::env::var(VARIABLE).is_ok_and(|value| value == ALLOWED);
    (VARIABLE, if inherited || TestDatabase::is_embedded() { ALLOWED } else { "0" })
}

/// A worker in this process.
pub(crate) struct RunningWorker {
    pub(crate) counters: Arc<Counters>,
    reports: mpsc::Receiver<RunReport>,
    stop: CancellationToken,
    task: Option<JoinHandle<Result<(), wakeq::WorkerError>>>,
}

impl RunningWorker {
    pub(crate) fn start(
        store: Store,
        notifier: Arc<dyn Notifier>,
        handlers: Handlers,
        config: WorkerConfig,
    ) -> Self {
        Self::of(QueueWorker::new(store, notifier, handlers, config).unwrap())
    }

    pub(crate) fn of(mut worker: QueueWorker) -> Self {
        let reports = worker.reports();
        let (counters, stop) = (worker.counters(), worker.stop_token());
        Self { counters, reports, stop, task: Some(tokio::spawn(worker.run())) }
    }

    /// The next report of a run.
    pub(crate) async fn report(&mut self) -> RunReport {
        let report = tokio::time::timeout(TIMEOUT, self.reports.recv()).await;
        report.expect("no run ended in time").expect("the worker has ended")
    }

    /// Reads reports until a run of the event ends with this outcome.
    pub(crate) async fn until(&mut self, id: EventId, outcome: Outcome) -> RunReport {
        loop {
            let report = self.report().await;
            if report.notification.id == id && report.trail.last() == Some(&outcome) {
                return report;
            }
        }
    }

    /// Reads reports until this many runs have ended with this outcome.
    pub(crate) async fn until_count(&mut self, count: usize, outcome: Outcome) -> Vec<RunReport> {
        let mut found = Vec::new();
        while found.len() < count {
            let report = self.report().await;
            if report.trail.last() == Some(&outcome) {
                found.push(report);
            }
        }
        found
    }

    /// Begins the worker's shutdown without waiting for it.
    pub(crate) fn cancel(&self) {
        self.stop.cancel();
    }

    /// Shuts the worker down, as SIGTERM does.
    pub(crate) async fn stop(mut self) {
        self.stop.cancel();
        let task = self.task.take().expect("stopped once");
        tokio::time::timeout(Duration::from_secs(40), task).await.expect("no end in time").unwrap().unwrap();
    }
}

impl Drop for RunningWorker {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}
