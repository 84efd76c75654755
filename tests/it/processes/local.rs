//! Without Pub/Sub: `--notifier local`, one process that wakes itself, and others beside it.

use std::collections::HashSet;
use std::sync::Arc;

use serde_json::{Value, json};
use sqlx::Connection;
use wakeq::notify::NoNotifier;
use wakeq::{CanvasId, Event};
use wakeq_service::access::{Access, AccessConfig, Reach, Scope};
use wakeq_testbed::TestDatabase;

use super::work::{LOCK, Process};
use crate::cli::Terminal;
use crate::database::idle::until_silent;
use crate::support::service::make_key;
use crate::support::{Stage, Statements, TIMEOUT, connect, database, quick};

/// No broker is configured, so any call to one would fail.
const LOCAL: [(&str, &str); 8] = [
    ("WAKEQ_NOTIFIER", "local"),
    ("PORT", "0"),
    ("RUST_LOG", "info,wakeq=debug"),
    ("WAKEQ_LEASE", "2s"),
    ("WAKEQ_HORIZON", "60s"),
    ("WAKEQ_GRACE", "1s"),
    ("WAKEQ_PROBE_PERIOD", "1s"),
    ("WAKEQ_UNKNOWN_HANDLER_WAIT", "2s"),
];

/// What a client of a process needs.
struct Client {
    key: String,
    base: String,
    http: reqwest::Client,
}

impl Client {
    async fn of(process: &mut Process, database: &TestDatabase) -> Self {
        let line = process.says("serving the API").await;
        let port = line.trim().rsplit(':').next().unwrap();
        let access = Access::new(connect(database.url(), quick()).await, AccessConfig::default()).unwrap();
        let key = make_key(&access, port, Reach::Canvas(CanvasId::DEFAULT), &Scope::ALL).await;
        let base = format!("http://127.0.0.1:{port}/v1/canvases/{}", CanvasId::DEFAULT);
        let http = reqwest::Client::builder().no_proxy().timeout(TIMEOUT).build().unwrap();
        Self { key, base, http }
    }

    /// Emits for `slow`; returns the event's id.
    async fn emit(&self, more: Value) -> String {
        let mut event = json!({"name": "slow", "value": 1});
        event.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let request = self.http.post(format!("{}/events", self.base)).bearer_auth(&self.key).json(&event);
        let answer = request.send().await.unwrap();
        assert_eq!(answer.status(), 202);
        let answer: Value = answer.json().await.unwrap();
        answer["id"].as_str().unwrap().to_owned()
    }
}

/// Waits until this many runs have deleted their events.
async fn deleted(process: &mut Process, count: usize) {
    for _ in 0..count {
        process.says("ExecutesToCompletion Deleted").await;
    }
}

/// One process and Postgres are a whole queue. An event sent over HTTP runs at once; events that
/// waited for capacity or their time, or were running, when the process was killed, run in the next
/// one.
// Shows: LOCAL-01
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn one_process_is_a_whole_queue_and_forgets_nothing() {
    let stage = Stage::with(Arc::new(NoNotifier), quick()).await;
    let mut process = Process::own("all --capacity 2", stage.database.url(), None, &LOCAL);
    let client = Client::of(&mut process, &stage.database).await;
    let first = client.emit(json!({})).await;
    process.says(&format!("begun {first}")).await;
    deleted(&mut process, 1).await;

    // Keeps the handlers from ending.
    let held = stage.hold(LOCK).await;
    let mut waiting = HashSet::new();
    for _ in 0..20 {
        waiting.insert(client.emit(json!({})).await);
    }
    waiting.insert(client.emit(json!({"delay_s": 3})).await);
    process.says("begun ").await;
    process.says("begun ").await;
    process.child.kill_9().await.unwrap();
    process.ends("").await;
    assert_eq!(stage.rows().await, 21);
    held.rollback().await.unwrap();

    let mut process = Process::own("all --capacity 2", stage.database.url(), None, &LOCAL);
    while !waiting.is_empty() {
        let line = process.says("begun ").await;
        assert!(waiting.remove(line.trim().rsplit(' ').next().unwrap()), "{line}");
    }
    assert_eq!(process.stop().await, Some(0));
    assert_eq!(stage.rows().await, 0);
}

/// A process that lets the database sleep sends nothing while it is idle, neither its API nor its
/// worker, and takes the next request as before.
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn one_process_lets_the_database_sleep() {
    let stage = Stage::with(Arc::new(NoNotifier), quick()).await;
    let mut observer = sqlx::PgConnection::connect(stage.database.url()).await.unwrap();
    let sleeping = [LOCAL.as_slice(), &[("WAKEQ_LET_DATABASE_SLEEP", "1")]].concat();
    let mut process = Process::own("all", stage.database.url(), None, &sleeping);
    let client = Client::of(&mut process, &stage.database).await;
    for _ in 0..2 {
        until_silent(&mut observer).await;
        let id = client.emit(json!({})).await;
        process.says(&format!("begun {id}")).await;
        deleted(&mut process, 1).await;
    }
    assert_eq!(process.stop().await, Some(0));
}

/// Another process wakes no worker. Events that it takes in, or whose rule it lifts, are found by
/// their promises, which it leaves alone: the server, a command, and a program that only inserts
/// the row.
// Shows: LOCAL-02
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn events_of_other_processes_are_found_by_their_promises() {
    let stage = Stage::with(Arc::new(NoNotifier), quick()).await;
    let mut server = Process::stock("serve", stage.database.url(), None, &LOCAL);
    let client = Client::of(&mut server, &stage.database).await;
    server.says("this process wakes no workers").await;
    let terminal = Terminal::on(&stage.database).set("WAKEQ_NOTIFIER", "local");
    let mut worker = Process::own("work", stage.database.url(), None, &LOCAL);
    worker.says("woke the waiting events").await;

    let over_http = client.emit(json!({})).await;
    worker.says(&format!("begun {over_http}")).await;
    let by_command = terminal.run(&["emit", "slow", "1"]).await;
    assert_eq!(by_command.code, Some(0), "{}", by_command.err);
    worker.says(&format!("begun {}", by_command.out.trim())).await;
    let emitted = stage.queue.emit(Event::new("slow", &1).unwrap()).await.unwrap();
    assert!(!emitted.notified);
    worker.says(&format!("begun {}", emitted.id)).await;

    assert_eq!(terminal.run(&["pause", "slow"]).await.code, Some(0));
    let paused = client.emit(json!({})).await;
    worker.says("RulePaused").await;
    assert_eq!(terminal.run(&["unpause", "slow"]).await.code, Some(0));
    worker.says(&format!("begun {paused}")).await;
    assert_eq!((server.stop().await, worker.stop().await), (Some(0), Some(0)));
    assert_eq!(stage.rows().await, 0);
}

/// A command or a server that wakes no worker must not take the minute's pass from one.
// Shows: LOCAL-02
#[tokio::test]
async fn a_process_that_wakes_no_worker_leaves_the_minutes_pass_alone() {
    let stage = Stage::with(Arc::new(NoNotifier), quick()).await;
    stage.emit("h").await;
    let terminal = Terminal::on(&stage.database).set("WAKEQ_NOTIFIER", "local");
    let words = "due; the worker process wakes the events with its next pass, within a minute\n";
    assert_eq!(terminal.prints(&["wake", "--all"]).await, words);
    let mut server = Process::stock("serve", stage.database.url(), None, &LOCAL);
    server.says("serving the API").await;
    assert_eq!(server.stop().await, Some(0));
    let woken = "select notify_at <= now(), probes, (select passes from wakeq.chores where name = 'minute')
                   from wakeq.events_v2";
    let (due, probes, passes): (bool, i32, i64) = stage.pool.row(woken).await;
    assert_eq!((due, probes, passes), (true, 0, 0));
}

#[tokio::test]
async fn commands_explain_what_does_not_work_without_pubsub() {
    let database = database().await;
    for command in ["work", "all"] {
        let idle = [&LOCAL[..], &[("WAKEQ_NO_TARGETS", "1")]].concat();
        let mut process = Process::stock(command, database.url(), None, &idle);
        process.says("this program has no handlers, and with --notifier local").await;
        assert_eq!(process.ends("").await.0, Some(1));
    }
    let terminal = Terminal::on(&database);
    let complaint = terminal.complains(2, &["topics", "create", "--notifier", "local"]).await;
    assert!(complaint.contains("does without topics"), "{complaint}");
    let unset = terminal.complains(1, &["emit", "h", "1"]).await;
    assert!(unset.contains("WAKEQ_NOTIFIER=postgres"), "{unset}");
    let neither = terminal.complains(2, &["stats", "--notifier", "carrier"]).await;
    assert!(neither.contains("possible values: pubsub, postgres, local"), "{neither}");
    let doctor = terminal.set("WAKEQ_NOTIFIER", "local").run(&["doctor"]).await;
    assert!(doctor.out.contains("local: a process wakes only itself"), "{}", doctor.out);
    assert!(!doctor.out.contains("topic"), "{}", doctor.out);
}
