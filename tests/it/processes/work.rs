//! The long-running processes: `wakeq work`, as it is and with handlers of a program's own, and how
//! they end.

use std::collections::HashSet;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::Duration;

use sqlx::PgPool;
use tokio::sync::mpsc;
use wakeq::log::{AppendCondition, EventSource, Log, LogEvent, NewLogEvent, StreamId};
use wakeq::notify::{NoNotifier, PubSubConfig, create_topics};
use wakeq::{CanvasId, Execution, HandlerResult, Handlers};
use wakeq_streams::{
    BrokerBacking, BrokerConfig, Consumer, ConsumerConfig, ErrorStrategy, EventBroker, EventProcessor,
};
use wakeq_testbed::TestDatabase;
use wakeq_testbed::{ChildProcess, Guard, Launch};

use crate::cli::Terminal;
use crate::support::brokers::Broker;
use crate::support::receiver::Receiver;
use crate::support::{SECRET_KEY, Stage, Statements, TIMEOUT, database, durability, quick, wait_while};

/// Tells the child below which arguments its program was given.
const ARGUMENTS: &str = "WAKEQ_TEST_ARGUMENTS";

/// What the handler of the program below waits for.
pub(crate) const LOCK: &str = "select pg_advisory_xact_lock(4711)";

/// Variables of a process, and their values.
type Settings<'a> = &'a [(&'a str, &'a str)];

/// A process, and the lines that it prints.
pub(crate) struct Process {
    pub(crate) child: ChildProcess,
    lines: mpsc::Receiver<String>,
    _guard: Guard,
}

impl Process {
    /// The stock binary, which has no handlers of its own.
    pub(crate) fn stock(command: &str, url: &str, pubsub: Option<&PubSubConfig>, more: Settings) -> Self {
        let launch = Launch::new(env!("CARGO_BIN_EXE_wakeq")).argument(command);
        Self::start(launch, url, pubsub, more)
    }

    /// The same with several arguments.
    pub(crate) fn stock_with(
        args: &[&str],
        url: &str,
        pubsub: Option<&PubSubConfig>,
        more: Settings,
    ) -> Self {
        let launch = Launch::new(env!("CARGO_BIN_EXE_wakeq")).arguments(args);
        Self::start(launch, url, pubsub, more)
    }

    /// A program with handlers of its own.
    pub(crate) fn own(command: &str, url: &str, pubsub: Option<&PubSubConfig>, more: Settings) -> Self {
        let launch = Launch::new(std::env::current_exe().unwrap())
            .arguments(["--exact", "processes::work::own_program", "--ignored", "--nocapture"])
            .environment(ARGUMENTS, command);
        Self::start(launch, url, pubsub, more)
    }

    fn start(launch: Launch, url: &str, pubsub: Option<&PubSubConfig>, more: Settings) -> Self {
        let nowhere =
            PubSubConfig { emulator_host: Some("127.0.0.1:1".into()), ..PubSubConfig::new("tests") };
        let pubsub = pubsub.unwrap_or(&nowhere);
        let (sender, lines) = mpsc::channel(10_000);
        let mut launch = launch
            .environment("DATABASE_URL", url)
            .environment("PUBSUB_EMULATOR_HOST", pubsub.emulator_host.as_ref().unwrap())
            .environment("GOOGLE_CLOUD_PROJECT", &pubsub.project)
            .environment("WAKEQ_TOPIC", &pubsub.topic)
            .environment("WAKEQ_SUBSCRIPTION", &pubsub.subscription)
            .environment(durability().0, durability().1)
            .environment(SECRET_KEY.0, SECRET_KEY.1)
            .environment("NO_COLOR", "1")
            .environment("RUST_LOG", "info")
            .on_line(move |line| drop(sender.try_send(line.to_owned())));
        for (name, value) in more {
            launch = launch.environment(name, value);
        }
        let guard = Guard::new(None).unwrap();
        Self { child: guard.start(launch).unwrap(), lines, _guard: guard }
    }

    /// The next line that contains these words.
    pub(crate) async fn says(&mut self, words: &str) -> String {
        let found = async {
            loop {
                match self.lines.recv().await {
                    Some(line) if line.contains(words) => return line,
                    Some(_) => {}
                    None => panic!("it ended without {words:?}:\n{}", self.child.last_lines()),
                }
            }
        };
        let line = tokio::time::timeout(TIMEOUT, found).await;
        line.unwrap_or_else(|_| panic!("it does not say {words:?}:\n{}", self.child.last_lines()))
    }

    /// Its exit code, and the number of further lines that contain these words.
    pub(crate) async fn ends(mut self, words: &str) -> (Option<i32>, usize) {
        let status = tokio::time::timeout(TIMEOUT, self.child.ended()).await.expect("it does not end");
        let mut count = 0;
        while let Some(line) = self.lines.recv().await {
            count += usize::from(line.contains(words));
        }
        (status.code(), count)
    }

    /// Sends it a signal.
    fn signal(&self, name: &str) {
        assert!(Command::new("kill").args([name, &self.child.pid().to_string()]).status().unwrap().success());
    }

    pub(crate) async fn stop(self) -> Option<i32> {
        self.child.stop(TIMEOUT).await.unwrap();
        self.ends("").await.0
    }
}

/// The program of a user of wakeq.
#[test]
#[ignore = "a role in the tests of this file, which start it themselves"]
fn own_program() -> ExitCode {
    let arguments = std::env::var(ARGUMENTS).expect("only the tests of this file start this");
    let arguments = ["my-worker"].into_iter().chain(arguments.split(' ')).collect::<Vec<_>>();
    wakeq_service::run_from(arguments, async |parts: wakeq_service::cli::Parts| {
        consume(&parts).await?;
        let pool = PgPool::connect(&std::env::var("DATABASE_URL")?).await?;
        Ok(Handlers::new().on("slow", move |event| slow(pool.clone(), event)))
    })
}

/// Consumers beside the handlers.
async fn consume(parts: &wakeq_service::cli::Parts) -> Result<(), wakeq_service::cli::BoxError> {
    let log = Arc::new(Log::with_signals(parts.store.clone(), parts.queue.signals().clone()));
    let store = parts.store.clone();
    let broker = EventBroker::single(BrokerBacking::Postgres(store.clone()), BrokerConfig::default())?;
    let skips = ConsumerConfig { on_error: ErrorStrategy::skip(), ..ConsumerConfig::default() };
    for (group, processor, config) in [
        ("printed", Arc::new(PrintingProcessor) as Arc<dyn EventProcessor>, ConsumerConfig::default()),
        ("choosy", Arc::new(FailingProcessor), skips),
    ] {
        let (group, source) = (group.parse()?, EventSource::category("companies")?);
        let consumer = Consumer::new(group, source, log.clone(), Arc::new(store.clone()), processor, config)?;
        broker.register(Arc::new(consumer)).await?;
    }
    parts.run_broker(broker);
    let stop = parts.stop.clone();
    parts.run("a part of its own", async move {
        stop.cancelled().await;
        println!("\nits own part ends");
        Ok(())
    });
    Ok(())
}

struct PrintingProcessor;

#[async_trait::async_trait]
impl EventProcessor for PrintingProcessor {
    async fn handle_event(&self, event: &LogEvent) -> Result<(), wakeq_service::cli::BoxError> {
        println!("\nconsumed {}", event.id);
        Ok(())
    }
}

/// Fails on events that say `broken`, which are then given up.
struct FailingProcessor;

#[async_trait::async_trait]
impl EventProcessor for FailingProcessor {
    async fn handle_event(&self, event: &LogEvent) -> Result<(), wakeq_service::cli::BoxError> {
        if event.payload == "\"broken\"" { Err("it is broken".into()) } else { Ok(()) }
    }
}

/// Prints that it has begun, and ends when the test releases its lock.
async fn slow(pool: PgPool, event: Execution) -> HandlerResult {
    println!("\nbegun {}", event.id);
    sqlx::query(LOCK).execute(&pool).await?;
    Ok(())
}

const NO_HANDLERS: &str = "this program has no handlers, so it receives no notifications";

/// An event that nobody was notified of.
const SILENT: &str = "insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value)
    values (gen_random_uuid(), gen_random_uuid(), 'WORKER', 'h', '_', '1') returning id";

/// Without handlers and targets, a process keeps the promises of the rows and leaves every
/// notification to processes that have some.
#[tokio::test]
async fn a_process_without_handlers_only_wakes() {
    let broker = Broker::pubsub("processes-stock").await;
    let config = broker.config().clone();
    create_topics(&config).await.unwrap();
    let stage = Stage::with(broker.notifier.clone(), quick()).await;
    let settings = [("WAKEQ_PROBE_PERIOD", "1s"), NO_TARGETS];
    let mut process = Process::stock("work", stage.database.url(), Some(&config), &settings);
    process.says(NO_HANDLERS).await;
    let mut subscription = broker.notifier.subscribe(100).await.unwrap();
    let mut expected: HashSet<_> = stage.emit_many("h", 20).await.into_iter().collect();
    expected.insert(wakeq::EventId(stage.pool.value(SILENT).await));
    while !expected.is_empty() {
        let delivery = tokio::time::timeout(TIMEOUT, subscription.next()).await.expect("nothing more comes");
        let delivery = delivery.unwrap();
        expected.remove(&delivery.notification.as_ref().unwrap().id);
        delivery.acknowledge();
    }
    let noted = stage.count("select count(*) from wakeq.unknown_handlers").await;
    assert_eq!((noted, process.stop().await), (0, Some(0)));
}

/// After a worker is killed in the middle of a delivery, another one repeats it; the id is the
/// same.
// Shows: TARGET-10
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn a_delivery_whose_worker_is_killed_is_made_again() {
    let stage = Stage::with(Arc::new(NoNotifier), quick()).await;
    let mut receiver = Receiver::start().await;
    let terminal = Terminal::on(&stage.database).set("WAKEQ_NOTIFIER", "local");
    let put =
        ["handlers", "put", "greet", &receiver.url, "--deliver-to", "*=127.0.0.1:1-65535", "--deliver-http"];
    let printed = terminal.run(&put).await;
    assert_eq!(printed.code, Some(0), "{}", printed.err);
    let secret = printed.out.lines().find_map(|line| line.strip_prefix("secret    ")).unwrap().to_owned();
    let id = stage.emit("greet").await.to_string();
    let start = || {
        let variables = [
            ("WAKEQ_NOTIFIER", "local"),
            ("WAKEQ_DELIVER_TO", "*=127.0.0.1:1-65535"),
            ("WAKEQ_DELIVER_HTTP", "1"),
        ];
        Process::stock("work", stage.database.url(), None, &variables)
    };
    let first = start();
    let arrived = receiver.next().await;
    assert_eq!(arrived.header("webhook-id"), id);
    first.signal("-KILL");
    assert_eq!(first.ends("").await.0, None, "it died of the signal");
    drop(arrived);
    let second = start();
    let again = receiver.next().await;
    assert_eq!((again.header("webhook-id"), again.signed_by(&secret)), (id.as_str(), (1, Some(0))));
    assert_eq!(again.header("wakeq-attempt"), "1", "a killed process is no failed attempt");
    again.answer("200 OK", &[]);
    wait_while!(stage.rows().await > 0, "it did not complete");
    assert_eq!(second.stop().await, Some(0));
}

/// A worker with handlers of its own shuts down cleanly on SIGTERM: running handlers finish, and
/// the exit code is 0.
#[tokio::test]
async fn an_own_program_works_and_ends_in_good_order() {
    let stage = Stage::with(Arc::new(NoNotifier), quick()).await;
    let held = stage.hold(LOCK).await;
    let id = stage.emit("slow").await;
    let mut process = Process::own("work", stage.database.url(), None, &[("WAKEQ_NOTIFIER", "local")]);
    process.says(&format!("begun {id}")).await;
    process.signal("-TERM");
    process.says("shutting down").await;
    assert_eq!(stage.rows().await, 1, "its handler runs on");
    held.rollback().await.unwrap();
    assert_eq!(process.ends("").await.0, Some(0));
    assert_eq!(stage.rows().await, 0, "it was finished");
}

/// What a program adds to the process lives and ends with it: consumers, whose last position is
/// written, and anything else.
#[tokio::test]
async fn consumers_live_beside_handlers() {
    let stage = Stage::memory().await.0;
    let log = Log::new(stage.store.clone(), stage.notifier.as_ref());
    let stream = StreamId::new(CanvasId::DEFAULT, "companies", "company-1").unwrap();
    let event = NewLogEvent::new("changed", &1).unwrap();
    let appended = log.append(&stream, vec![event], AppendCondition::None).await.unwrap();
    let mut process = Process::own("work", stage.database.url(), None, &[("WAKEQ_NOTIFIER", "local")]);
    process.says("consumed ").await;
    process.signal("-TERM");
    assert_eq!(process.ends("its own part ends").await, (Some(0), 1));
    let position = "select position from wakeq.consumer_positions where consumer_group = 'printed'";
    assert_eq!(stage.count(position).await, appended[0].seq);
    let held = stage.count("select count(*) from wakeq.single_groups").await;
    assert_eq!(held, 0, "the next one begins at once");
}

/// A process that can't start reports why, and ends with an error; in Cloud Logging's format, if
/// that is configured.
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn a_process_that_cannot_begin_says_why() {
    let empty = TestDatabase::create(b"empty", async |_| Ok::<_, std::io::Error>(())).await.unwrap();
    for command in ["work", "all"] {
        let mut process = Process::stock(command, empty.url(), None, &[("WAKEQ_LOG_FORMAT", "json")]);
        let line = process.says("the process exits").await;
        let entry: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(entry["severity"], "ERROR", "{line}");
        assert!(entry["message"].as_str().unwrap().contains("run `wakeq migrate`"), "{line}");
        assert_eq!(process.ends("").await.0, Some(1));
    }
    let mut process =
        Process::own("work", "postgres://nobody@127.0.0.1:1/nothing", None, &[("K_SERVICE", "x")]);
    let line = process.says("Postgres is not reachable").await;
    assert!(line.starts_with('{') && line.contains("\"severity\":\"ERROR\""), "{line}");
    assert_ne!(process.ends("").await.0, Some(0));
}

/// Without handlers it says so once, and a broker that is down does not end it.
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn a_process_outlives_its_broker() {
    let database = database().await;
    let settings = [NO_TARGETS, ("WAKEQ_PROBE_PERIOD", "1s"), ("WAKEQ_GRACE", "1s")];
    let mut process = Process::stock("work", database.url(), None, &settings);
    process.says(NO_HANDLERS).await;
    PgPool::connect(database.url()).await.unwrap().run(SILENT).await;
    process.says("the minute's pass failed").await;
    process.says("the minute's pass failed").await;
    process.child.stop(Duration::from_secs(20)).await.unwrap();
    assert_eq!(process.ends(NO_HANDLERS).await, (Some(0), 0));
}

/// `serve` and `all` answer on their port, which the container's health check probes, until
/// SIGTERM.
// Shows: CARD-08
#[tokio::test]
async fn a_serving_process_is_healthy_until_it_ends() {
    let database = database().await;
    for command in ["serve", "all"] {
        let mut process = Process::stock(command, database.url(), None, &[("PORT", "0")]);
        let line = process.says("serving the API").await;
        let port = line.trim().rsplit(':').next().unwrap().to_owned();
        // Asked as an orchestrator asks: a busy machine may exceed the patience of one command.
        wait_while!(health(&port).await != Some(0), "{command} does not get healthy: {line}");
        assert_eq!(process.stop().await, Some(0));
        assert_eq!(health(&port).await, Some(1));
    }
}

/// A worker without work: it only keeps the promises of the rows.
const NO_TARGETS: (&str, &str) = ("WAKEQ_NO_TARGETS", "1");

const DEAD_FOR_40_DAYS: &str =
    "insert into wakeq.dead_events
         (id, canvas_id, module, name, modifier, value, retries, enqueued_at, claims, losses, cause, died_at)
     values (gen_random_uuid(), gen_random_uuid(), 'm', 'n', '_', '1', 0, now(), 1, 0, 'poison', now() - interval '40 days')";

/// Only a process that was configured with retention times deletes old rows: the server was not,
/// whatever a worker's defaults are.
#[tokio::test]
async fn only_processes_with_a_retention_delete_expired_rows() {
    let database = database().await;
    let pool = PgPool::connect(database.url()).await.unwrap();
    sqlx::query(DEAD_FOR_40_DAYS).execute(&pool).await.unwrap();
    let steps = [
        ("serve", "serving the API", vec![("PORT", "0")], 1_i64),
        ("work", NO_HANDLERS, vec![NO_TARGETS, ("WAKEQ_KEEP_DEAD_EVENTS", "50days")], 1),
        ("work", NO_HANDLERS, vec![NO_TARGETS], 0),
    ];
    for (step, (command, begun, settings, left)) in steps.into_iter().enumerate() {
        sqlx::query("update wakeq.chores set next_at = now()").execute(&pool).await.unwrap();
        let mut process = Process::stock(command, database.url(), None, &settings);
        process.says(begun).await;
        let seen = "select passes, (select count(*) from wakeq.dead_events)
                      from wakeq.chores where name = 'minute'";
        let seen = async || -> (i64, i64) { pool.row(seen).await };
        wait_while!(seen().await.0 <= step as i64 || seen().await.1 > left, "it makes the minute's pass");
        assert_eq!(process.stop().await, Some(0));
        assert_eq!(seen().await.1, left, "{command} {settings:?}");
    }
    let refused = Process::stock("work", database.url(), None, &[("WAKEQ_KEEP_IDS", "5m")]);
    assert_eq!(refused.ends("").await.0, Some(2));
}

/// Neither rows that can't be deleted nor a large number of rows to delete hold up the jobs of the
/// pass, or each other; the rest of a large number is left to the next pass.
#[tokio::test]
async fn expiry_holds_up_no_jobs() {
    let database = database().await;
    let pool = PgPool::connect(database.url()).await.unwrap();
    let job = "insert into wakeq.resume_jobs (kind, canvas_id, module, name)
               values ('lifted', gen_random_uuid(), 'WORKER', 'h')";
    let many = "insert into wakeq.emitted_ids (id, canvas_id, due_at)
                select gen_random_uuid(), gen_random_uuid(), now() - interval '8 days' from generate_series(1, 100500)";
    for (statement, rows) in [(job, 1), (many, 100_500), (DEAD_FOR_40_DAYS, 1)] {
        assert_eq!(pool.run(statement).await, rows);
    }
    let left = "select (select count(*) from wakeq.resume_jobs), (select count(*) from wakeq.emitted_ids),
                       (select count(*) from wakeq.dead_events), next_at <= now()
                  from wakeq.chores where name = 'expire'";
    let left = async || -> (i64, i64, i64, bool) { pool.row(left).await };
    pool.run("alter table wakeq.idempotency_keys rename to away").await;
    let mut process = Process::stock("work", database.url(), None, &[NO_TARGETS]);
    process.says("expired data was not deleted").await;
    wait_while!(left().await != (0, 500, 0, true), "something was held up");
    assert_eq!(process.stop().await, Some(0));
    pool.run("alter table wakeq.away rename to idempotency_keys").await;
    pool.run("update wakeq.chores set next_at = now() where name = 'minute'").await;
    let mut process = Process::stock("work", database.url(), None, &[NO_TARGETS]);
    process.says(NO_HANDLERS).await;
    wait_while!(left().await != (0, 0, 0, false), "the next pass goes on");
    assert_eq!(process.stop().await, Some(0));
}

async fn health(port: &str) -> Option<i32> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wakeq"));
    command.args(["health", "--port", port]).env_clear();
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    // Shown with the test if it fails.
    println!("health: {}", String::from_utf8_lossy(&output.stderr));
    output.status.code()
}
