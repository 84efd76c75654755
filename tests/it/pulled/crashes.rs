//! A program in JavaScript or Python works off events over HTTP, and is killed with -9 again and
//! again, and so is the API: every event runs, and only those that were in flight run twice.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use tokio::sync::watch;
use wakeq::queues::PullPolicy;
use wakeq::{Actor, CanvasId, Event};
use wakeq_service::access::{Access, AccessConfig, Reach, Scope};
use wakeq_testbed::{ChildProcess, Guard, Launch, free_port};

use crate::clients::{PYTHON, Package, TYPESCRIPT};
use crate::support::crash_scene::{figure, size};
use crate::support::service::make_key;
use crate::support::{OTHER, SECRET_KEY, Stage, TIMEOUT, scope};

/// Runs events of 20 ms, and says which ones it has run. Its leases are short, so that those of a
/// program that was killed end soon.
const IN_JAVASCRIPT: Program = Program {
    package: &TYPESCRIPT,
    arguments: &[
        "--input-type=module",
        "--eval",
        r#"
import { Client, Worker } from "wakeq";
const wakeq = new Client({ url: process.env.WAKEQ_SERVER, key: process.env.WAKEQ_KEY });
console.log("working");
await new Worker(wakeq).run({ mail: async ({ id }) => {
  await new Promise((resolve) => setTimeout(resolve, 20));
  console.log(`ran ${id}`);
} }, { concurrency: 16, leaseS: 5, onError: (error) => console.log(`${new Date().toISOString()} ${error}`) });
console.log("stopped");
"#,
    ],
};

/// The same. A line is written at once, since it is one of several threads that writes it.
const IN_PYTHON: Program = Program {
    package: &PYTHON,
    arguments: &[
        "-c",
        r#"
import logging, os, time
from wakeq import Client, Worker

def mail(event, context):
    time.sleep(0.02)
    print(f"ran {event['id']}\n", end="", flush=True)

logging.basicConfig(format="%(asctime)s %(message)s")
print("working", flush=True)
wakeq = Client(os.environ["WAKEQ_SERVER"], os.environ["WAKEQ_KEY"])
Worker(wakeq).run({"mail": mail}, concurrency=16, lease_s=5)
print("stopped", flush=True)
"#,
    ],
};

/// A program that works off the events of `mail`.
struct Program {
    package: &'static Package,
    arguments: &'static [&'static str],
}

/// How often each event ran.
type Runs = Arc<Mutex<BTreeMap<String, u32>>>;

struct Scene {
    stage: Stage,
    port: u16,
    key: String,
    runs: Runs,
    /// How many events have run.
    ran: watch::Sender<usize>,
    guard: Guard,
}

impl Scene {
    async fn new() -> Self {
        let (stage, _) = Stage::memory().await;
        let access = Access::new(stage.store.clone(), AccessConfig::default()).unwrap();
        let reach = Reach::Canvas(CanvasId::DEFAULT);
        let key = make_key(&access, "program", reach, &[Scope::Operate, Scope::Read, Scope::Values]).await;
        let (port, runs) = (free_port().unwrap(), Runs::default());
        let (ran, _) = watch::channel(0);
        Self { stage, port, key, runs, ran, guard: Guard::new(None).unwrap() }
    }

    /// Starts a process, and waits until it says this.
    async fn start(&self, launch: Launch, ready: &'static str) -> ChildProcess {
        let (says, mut said) = watch::channel(false);
        let (runs, ran) = (Arc::clone(&self.runs), self.ran.clone());
        let launch = launch.on_line(move |line| {
            if line.contains(ready) {
                says.send_replace(true);
            }
            if let Some(id) = line.strip_prefix("ran ") {
                let mut runs = runs.lock().unwrap();
                *runs.entry(id.to_owned()).or_default() += 1;
                ran.send_if_modified(|ran| std::mem::replace(ran, runs.len()) < runs.len());
            }
        });
        let child = self.guard.start(launch).unwrap();
        let is_ready = tokio::time::timeout(TIMEOUT, said.wait_for(|said| *said)).await;
        assert!(matches!(is_ready, Ok(Ok(_))), "it does not say {ready:?}:\n{}", child.last_lines());
        child
    }

    async fn api(&self) -> ChildProcess {
        let launch = Launch::new(env!("CARGO_BIN_EXE_wakeq"))
            .argument("serve")
            .environment("DATABASE_URL", self.stage.database.url())
            .environment(SECRET_KEY.0, SECRET_KEY.1)
            .environment("WAKEQ_NOTIFIER", "local")
            .environment("WAKEQ_LISTEN", "127.0.0.1")
            .environment("WAKEQ_ALLOW_UNSAFE_DURABILITY", "1")
            .environment("PORT", self.port.to_string())
            .environment("NO_COLOR", "1");
        self.start(launch, "serving the API").await
    }

    async fn program(&self, program: &Program) -> ChildProcess {
        let launch = program
            .package
            .launch(program.arguments)
            .environment("WAKEQ_SERVER", format!("http://127.0.0.1:{}", self.port))
            .environment("WAKEQ_KEY", &self.key);
        self.start(launch, "working").await
    }

    /// Waits until so many have run. Between two of them there is at most the time in which the
    /// leases of a program end that was killed.
    async fn until_ran(&self, count: usize, processes: [&ChildProcess; 2]) {
        let mut ran = self.ran.subscribe();
        while *ran.borrow_and_update() < count {
            let more = tokio::time::timeout(2 * TIMEOUT, ran.changed()).await;
            let said = || processes.map(|process| process.last_lines().to_string()).join("\n-- and --\n");
            assert!(matches!(more, Ok(Ok(()))), "{} of {count} events ran:\n{}", *ran.borrow(), said());
        }
    }
}

#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn every_event_runs_in_javascript_whatever_is_killed() {
    every_event_runs(&IN_JAVASCRIPT).await;
}

#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn every_event_runs_in_python_whatever_is_killed() {
    every_event_runs(&IN_PYTHON).await;
}

async fn every_event_runs(how: &Program) {
    if !how.package.is_runnable() {
        return;
    }
    let (scene, count, kills) = (Scene::new().await, size(300, 10_000), size(3, 20));
    let ada = Actor::user("ada");
    scene.stage.admin.put_pulled(&scope("mail"), &PullPolicy::default(), &ada).await.unwrap();
    let theirs = Event::new("mail", &0).unwrap().canvas(OTHER);
    scene.stage.queue.emit(theirs).await.unwrap();
    for _ in 0..count / 100 {
        scene.stage.emit_many("mail", 100).await;
    }
    let (mut api, mut program) = (scene.api().await, scene.program(how).await);
    for kill in 1..=kills {
        scene.until_ran(count * kill / (kills + 2), [&program, &api]).await;
        program.kill_9().await.unwrap();
        program = scene.program(how).await;
        api.kill_9().await.unwrap();
        api = scene.api().await;
    }
    scene.until_ran(count, [&program, &api]).await;
    let left =
        "select count(*) from wakeq.events_v2 where canvas_id = '00000000-0000-0000-0000-000000000000'";
    wakeq_testbed::wait_while!(scene.stage.count(left).await > 0, "events are left although all have run");
    program.stop(TIMEOUT).await.unwrap();
    assert_eq!(program.ended().await.code(), Some(0), "{}", program.last_lines());
    api.stop(TIMEOUT).await.unwrap();
    let times: Vec<u32> = scene.runs.lock().unwrap().values().copied().collect();
    let again: u32 = times.iter().map(|times| times - 1).sum();
    assert_eq!(times.len(), count, "the event of the other canvas did not run");
    // Each kill of the program or the API interrupts no more than what was in flight.
    assert!(again as usize <= 2 * kills * 16, "{again} events ran again");
    figure("events", count);
    figure("kills of the program and of the API", kills);
    figure("events that ran again", again);
    assert_eq!(scene.stage.count("select count(*) from wakeq.dead_events").await, 0);
    assert_eq!(scene.stage.rows().await, 1, "that of the other canvas");
}
