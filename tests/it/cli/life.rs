//! An event's life, as an operator follows and steers it from a terminal, with the Pub/Sub emulator
//! and a worker.

use std::sync::Arc;
use std::time::Duration;

use wakeq::machine::Outcome;
use wakeq::notify::{Notifier, PubSub};
use wakeq::{CanvasId, EventId, HandlerError, Handlers, RetryPolicy, Route, Timing};
use wakeq_testbed::TestDatabase;

use super::{CliOutput, Terminal};
use crate::support::brokers::Broker;
use crate::support::handlers::{Door, answering, recording};
use crate::support::{RunningWorker, connect, database, durability};

/// Topics are created and checked; missing ones are reported.
#[tokio::test]
async fn topics_are_created_and_checked() {
    let config = Broker::pubsub_config("cli-topics").await;
    let terminal = Terminal::without_variables().with_pubsub(&config);
    let (topic, subscription) = (
        format!("projects/{}/topics/{}", config.project, config.topic),
        format!("projects/{}/subscriptions/{}", config.project, config.subscription),
    );
    let report = |state: &str| format!("{state:13} {topic}\n{state:13} {subscription}\n");
    let missing = terminal.run(&["topics", "check"]).await;
    let expected = CliOutput {
        code: Some(1),
        out: report("missing"),
        err: "wakeq: something is missing: run `wakeq topics create`\n".into(),
    };
    assert_eq!(missing, expected);
    assert_eq!(terminal.prints(&["topics", "create"]).await, report("created"));
    assert_eq!(terminal.prints(&["topics", "create"]).await, report("already there"));
    assert_eq!(terminal.prints(&["topics", "check"]).await, report("already there"));
}

/// A queue that the command line and a worker of this test share.
struct Shared {
    database: TestDatabase,
    terminal: Terminal,
    notifier: Arc<dyn Notifier>,
}

impl Shared {
    async fn new(test: &str) -> Self {
        let mut config = Broker::pubsub_config(test).await;
        config.create_missing = true;
        let notifier = Arc::new(PubSub::connect(config.clone()).await.unwrap());
        let database = database().await;
        let terminal = Terminal::on(&database).with_pubsub(&config);
        terminal.raw(&["topics", "create"]).await;
        Self { database, terminal, notifier }
    }

    async fn worker(&self, handlers: Handlers) -> RunningWorker {
        let store = connect(self.database.url(), Timing::default()).await;
        RunningWorker::start(store, Arc::clone(&self.notifier), handlers, Default::default())
    }

    async fn emit(&self, arguments: &[&str]) -> EventId {
        let printed = self.terminal.raw(&[&["emit"], arguments].concat()).await;
        printed.trim_end().parse().unwrap()
    }
}

/// EV2-42, CARD-06, EV2-12: emitted, held, woken, failed, dead, redriven; each step from a
/// terminal.
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn an_operator_follows_an_event_through_its_life() {
    let shared = Shared::new("cli-life").await;
    let terminal = &shared.terminal;
    let stopped = terminal.run(&["pause", "greet"]).await;
    let hint = "it has no events now; if that surprises you, look for the right name in `wakeq stats`\n";
    assert_eq!(stopped.err, hint);
    let id = shared.emit(&["greet", "\"Ada\""]).await;
    let (handler, mut seen) = answering(|event| match event.value::<String>()?.as_str() {
        "Ada" if event.enqueued_at == event.due_at => Err(HandlerError::operational("no room\non the disk")),
        _ => Ok(()),
    });
    let once = RetryPolicy { retries: 0, ..RetryPolicy::default() };
    let mut worker = shared.worker(Handlers::new().on(Route::new("greet").retry(once), handler)).await;
    worker.until(id, Outcome::RulePaused).await;
    let name = id.to_string();
    let expected = "event     <id>\n\
                    handler   WORKER/greet/_\n\
                    emitted   <time>\n\
                    state     paused since <time>  (RulePaused)\n\
                    rule      pause by cli:ada: no reason given\n\
                    attempts  0 failed, 0 lost with their workers\n\
                    next      is woken when the handler is unpaused\n";
    assert_eq!(terminal.prints(&["explain", &name]).await, expected);
    terminal.raw(&["block", "greet"]).await;
    let expected = "WORKER/greet: pause lifted, 0 waiting events woken\n\
                    WORKER/greet is still blocked: only `wakeq unblock` lifts that\n";
    assert_eq!(terminal.prints(&["unpause", "greet"]).await, expected);
    let expected = "WORKER/greet: block lifted, 1 waiting event woken\n";
    assert_eq!(terminal.prints(&["unblock", "greet"]).await, expected);
    assert_eq!(terminal.prints(&["unblock", "greet"]).await, "WORKER/greet: there was no block\n");
    worker.until(id, Outcome::Deleted).await;
    assert_eq!(seen.next().await.id, id);
    let expected = "event     <id>\n\
                    handler   WORKER/greet/_\n\
                    emitted   <time>\n\
                    state     dead since <time>  (retries)\n\
                    attempts  0 retries, 0 lost with their workers\n\
                    error     no room\n\x20         on the disk\n\
                    next      is kept for a while; a redrive brings it back (`wakeq dead redrive --id <id>`)\n";
    let shown = terminal.prints(&["explain", &name]).await;
    let (before, attempt) = shown.split_once("attempt   1 dead after ").expect("how it was attempted");
    let (attempt, after) = attempt.split_once("next").unwrap();
    assert_eq!(format!("{before}next{after}"), expected);
    assert!(attempt.ends_with(": no room\n          on the disk\n"), "{attempt}");
    let head = format!("{:20}  {:36}  {:14}  {:7}  ERROR\n", "DIED", "EVENT", "HANDLER", "CAUSE");
    let line = format!("<time>  <id>  {:14}  retries  no room\n", "WORKER/greet/_");
    assert_eq!(terminal.prints(&["dead", "list", "--handler", "greet"]).await, format!("{head}{line}"));
    let redrive = ["dead", "redrive", "--id", &name];
    let dry = [&redrive[..], &["--dry-run"]].concat();
    assert_eq!(terminal.prints(&dry).await, "1 dead event would be brought back\n");
    assert_eq!(terminal.prints(&redrive).await, "1 dead event brought back\n");
    worker.until(id, Outcome::Deleted).await;
    assert_eq!(terminal.prints(&["stats"]).await, "no events, no rules, and no targets\n");
    worker.stop().await;
}

/// EV2-34, EV2-09: delayed events are shown, run early, cancelled and purged.
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn an_operator_handles_waiting_events() {
    let shared = Shared::new("cli-waiting").await;
    let terminal = &shared.terminal;
    let chosen = EventId::new().to_string();
    let emit = ["emit", "greet", "{\"to\":\"Ada\"}", "--after", "1h", "--id", &chosen];
    let own = EventId::chosen(wakeq::CanvasId::DEFAULT, chosen.parse().unwrap());
    assert_eq!(terminal.raw(&emit).await, format!("{own}\n"));
    assert_eq!(terminal.raw(&emit).await, format!("{own}  (emitted before: nothing added)\n"));
    let cancelled = shared.emit(&["greet", "--after", "2days"]).await.to_string();
    for _ in 0..3 {
        shared.emit(&["REPORTS/weekly", "--modifier", "big", "--at", "2999-01-31T08:00:00Z"]).await;
    }
    let expected = "event     <id>\n\
                    handler   WORKER/greet/_\n\
                    emitted   <time>\n\
                    state     delayed since <time>  (DelayNotYet)\n\
                    until     <time>\n\
                    attempts  0 failed, 0 lost with their workers\n\
                    next      runs when it is due; woken again at <time>\n";
    assert_eq!(terminal.prints(&["explain", &chosen]).await, expected);
    assert_eq!(terminal.prints(&["cancel", &cancelled]).await, "<id> cancelled\n");
    let purge = ["purge", "REPORTS/weekly", "--dry-run"];
    let counted = terminal.raw(&purge).await;
    let before = counted.strip_prefix("REPORTS/weekly: 3 events would be deleted (--before ");
    let before = before.unwrap_or_else(|| panic!("{counted}")).trim_end().trim_end_matches(')');
    shared.emit(&["REPORTS/weekly", "--at", "2999-01-31T08:00:00Z"]).await;
    let purge = [&purge[..2], &["--before", before]].concat();
    let expected = "REPORTS/weekly: 3 events deleted\n";
    assert_eq!(terminal.prints(&purge).await, expected, "those that were counted");
    assert_eq!(terminal.prints(&purge[..2]).await, "REPORTS/weekly: 1 event deleted\n");
    let (handler, mut door) = Door::new();
    let mut worker = shared.worker(Handlers::new().on("greet", handler)).await;
    assert_eq!(terminal.prints(&["run-now", &chosen]).await, "<id> is due now\n");
    assert_eq!(door.arrived.next().await.value::<serde_json::Value>().unwrap()["to"], "Ada");
    let expected = "HANDLER       WAITING  DELAYED  PAUSED  RUNNING  DEAD  RULES\n\
                    WORKER/greet        0        0       0        1     0\n";
    assert_eq!(terminal.prints(&["stats"]).await, expected);
    door.open(1);
    worker.until(own, Outcome::Deleted).await;
    let expected = "event     <id>\nemitted   <time>\nstate     gone\nnext      nothing: it completed, or was cancelled or purged\n";
    assert_eq!(terminal.prints(&["explain", &chosen]).await, expected);
    worker.stop().await;
}

/// EV2-15: `wake --all` publishes for every row.
#[tokio::test]
async fn wake_replaces_lost_messages() {
    let shared = Shared::new("cli-wake").await;
    let database = shared.database.url();
    let silent = Terminal::without_variables()
        .set("DATABASE_URL", database)
        .set(durability().0, durability().1)
        .set("PUBSUB_EMULATOR_HOST", "127.0.0.1:1")
        .set("NO_COLOR", "1");
    let emitted = silent.run(&["emit", "greet"]).await;
    assert_eq!(emitted.code, Some(0), "{}", emitted.err);
    assert!(emitted.err.contains("notifications not published"), "{}", emitted.err);
    let id: EventId = emitted.out.trim_end().parse().unwrap();
    let expected = "0 overdue events woken, 0 resume jobs continued, 0 events of crons emitted\n";
    assert_eq!(shared.terminal.prints(&["wake"]).await, expected, "its promise still stands");
    let expected = "1 overdue event woken, 0 resume jobs continued, 0 events of crons emitted\n";
    assert_eq!(shared.terminal.prints(&["wake", "--all"]).await, expected);
    let (handler, mut seen) = recording();
    let mut worker = shared.worker(Handlers::new().on("greet", handler)).await;
    assert_eq!(seen.next().await.id, id);
    worker.until(id, Outcome::Deleted).await;
    tokio::time::timeout(Duration::from_secs(40), worker.stop()).await.unwrap();
}

/// Commands adopt the deployment's durations, are refused with others, and can change them.
#[tokio::test]
async fn durations_are_the_deployments() {
    let database = database().await;
    let terminal = Terminal::on(&database);
    let lease = |text: &str| format!("lease                  {text}\n");
    assert!(terminal.prints(&["settings", "show"]).await.starts_with(&lease("1m")));
    let timing = Timing { lease: Duration::from_secs(30), ..Timing::default() };
    connect(database.url(), timing).await;
    assert!(terminal.prints(&["settings", "show"]).await.starts_with(&lease("30s")));
    let refused = terminal.complains(1, &["stats", "--lease", "60s"]).await;
    assert!(refused.starts_with("wakeq: the duration `lease` is 1m here, and 30s in"), "{refused}");
    terminal.prints(&["stats", "--lease", "30s"]).await;
    assert!(terminal.prints(&["settings", "set", "--lease", "2m"]).await.starts_with(&lease("2m")));
    assert!(terminal.prints(&["settings", "show"]).await.starts_with(&lease("2m")));
    assert!(terminal.complains(2, &["settings", "set", "--lease", "1ms"]).await.contains("`lease` is 1ms"));
}

/// They do not change under a process that is connected, nor under a claim that it left, unless
/// they are forced to.
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn durations_do_not_change_under_running_processes() {
    let database = database().await;
    let terminal = Terminal::on(&database);
    let store = connect(database.url(), Timing::default()).await;
    let set = |lease| ["settings", "set", "--lease", lease];
    let refused = terminal.complains(1, &set("5s")).await;
    assert!(refused.starts_with("wakeq: processes of wakeq are connected ("), "{refused}");
    assert!(refused.contains("--force"), "{refused}");
    assert!(terminal.prints(&["settings", "show"]).await.starts_with("lease                  1m\n"));
    terminal.prints(&[&set("50s")[..], &["--force"]].concat()).await;
    store.close().await;
    terminal.prints(&set("55s")).await;
    let pool = sqlx::PgPool::connect(database.url()).await.unwrap();
    for canvas in [CanvasId::DEFAULT, CanvasId(uuid::Uuid::from_u128(7))] {
        let event =
            "insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value, claims, locked_at)
                     values (gen_random_uuid(), $1, 'WORKER', 'greet', '_', '1', 1, clock_timestamp())";
        sqlx::query(event).bind(canvas.0).execute(&pool).await.unwrap();
        let refused = terminal.complains(1, &set("5s")).await;
        assert!(refused.starts_with("wakeq: events are claimed under leases that stand"), "{refused}");
        sqlx::query("delete from wakeq.events_v2").execute(&pool).await.unwrap();
    }
    terminal.prints(&set("5s")).await;
    pool.close().await;
}
