//! Shared by the tests of the whole queue: a database of their own, a notifier, workers that are
//! stopped at the end.

pub(crate) mod brokers;
pub(crate) mod child_processes;
pub(crate) mod crash_scene;
pub(crate) mod google_keys;
pub(crate) mod handlers;
pub(crate) mod journal;
pub(crate) mod oidc_provider;
pub(crate) mod receiver;
pub(crate) mod repository;
pub(crate) mod service;
pub(crate) mod spy_log;
pub(crate) mod thread_log;
pub(crate) mod wire;

use std::borrow::Borrow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use handlers::{Door, Recording, answering};
use sqlx::postgres::{PgConnectOptions, PgConnection, PgRow};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, FromRow, PgPool, Postgres, Transaction};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use wakeq::control::{Explanation, LiveEvent};
use wakeq::database::RoleKind;
use wakeq::machine::Outcome;
use wakeq::notify::Notifier;
use wakeq::testing::MemoryNotifier;
use wakeq::workers::{Counters, RunReport, WorkerError};
use wakeq::{
    Admin, CanvasId, Event, EventId, Execution, HandlerResult, HandlerScope, Handlers, Queue, QueueConfig,
    QueueWorker, RetryPolicy, Route, Store, StoreConfig, Timing, WorkerConfig,
};
use wakeq_streams::Groups;
use wakeq_testbed::{Cluster, ClusterOptions, Folder, TestDatabase};
pub(crate) use wakeq_testbed::{Looks, wait_while};

/// The canvas of another tenant.
pub(crate) const OTHER: CanvasId = canvas(7);

pub(crate) const fn canvas(number: u128) -> CanvasId {
    CanvasId(uuid::Uuid::from_u128(number))
}

/// Longest wait for anything that must happen: only what hangs takes that long, however busy the
/// machine is.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(120);

/// A queue on a database of its own.
pub(crate) struct Stage {
    pub(crate) database: TestDatabase,
    pub(crate) store: Store,
    pub(crate) notifier: Arc<dyn Notifier>,
    pub(crate) queue: Queue,
    pub(crate) admin: Admin,
    /// For the test's own queries.
    pub(crate) pool: PgPool,
}

/// A row as a test reads it.
pub(crate) trait Columns: for<'r> FromRow<'r, PgRow> + Send + Unpin {}

impl<T: for<'r> FromRow<'r, PgRow> + Send + Unpin> Columns for T {}

/// The statements of a test that have no arguments.
pub(crate) trait Statements: Borrow<PgPool> {
    /// Returns how many rows it changed.
    async fn run(&self, sql: &'static str) -> u64 {
        sqlx::query(sql).execute(Borrow::<PgPool>::borrow(self)).await.unwrap().rows_affected()
    }

    /// The only row.
    async fn row<T: Columns>(&self, sql: &'static str) -> T {
        sqlx::query_as(sql).fetch_one(Borrow::<PgPool>::borrow(self)).await.unwrap()
    }

    /// Every row.
    async fn table<T: Columns>(&self, sql: &'static str) -> Vec<T> {
        sqlx::query_as(sql).fetch_all(Borrow::<PgPool>::borrow(self)).await.unwrap()
    }

    /// The only column of the only row.
    async fn value<T>(&self, sql: &'static str) -> T
    where
        (T,): Columns,
    {
        self.row::<(T,)>(sql).await.0
    }

    /// The only column of every row.
    async fn values<T>(&self, sql: &'static str) -> Vec<T>
    where
        (T,): Columns,
    {
        self.table::<(T,)>(sql).await.into_iter().map(|(value,)| value).collect()
    }
}

impl Statements for PgPool {}

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

/// The port of a pooler in transaction mode, through which stores connect.
const POOLER: &str = "TEST_POOLER";

/// The URL by which a stage's store connects: the owner's, by the pooler at the port `TEST_POOLER`
/// if it is set; or, if `TEST_ROLE` names kinds of processes (`api`, `worker`, `api,worker`), that
/// of a login with exactly their rights.
async fn url_of_the_store(database: &TestDatabase) -> String {
    let Ok(kinds) = std::env::var("TEST_ROLE") else {
        let options: PgConnectOptions = database.url().parse().unwrap();
        let pooler = std::env::var(POOLER).ok().map(|port| port.parse().expect("TEST_POOLER is a port"));
        return options.clone().port(pooler.unwrap_or(options.get_port())).to_url_lossy().into();
    };
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

/// A server of the test's own. `None`, with a message about what is skipped, if Postgres is neither
/// installed nor can be downloaded.
pub(crate) async fn cluster(skipped: &str) -> Option<Cluster> {
    let options = ClusterOptions { folder: Folder::Memory, ..ClusterOptions::default() };
    Cluster::start_or_skip(options, skipped).await.unwrap()
}

/// Like [`quick`], for tests that count runs: no lease ends because the machine is busy.
pub(crate) fn patient() -> Timing {
    Timing { lease: TIMEOUT, ..quick() }
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
        ..Timing::default()
    }
}

/// An event that is left to its promise comes later than a test waits for anything.
pub(crate) fn promised_late() -> Timing {
    let late = Duration::from_secs(600);
    Timing { grace: late, probe_period: late, ..quick() }
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
        let pool = PgPool::connect(database.url()).await.unwrap();
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
        self.count("select count(*) from wakeq.events_v2").await
    }

    pub(crate) async fn count(&self, query: &'static str) -> i64 {
        self.pool.value(query).await
    }

    /// The number of statements that wait for a lock.
    pub(crate) async fn waiting_for_locks(&self) -> i64 {
        let waiting = "select count(*) from pg_stat_activity
                        where datname = current_database() and wait_event_type = 'Lock'";
        self.count(waiting).await
    }

    /// A transaction in which this statement was executed.
    pub(crate) async fn hold(&self, statement: &'static str) -> Transaction<'static, Postgres> {
        let mut held = self.pool.begin().await.unwrap();
        sqlx::raw_sql(statement).execute(&mut *held).await.unwrap();
        held
    }

    /// Waits until every event is gone, as long as they become fewer.
    pub(crate) async fn until_empty(&self) {
        let (mut fewest, mut since) = (i64::MAX, Instant::now());
        let mut looks = Looks::default();
        loop {
            let rows = self.rows().await;
            if rows == 0 {
                return;
            }
            if rows < fewest {
                (fewest, since) = (rows, Instant::now());
            } else if since.elapsed() > TIMEOUT {
                panic!("{rows} events are left: {}", self.left().await);
            }
            looks.pause().await;
        }
    }

    /// The first events that have not ended, the chores, and what the sessions of the database do.
    pub(crate) async fn left(&self) -> String {
        let rows = "select concat_ws(E'\n', now(), (select count(*) from wakeq.events_v2),
                           (select string_agg(e::text, E'\n') from (select * from wakeq.events_v2 limit 5) e),
                           (select string_agg(c::text, E'\n') from wakeq.chores c),
                           (select string_agg(concat_ws(' ', pid, pg_blocking_pids(pid)::text, state, wait_event,
                                                        now() - state_change, left(query, 200)), E'\n')
                              from pg_stat_activity where datname = current_database()))";
        sqlx::query_scalar(rows).fetch_one(&self.pool).await.unwrap()
    }

    /// What is known of an event that has not ended.
    pub(crate) async fn live(&self, canvas: CanvasId, id: EventId) -> LiveEvent {
        let explained = self.admin.explain(canvas, id).await.unwrap();
        let Explanation::Live(live) = explained else { panic!("it has ended: {explained:?}") };
        *live
    }

    /// Another connection to its database, which waits for locks as long as a test does.
    pub(crate) async fn patient(&self, timing: Timing) -> Store {
        let (lock_timeout, statement_timeout) = (TIMEOUT, TIMEOUT);
        let config =
            StoreConfig { timing: Some(timing), lock_timeout, statement_timeout, ..StoreConfig::default() };
        Store::connect(self.database.url(), fit(config)).await.unwrap()
    }

    /// A worker whose only handler waits behind a door.
    pub(crate) fn door(&self, route: impl Into<Route>) -> (RunningWorker, Door) {
        let (handler, door) = Door::new();
        (self.worker(Handlers::new().on(route, handler)), door)
    }

    /// A worker whose only handler returns this answer.
    pub(crate) fn answering<F>(
        &self,
        route: impl Into<Route>,
        answer: F,
    ) -> (RunningWorker, Recording<Execution>)
    where
        F: Fn(&Execution) -> HandlerResult + Send + Sync + Clone + 'static,
    {
        let (handler, seen) = answering(answer);
        (self.worker(Handlers::new().on(route, handler)), seen)
    }

    /// A worker whose only handler completes.
    pub(crate) fn recording(&self, route: impl Into<Route>) -> (RunningWorker, Recording<Execution>) {
        self.answering(route, |_| Ok(()))
    }

    /// Executes SQL of the test's own.
    pub(crate) async fn execute(&self, sql: &'static str) {
        sqlx::raw_sql(sql).execute(&self.pool).await.unwrap();
    }

    pub(crate) fn worker(&self, handlers: Handlers) -> RunningWorker {
        self.worker_with(handlers, WorkerConfig::default())
    }

    pub(crate) fn worker_with(&self, handlers: Handlers, config: WorkerConfig) -> RunningWorker {
        RunningWorker::start(self.store.clone(), self.notifier.clone(), handlers, config)
    }
}

/// Asks again and again until there is an answer.
pub(crate) async fn until<T>(expected: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let mut looks = Looks::default();
    let asking = async {
        loop {
            if let Some(answer) = ask().await {
                return answer;
            }
            looks.pause().await;
        }
    };
    tokio::time::timeout(TIMEOUT, asking).await.expect(expected)
}

/// A handler of the default canvas.
pub(crate) fn scope(name: &str) -> HandlerScope {
    HandlerScope::worker(CanvasId::DEFAULT, name).unwrap()
}

/// A handler without retries.
pub(crate) fn once(name: &str) -> Route {
    Route::new(name).retry(RetryPolicy { retries: 0, ..RetryPolicy::default() })
}

pub(crate) fn capacity(capacity: usize) -> WorkerConfig {
    WorkerConfig { capacity, ..WorkerConfig::default() }
}

pub(crate) async fn stop_all(workers: impl IntoIterator<Item = RunningWorker>) {
    for worker in workers {
        worker.stop().await;
    }
}

pub(crate) async fn connect(url: &str, timing: Timing) -> Store {
    Store::connect(url, fit(StoreConfig { timing: Some(timing), ..StoreConfig::default() })).await.unwrap()
}

/// The configuration of a store for this run of the tests: with `TEST_POOL` connections, unless the
/// test itself sets a number, and with permission to work on a server that does not wait for the
/// disk, if the environment gives it.
pub(crate) fn fit(config: StoreConfig) -> StoreConfig {
    let asked = std::env::var("TEST_POOL").ok().map(|count| count.parse().expect("TEST_POOL is a number"));
    let is_usual = config.max_connections == StoreConfig::default().max_connections;
    StoreConfig {
        max_connections: asked.filter(|_| is_usual).unwrap_or(config.max_connections),
        allow_unsafe_durability: config.allow_unsafe_durability || ALLOWED == durability().1,
        transaction_pooler: config.transaction_pooler || std::env::var_os(POOLER).is_some(),
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
    (VARIABLE, if inherited { ALLOWED } else { "0" })
}

/// A worker in this process.
pub(crate) struct RunningWorker {
    pub(crate) counters: Arc<Counters>,
    reports: mpsc::Receiver<RunReport>,
    stop: CancellationToken,
    task: Option<JoinHandle<Result<(), WorkerError>>>,
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
        let ended =
            |report: &RunReport| report.notification.id == id && report.trail.last() == Some(&outcome);
        let expected = format!("no run of {id} ended with {outcome:?}");
        tokio::time::timeout(TIMEOUT, self.find(ended)).await.expect(&expected)
    }

    /// The same for several events, whose runs end in any order.
    pub(crate) async fn until_all(&mut self, ids: &[EventId], outcome: Outcome) {
        let mut left = ids.to_vec();
        while !left.is_empty() {
            let ended = |report: &RunReport| {
                left.contains(&report.notification.id) && report.trail.last() == Some(&outcome)
            };
            let found = tokio::time::timeout(TIMEOUT, self.find(ended)).await;
            let found = found.unwrap_or_else(|_| panic!("no runs of {left:?} ended with {outcome:?}"));
            left.retain(|id| *id != found.notification.id);
        }
    }

    /// Reads reports until this many runs have ended with this outcome. Runs that end otherwise, as
    /// all do while a server is away, don't put off its end.
    pub(crate) async fn until_count(&mut self, count: usize, outcome: Outcome) -> Vec<RunReport> {
        let mut found = Vec::new();
        while found.len() < count {
            let next = self.find(|report| report.trail.last() == Some(&outcome));
            let next = tokio::time::timeout(TIMEOUT, next).await;
            found.push(
                next.unwrap_or_else(|_| panic!("{} of {count} runs ended with {outcome:?}", found.len())),
            );
        }
        found
    }

    async fn find(&mut self, wanted: impl Fn(&RunReport) -> bool) -> RunReport {
        loop {
            let report = self.report().await;
            if wanted(&report) {
                return report;
            }
        }
    }

    /// Begins the worker's shutdown without waiting for it.
    pub(crate) fn cancel(&self) {
        self.stop.cancel();
    }

    /// Why the worker ended by itself.
    pub(crate) async fn fails(mut self) -> WorkerError {
        let task = self.task.take().expect("it has not been stopped");
        tokio::time::timeout(TIMEOUT, task).await.expect("no end in time").unwrap().unwrap_err()
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
