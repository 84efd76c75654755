//! Processes of the crash tests: this test binary started again, as a worker, an emitter or an
//! admin.
//!
//! A child gets its role in a variable and reports in lines that begin with `@ `. It must end with
//! the process that started it, and it never asserts anything: the parent does.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use serde::{Deserialize, Serialize};
use sqlx::{Connection, PgConnection, PgPool};
use tokio::sync::{Mutex, mpsc};
use wakeq::notify::{Notifier, PubSub, PubSubConfig};
use wakeq::workers::{RunReport, Verdict};
use wakeq::{
    Admin, EmitError, Event, EventId, Execution, HandlerError, HandlerResult, Handlers, Queue, QueueConfig,
    QueueWorker, RetryPolicy, Route, Store, StoreConfig, Timing, WorkerConfig,
};
use wakeq_testbed::{ChildProcess, Guard, Launch};

use super::crash_scene::time_limit;
use super::journal::{self, LIMITED};
use super::{TIMEOUT, durability, fit, scope};
use crate::streams::entities;

const VARIABLE: &str = "WAKEQ_TEST_CHILD";
const MARK: &str = "@ ";

/// The services that a child connects to.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Services {
    pub(crate) database_url: String,
    pub(crate) emulator_host: String,
    pub(crate) topic: String,
    pub(crate) subscription: String,
    pub(crate) timing: Durations,
}

/// The durations that differ between tests, in milliseconds.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Durations {
    pub(crate) lease_ms: u64,
    pub(crate) grace_ms: u64,
    pub(crate) probe_ms: u64,
    pub(crate) backoff_ms: u64,
}

/// The role of a child.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Role {
    /// Runs events until SIGTERM.
    Worker { capacity: usize, shutdown_grace_ms: u64 },
    /// Emits this many events with the same value, one by one, 20 at a time.
    Emitter { count: usize, work: Work },
    /// Emits `each` events on each of `objects` objects, in turns, with ids derived from the name:
    /// started again, it adds what is missing.
    EmitterOn { name: u32, objects: usize, each: usize, work: Work },
    /// Emits events on `work:1`, and sets its state, in a transaction that it never ends.
    EmitterWithin,
    /// Emits `each` events for each of `canvases` canvases, in turns, only to the queue [`QUEUE`].
    EmitterToQueue { canvases: usize, each: usize, work: Work },
    /// Owns the accounts under this epoch until it is killed; reports its memory once it has warmed
    /// up.
    Accounts { epoch: i64, snapshot_every: u32 },
    /// Consumes in groups until SIGTERM.
    GroupNode(crate::streams::groups::node::GroupWork),
    /// Lifts the pause of [`WORK`].
    Unpause,
    /// Lifts the pause of the default canvas.
    UnpauseCanvas,
}

/// The handler that records its runs and is retried soon.
pub(crate) const WORK: &str = "work";
/// As [`WORK`], but never retried.
pub(crate) const WORK_ONCE: &str = "work-once";
/// As [`WORK_ONCE`], and a death halts its object.
pub(crate) const WORK_OR_HALT: &str = "work-or-halt";
/// The handler that writes into `bookings` and completes its event in one transaction.
pub(crate) const BOOK: &str = "book";
/// The registered queue whose handler is as [`WORK`]; it gets the events emitted for `queued`.
pub(crate) const QUEUE: &str = "work-queue";
/// The handler that books each of its [`PAGES`] together with a checkpoint, and kills its process
/// after one commit, and before another.
pub(crate) const IMPORT: &str = "import";
/// The pages of an import.
pub(crate) const PAGES: i64 = 6;
/// The handler that records its run and kills the process.
pub(crate) const PILL: &str = "pill";

/// How long the runs of an event take: the value of all events here.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Work {
    pub(crate) first_ms: u64,
    pub(crate) later_ms: u64,
    /// Whether the first run fails at its end.
    pub(crate) first_fails: bool,
}

impl Work {
    /// Every run takes this long.
    pub(crate) fn lasting(ms: u64) -> Self {
        Self { first_ms: ms, later_ms: ms, first_fails: false }
    }
}

impl Durations {
    /// Runs lost in a crash are found within seconds.
    pub(crate) fn quick() -> Self {
        Self { lease_ms: 2_000, grace_ms: 1_000, probe_ms: 1_000, backoff_ms: 1_000 }
    }

    /// For thousands of events, which may wait for their turn without being woken repeatedly.
    pub(crate) fn crowd() -> Self {
        Self { lease_ms: 4_000, grace_ms: 4_000, probe_ms: 1_000, backoff_ms: 4_000 }
    }

    /// The durations of a deployment.
    pub(crate) fn production() -> Self {
        Self { lease_ms: 60_000, grace_ms: 30_000, probe_ms: 60_000, backoff_ms: 600_000 }
    }

    pub(crate) fn timing(self) -> Timing {
        let Self { lease_ms, grace_ms, probe_ms, backoff_ms } = self;
        Timing {
            lease: Duration::from_millis(lease_ms),
            grace: Duration::from_millis(grace_ms),
            probe_period: Duration::from_millis(probe_ms),
            probe_backoff: Duration::from_millis(backoff_ms),
            probe_backoff_max: Duration::from_millis(4 * backoff_ms),
            ..Timing::default()
        }
    }
}

impl Services {
    pub(crate) fn pubsub(&self) -> PubSubConfig {
        let mut config = PubSubConfig::new("tests");
        config.topic = self.topic.clone();
        config.subscription = self.subscription.clone();
        config.emulator_host = Some(self.emulator_host.clone());
        config.create_missing = true;
        config.publish_timeout = Duration::from_secs(1);
        config
    }

    pub(crate) async fn store(&self) -> Store {
        let config = StoreConfig { timing: Some(self.timing.timing()), ..StoreConfig::default() };
        Store::connect(&self.database_url, fit(config)).await.unwrap()
    }

    pub(crate) fn queue(store: &Store, notifier: &Arc<dyn Notifier>) -> Queue {
        let publish_timeout = Duration::from_millis(500);
        let config = QueueConfig { publish_timeout, ..QueueConfig::default() };
        Queue::new(store.clone(), Arc::clone(notifier), config)
    }
}

/// A running child, and the lines that it prints.
pub(crate) struct Process {
    pub(crate) child: ChildProcess,
    lines: Mutex<mpsc::Receiver<String>>,
}

impl Process {
    /// Starts this binary again; `fault` is the point at which it kills itself.
    pub(crate) fn start(guard: &Guard, services: &Services, role: &Role, fault: Option<&str>) -> Self {
        let (sender, lines) = mpsc::channel(100_000);
        let parameters = serde_json::to_string(&(services, role)).unwrap();
        let mut launch = Launch::new(std::env::current_exe().unwrap())
            .arguments(["--exact", "support::child_processes::child", "--ignored", "--nocapture"])
            .environment(VARIABLE, parameters)
            .environment(durability().0, durability().1)
            .on_line(move |line| {
                if let Some(words) = line.strip_prefix(MARK) {
                    let _ = sender.try_send(words.to_owned());
                }
            });
        if let Some(point) = fault {
            launch = launch.environment("WAKEQ_FAULT", point);
        }
        Self { child: guard.start(launch).unwrap(), lines: Mutex::new(lines) }
    }

    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.child.pid()).unwrap()
    }

    /// The next line that begins with these words; lines before it are dropped.
    pub(crate) async fn says(&self, words: &str) -> String {
        let found = async {
            let mut lines = self.lines.lock().await;
            loop {
                match lines.recv().await {
                    Some(line) if line.starts_with(words) => return line,
                    Some(_) => {}
                    None => panic!("the child ended without {words:?}:\n{}", self.child.last_lines()),
                }
            }
        };
        let line = tokio::time::timeout(time_limit(), found).await;
        line.unwrap_or_else(|_| panic!("no {words:?} from the child:\n{}", self.child.last_lines()))
    }
}

#[test]
#[ignore = "a role in the crash tests, which start it themselves"]
fn child() {
    let parameters = std::env::var(VARIABLE).expect("only the crash tests start this");
    let (services, role): (Services, Role) = serde_json::from_str(&parameters).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(perform(services, role));
    // A handler that blocks its thread must not keep the process alive.
    runtime.shutdown_timeout(Duration::from_millis(100));
}

pub(crate) fn say(words: &str) {
    // The harness has begun a line of its own.
    println!("\n{MARK}{words}");
}

async fn perform(services: Services, role: Role) {
    let store = services.store().await;
    let notifier: Arc<dyn Notifier> = Arc::new(PubSub::connect(services.pubsub()).await.unwrap());
    match role {
        Role::Worker { capacity, shutdown_grace_ms } => {
            let shutdown_grace = Duration::from_millis(shutdown_grace_ms);
            let config = WorkerConfig { capacity, shutdown_grace, ..WorkerConfig::default() };
            work(store, notifier, &services, config).await;
        }
        Role::Emitter { count, work } => {
            emit(&Services::queue(&store, &notifier), count, &work).await;
            say(&format!("emitted {count}"));
        }
        Role::EmitterOn { name, objects, each, work } => {
            emit_on(&Services::queue(&store, &notifier), name, objects, each, &work).await;
            say(&format!("emitted {}", objects * each));
        }
        Role::EmitterWithin => {
            emit_within(&Services::queue(&store, &notifier), &services.database_url).await;
        }
        Role::EmitterToQueue { canvases, each, work } => {
            emit_to_queue(&Services::queue(&store, &notifier), canvases, each, &work).await;
            say(&format!("emitted {}", canvases * each));
        }
        Role::Accounts { epoch, snapshot_every } => {
            let queue = Services::queue(&store, &notifier);
            entities::own_accounts(store, queue, epoch, snapshot_every, say).await;
        }
        Role::GroupNode(work) => {
            crate::streams::groups::node::perform(&services, store, notifier, work).await
        }
        Role::Unpause => {
            let resumed =
                Admin::new(store, notifier).unpause(&scope(WORK), &wakeq::Actor::user("test")).await.unwrap();
            say(&format!("woken {}", resumed.woken));
        }
        Role::UnpauseCanvas => {
            let (admin, test) = (Admin::new(store, notifier), wakeq::Actor::user("test"));
            let resumed = admin.unpause_canvas(wakeq::CanvasId::DEFAULT, &test).await.unwrap();
            say(&format!("woken {}", resumed.woken));
        }
    }
}

/// Emits events, up to `together` at a time.
async fn emit_all(queue: &Queue, together: usize, events: impl Iterator<Item = Event>) {
    let mut emits = tokio::task::JoinSet::new();
    for event in events {
        while emits.len() >= together {
            emits.join_next().await.transpose().unwrap();
        }
        let queue = queue.clone();
        emits.spawn(async move {
            // Others emit on the same object: a caller that waits too long for it is refused, and
            // nothing was emitted.
            while let Err(error) = queue.emit(event.clone()).await {
                assert!(matches!(error, EmitError::ObjectBusy(_)), "{error}");
            }
        });
    }
    emits.join_all().await;
}

async fn emit(queue: &Queue, count: usize, work: &Work) {
    emit_all(queue, 20, (0..count).map(|_| Event::new(WORK, work).unwrap())).await;
}

async fn emit_to_queue(queue: &Queue, canvases: usize, each: usize, work: &Work) {
    let event = |at: usize| {
        let canvas = wakeq::CanvasId(uuid::Uuid::from_u128((at % canvases + 1) as u128));
        Event::new("queued", work).unwrap().canvas(canvas).only_to_queues()
    };
    emit_all(queue, 20, (0..canvases * each).map(event)).await;
}

async fn emit_on(queue: &Queue, name: u32, objects: usize, each: usize, work: &Work) {
    let event = |at: usize| {
        let id = EventId(uuid::Uuid::from_u64_pair(u64::from(name), at as u64));
        Event::new(WORK, work).unwrap().on(&format!("work:{}", at % objects)).unwrap().id(id)
    };
    emit_all(queue, 6, (0..objects * each).map(event)).await;
}

async fn emit_within(queue: &Queue, url: &str) {
    let mut connection = PgConnection::connect(url).await.unwrap();
    let mut transaction = connection.begin().await.unwrap();
    let event = || Event::new(WORK, &Work::default()).unwrap();
    let emitting = queue.emit_on_in(&mut transaction, "work:1", event(), vec![event()], Some("7"));
    let links: Vec<_> = emitting.await.unwrap().iter().filter_map(wakeq::Receipt::link).collect();
    say(&format!("linked {}", links[0].prev));
    std::future::pending::<()>().await;
}

async fn work(store: Store, notifier: Arc<dyn Notifier>, services: &Services, config: WorkerConfig) {
    let signal = wakeq::shutdown_signal().unwrap();
    let mut worker = QueueWorker::new(store, notifier, handlers(services).await, config).unwrap();
    let (reports, counters, stop) = (worker.reports(), worker.counters(), worker.stop_token());
    tokio::spawn(async move {
        signal.await;
        stop.cancel();
    });
    let mut trouble = worker.trouble();
    tokio::spawn(async move {
        if trouble.wait_for(Option::is_none).await.is_ok() {
            say("ready");
        }
    });
    let telling = tokio::spawn(tell(reports, counters));
    worker.run().await.unwrap();
    telling.await.unwrap();
}

/// Reports each run's end, `ended EVENT OUTCOME`, and the number of answered deliveries, `seen N`.
async fn tell(mut reports: mpsc::Receiver<RunReport>, counters: Arc<wakeq::workers::Counters>) {
    let mut acknowledged = 0;
    while let Some(report) = reports.recv().await {
        acknowledged += u64::from(report.verdict == Verdict::Acknowledged);
        if let Some(outcome) = report.trail.last() {
            say(&format!("ended {} {outcome}", report.notification.id));
        }
        say(&format!("seen {}", acknowledged + counters.duplicates()));
    }
}

async fn handlers(services: &Services) -> Handlers {
    let pool = sqlx::postgres::PgPoolOptions::new()
        .max_connections(6)
        .acquire_timeout(Duration::from_secs(10))
        .connect(&services.database_url)
        .await
        .unwrap();
    let soon = RetryPolicy { retries: 1_000, delay: Duration::from_millis(200), ..RetryPolicy::default() };
    let never = RetryPolicy { retries: 0, ..RetryPolicy::default() };
    let handler = move |pool: PgPool| move |event| run(pool.clone(), event);
    Handlers::new()
        .on(Route::new(WORK).retry(soon), handler(pool.clone()))
        .on(Route::new(WORK_ONCE).retry(never), handler(pool.clone()))
        .on(Route::new(WORK_OR_HALT).retry(never).halt_on_death(), handler(pool.clone()))
        .on_queue(Route::new(QUEUE).retry(soon), handler(pool.clone()))
        .on(Route::new(BOOK).retry(soon), {
            let pool = pool.clone();
            move |event| book(pool.clone(), event)
        })
        .on(Route::new(IMPORT).retry(soon), {
            let pool = pool.clone();
            move |event| import(pool.clone(), event)
        })
        .on(Route::new(LIMITED).retry(soon), {
            let pool = pool.clone();
            move |event| journal::keep(pool.clone(), event)
        })
        .on(PILL, move |event| swallow(pool.clone(), event))
}

/// Records its start, takes as long as the event says, records its end.
async fn run(pool: PgPool, event: Execution) -> HandlerResult {
    let work: Work = event.value()?;
    let is_brief = work.first_ms == 0 && work.later_ms == 0 && !work.first_fails;
    let is_first = started(&pool, &event, is_brief).await?;
    if is_brief {
        return Ok(());
    }
    let lasts_ms = if is_first { work.first_ms } else { work.later_ms };
    // Simulates the work of the handler.
    tokio::time::sleep(Duration::from_millis(lasts_ms)).await;
    sqlx::query("update runs set ended_at = clock_timestamp() where event = $1 and claimed_at = $2")
        .bind(event.id.0)
        .bind(event.claimed_at)
        .execute(&pool)
        .await?;
    if is_first && work.first_fails { Err(HandlerError::operational("as told")) } else { Ok(()) }
}

/// Records its start and kills the process.
async fn swallow(pool: PgPool, event: Execution) -> HandlerResult {
    started(&pool, &event, false).await?;
    std::process::abort()
}

/// Books, takes as long as the event says, and completes the event in the same transaction.
async fn book(pool: PgPool, event: Execution) -> HandlerResult {
    let work: Work = event.value()?;
    let mut transaction = pool.begin().await?;
    let booking = sqlx::query("insert into bookings (event) values ($1)").bind(event.id.0);
    booking.execute(&mut *transaction).await?;
    tokio::time::sleep(Duration::from_millis(work.first_ms)).await;
    event.complete_in(&mut transaction).await?;
    transaction.commit().await?;
    Ok(())
}

/// Books each page together with its checkpoint. The first claim dies after three pages, and the
/// second after one more whose transaction is not committed.
async fn import(pool: PgPool, event: Execution) -> HandlerResult {
    let first: i64 = event.last_checkpoint().await?.unwrap_or(0);
    for page in first..PAGES {
        let mut transaction = pool.begin().await?;
        let booking = sqlx::query("insert into bookings (event) values ($1)").bind(event.id.0);
        booking.execute(&mut *transaction).await?;
        event.checkpoint_in(&mut transaction, &(page + 1)).await?;
        if event.losses == 1 && page == 4 {
            std::process::abort();
        }
        transaction.commit().await?;
        if event.losses == 0 && page == 2 {
            std::process::abort();
        }
    }
    Ok(())
}

/// Records a run; returns whether it is the event's first.
async fn started(pool: &PgPool, event: &Execution, has_ended: bool) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar(
        "insert into runs (event, attempt, pid, enqueued_at, claimed_at, ended_at, object, link, prev)
         values ($1, $2, $3, $4, $5, case when $6 then clock_timestamp() end, $7, $8, $9)
         returning not exists (select from runs where event = $1)",
    )
    .bind(event.id.0)
    .bind(i32::try_from(event.attempt).unwrap_or(i32::MAX))
    .bind(i32::try_from(std::process::id()).unwrap_or(0))
    .bind(event.enqueued_at)
    .bind(event.claimed_at)
    .bind(has_ended)
    .bind(event.place.as_ref().map(|place| place.object.to_string()))
    .bind(event.place.as_ref().map(|place| place.link.id))
    .bind(event.place.as_ref().map(|place| place.link.prev))
    .fetch_one(pool)
    .await
}

/// Reads how many deliveries these workers have answered, until there are this many in all.
pub(crate) async fn all_seen(workers: &[Process], at_least: u64) {
    let mut lines = stream::select_all(workers.iter().map(|worker| {
        Box::pin(stream::unfold(worker, |worker| async move {
            let line = worker.lines.lock().await.recv().await?;
            Some(((worker.pid(), line), worker))
        }))
    }));
    let mut seen: HashMap<i32, u64> = HashMap::new();
    let counted = async {
        while seen.values().sum::<u64>() < at_least {
            let (pid, line) = lines.next().await.expect("a worker is alive");
            if let Some(count) = line.strip_prefix("seen ") {
                seen.insert(pid, count.parse().unwrap());
            }
        }
    };
    let done = tokio::time::timeout(TIMEOUT, counted).await;
    done.unwrap_or_else(|_| panic!("fewer deliveries than {at_least} were answered"));
}
