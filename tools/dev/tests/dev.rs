//! `cargo dev` as a process, known by the lines that it prints.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test, which says if it is skipped")]

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use wakeq::notify::{DEVELOPMENT_PROJECT, PubSub, PubSubConfig};
use wakeq::{
    CanvasId, Event, EventId, Execution, HandlerResult, Handlers, Queue, QueueConfig, QueueWorker, Store,
    StoreConfig, WorkerConfig,
};
use wakeq_testbed::{ChildProcess, Guard, Launch, installed_postgres};

const PRINTED_WITHIN: Duration = Duration::from_secs(60);
/// Far more than a share of the notifications would hide.
const EVENTS: usize = 20;

/// What is tried: a failed attempt, a dead event, a handler that nobody has, and quick events, for
/// which the worker opens another stream and is still alone. Then a worker of another program,
/// which needs no option of `cargo dev` to get every event, its other tenants' too.
#[tokio::test(flavor = "multi_thread")]
async fn it_says_what_failed_and_stands_back_for_another_worker() {
    let Some(dev) = Dev::start().await else { return };
    let (store, pubsub) = dev.join().await;
    let queue = Queue::new(store.clone(), Arc::clone(&pubsub) as _, QueueConfig::default());
    let emit = async |name: &str, canvas: CanvasId| -> EventId {
        queue.emit(Event::new(name, "Ada").unwrap().canvas(canvas)).await.unwrap().id
    };

    let flaky = emit("flaky", CanvasId::DEFAULT).await;
    dev.prints(&format!(
        "{flaky}  flaky      attempt 1 failed (the peer closed the connection); retried in 2s"
    ))
    .await;
    dev.prints(&format!("{flaky}  flaky      done in")).await;
    let broken = emit("broken", CanvasId::DEFAULT).await;
    let dies = format!("{broken}  broken     attempt 3 failed (the service is down), the last one: dead");
    while !dev.has_printed(&dies) {
        let greet = emit("greet", CanvasId::DEFAULT).await;
        dev.prints(&format!("{greet}  greet      says: hello, Ada")).await;
    }
    let mine = emit("mine", CanvasId::DEFAULT).await;
    dev.prints(&format!("{mine}  mine       NO HANDLER `mine` HERE")).await;

    let (ran, mut runs) = mpsc::channel(EVENTS);
    let run = move |event: Execution| {
        let ran = ran.clone();
        async move {
            ran.send((event.id, event.address.scope.canvas)).await.expect("the test waits");
            HandlerResult::Ok(())
        }
    };
    let handlers = Handlers::new().on("greet", run.clone()).on("mine", run);
    assert!(!dev.has_printed("another worker has joined"), "nobody was there");
    let worker = QueueWorker::new(store, pubsub, handlers, WorkerConfig::default()).unwrap();
    let (stop, working) = (worker.stop_token(), tokio::spawn(worker.run()));
    dev.prints("another worker has joined").await;
    assert_eq!(next(&mut runs).await, (mine, CanvasId::DEFAULT));
    let other: CanvasId = "7d444840-9dc0-11d1-b245-5ffdce74fad2".parse().unwrap();
    for canvas in [CanvasId::DEFAULT, other] {
        let mut expected = Vec::new();
        for _ in 0..EVENTS {
            expected.push((emit("greet", canvas).await, canvas));
        }
        let mut seen = Vec::new();
        for _ in 0..EVENTS {
            seen.push(next(&mut runs).await);
        }
        seen.sort_unstable_by_key(|run| expected.iter().position(|event| event == run));
        assert_eq!(seen, expected);
    }

    stop.cancel();
    working.await.unwrap().unwrap();
    dev.prints("the other worker has left: the sample worker is back").await;
    let last = emit("greet", CanvasId::DEFAULT).await;
    dev.prints(&format!("{last}  greet      says: hello, Ada")).await;
    dev.process.stop(PRINTED_WITHIN).await.unwrap();
    dev.prints("stopped; waiting events are kept in .dev").await;
}

async fn next<T>(runs: &mut mpsc::Receiver<T>) -> T {
    timeout(PRINTED_WITHIN, runs.recv()).await.expect("an event did not run in time").unwrap()
}

/// A running `cargo dev` with a folder and a Postgres of its own.
struct Dev {
    lines: watch::Receiver<Vec<String>>,
    process: ChildProcess,
    _guard: Guard,
}

impl Dev {
    /// `None` without an installed Postgres.
    async fn start() -> Option<Self> {
        if let Err(error) = installed_postgres() {
            println!("SKIPPED: {error}");
            return None;
        }
        let folder = std::env::temp_dir().join(format!("wakeq-dev-test-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let guard = Guard::new(Some(&folder)).unwrap();
        let (sender, lines) = watch::channel(Vec::new());
        let launch = Launch::new(env!("CARGO_BIN_EXE_wakeq-dev"))
            .arguments(["--postgres", "installed", "--emulator", "own", "--no-trickle", "--port", "0"])
            // Its `.dev` is two levels above, as in the repository.
            .environment("CARGO_MANIFEST_DIR", folder.join("tools/dev"))
            .on_line(move |line| sender.send_modify(|lines| lines.push(line.to_owned())));
        let process = guard.start(launch).unwrap();
        let dev = Self { lines, process, _guard: guard };
        dev.prints("WHAT HAPPENS").await;
        Some(dev)
    }

    /// Waits for a line that contains the words; returns it.
    async fn prints(&self, words: &str) -> String {
        let mut lines = self.lines.clone();
        let has_it = |lines: &Vec<String>| lines.iter().any(|line| line.contains(words));
        match timeout(PRINTED_WITHIN, lines.wait_for(has_it)).await {
            Ok(Ok(printed)) => printed.iter().rfind(|line| line.contains(words)).unwrap().clone(),
            Ok(Err(_)) | Err(_) => {
                panic!("{words:?} was not printed:\n{}", self.lines.borrow().join("\n"))
            }
        }
    }

    fn has_printed(&self, words: &str) -> bool {
        self.lines.borrow().iter().any(|line| line.contains(words))
    }

    /// Connects as its `export` lines say.
    async fn join(&self) -> (Store, Arc<PubSub>) {
        let exported = async |name: &str| {
            let name = format!("export {name}=");
            self.prints(&name).await.split_once(&name).unwrap().1.to_owned()
        };
        let config = PubSubConfig {
            emulator_host: Some(exported("PUBSUB_EMULATOR_HOST").await),
            ..PubSubConfig::new(DEVELOPMENT_PROJECT)
        };
        let pubsub = PubSub::connect(config).await.unwrap();
        let store = Store::connect(&exported("DATABASE_URL").await, StoreConfig::default()).await.unwrap();
        (store, Arc::new(pubsub))
    }
}
