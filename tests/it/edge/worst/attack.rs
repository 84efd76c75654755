//! The attacker: a process of its own, so that the cost of its clients is not measured as the
//! service's.

pub(super) mod costly;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::{StreamExt, stream};
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use wakeq_testbed::{ChildProcess, Guard, Launch};

use super::{ATTACKER, REST};

/// Variables that tell the process what to call, with which key, and which parts to run.
const ADDRESS: &str = "WAKEQ_TEST_ADDRESS";
const KEY: &str = "WAKEQ_TEST_KEY";
const ATTACKS: &str = "WAKEQ_TEST_ATTACKS";
/// What the process prints: that everything is prepared, and what came of the requests of each
/// part.
const BEGINS: &str = "the attack begins";
const COUNT: &str = "attacked:";
/// How often it prints its counts.
const TELL: Duration = Duration::from_millis(500);
/// The largest value, in bytes.
const LARGE: usize = 240_000;

/// The outcome of a request without an answer, and that of one beyond a rate or a share.
pub(super) const NO_ANSWER: &str = "no answer";
const TOO_MANY: &str = "429";

/// The parts of the attack that run at once.
pub(super) const PARTS: [&str; 6] = ["emits", "log", "keys", "names", "entities", "crons"];
/// Those that run one after the other, each with the worst requests of a feature.
pub(super) const FEATURES: [&str; 7] =
    ["unique", "search", "batches", "operations", "hooks", "leases", "limits"];

/// How often each outcome came: a status, with the detail of a failure of the service.
pub(super) type Outcomes = BTreeMap<String, u64>;

/// An attack in progress; it ends when this is dropped.
pub(super) struct Attack {
    _process: ChildProcess,
    counts: Arc<Mutex<BTreeMap<String, Outcomes>>>,
}

impl Attack {
    /// Starts it at idle priority, so that it takes no processor time from the service. It has
    /// begun when this returns.
    pub(super) async fn begin(guard: &Guard, address: &str, key: &str, parts: &[&str]) -> Self {
        let counts = Arc::<Mutex<BTreeMap<String, Outcomes>>>::default();
        let (said, mut heard) = tokio::sync::mpsc::channel(1);
        let noted = Arc::clone(&counts);
        let program = std::env::current_exe().unwrap();
        let launch = Launch::new("chrt")
            .arguments(["--idle", "0"])
            .argument(program)
            .arguments(["--exact", "edge::worst::attack::attacker", "--ignored", "--nocapture"])
            .environment(ADDRESS, address)
            .environment(KEY, key)
            .environment(ATTACKS, parts.join(","))
            .on_line(move |line| {
                if line.contains(BEGINS) {
                    let _ = said.try_send(());
                } else if let Some((part, outcomes)) =
                    line.strip_prefix(COUNT).and_then(|line| line.trim().split_once(": "))
                {
                    let outcomes = serde_json::from_str(outcomes).unwrap();
                    noted.lock().unwrap().insert(part.to_owned(), outcomes);
                }
            });
        let process = guard.start(launch).unwrap();
        let begun = tokio::time::timeout(20 * REST, heard.recv()).await.unwrap();
        assert!(begun.is_some(), "it attacks: {}", process.last_lines());
        Self { _process: process, counts }
    }

    /// What has come of the requests of each part.
    pub(super) fn counts(&self) -> BTreeMap<String, Outcomes> {
        self.counts.lock().unwrap().clone()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a role in the test of this folder, which starts it itself"]
async fn attacker() -> ExitCode {
    let variable = |name| std::env::var(name).expect("only the test of this folder starts this");
    let attacker = Arc::new(Attacker {
        address: variable(ADDRESS),
        key: variable(KEY),
        // The service itself answers within the half of it.
        client: reqwest::Client::builder().no_proxy().timeout(2 * REST).build().unwrap(),
        counts: Mutex::default(),
        next: all_parts().map(|part| (part, AtomicUsize::new(0))).collect(),
    });
    let chosen = variable(ATTACKS);
    let parts: Vec<_> = all_parts().filter(|part| chosen.split(',').any(|name| name == *part)).collect();
    attacker.prepare(&parts).await;
    let mut tasks = JoinSet::new();
    for part in parts {
        for task in 0..callers(part) {
            let attacker = Arc::clone(&attacker);
            tasks.spawn(async move { while attacker.once(part, task).await {} });
        }
    }
    println!("{BEGINS}");
    loop {
        // The counts are printed at intervals, until the test ends this process.
        tokio::time::sleep(TELL).await;
        for (part, outcomes) in attacker.counts.lock().unwrap().iter() {
            println!("{COUNT} {part}: {}", json!(outcomes));
        }
    }
}

/// The parts of both kinds.
pub(super) fn all_parts() -> impl Iterator<Item = &'static str> {
    PARTS.into_iter().chain(FEATURES)
}

/// How many callers of a part run at a time.
fn callers(part: &str) -> usize {
    match part {
        "emits" => 400,
        "log" => 4,
        "keys" => 100,
        "names" => 42,
        "entities" => 8,
        "crons" => 0,
        feature => costly::callers(feature),
    }
}

struct Attacker {
    address: String,
    key: String,
    client: reqwest::Client,
    /// What has come of the requests of each part.
    counts: Mutex<BTreeMap<&'static str, Outcomes>>,
    /// The number of each part's next request.
    next: BTreeMap<&'static str, AtomicUsize>,
}

impl Attacker {
    /// Creates what a part needs before it begins.
    async fn prepare(&self, parts: &[&'static str]) {
        if parts.contains(&"log") {
            let event = json!({"name": "opened", "payload": "x".repeat(LARGE)});
            let append = json!({"appends": [{"category": "large", "stream": "a", "events": [event]}]});
            for _ in 0..1000 {
                self.patiently(Method::POST, "/log", &append).await;
            }
        }
        if parts.contains(&"crons") {
            let cron = json!({"expression": "* * * * * *", "value": 1});
            let put = |number| {
                let cron = &cron;
                async move { self.patiently(Method::PUT, &format!("/cron/every-{number}"), cron).await }
            };
            stream::iter(0..1000).map(put).buffer_unordered(16).collect::<Vec<_>>().await;
        }
        for feature in parts.iter().filter(|part| FEATURES.contains(part)) {
            self.prepare_feature(feature).await;
        }
    }

    /// Repeats a request as long as the answer is 429.
    async fn patiently(&self, method: Method, path: &str, body: &Value) -> String {
        loop {
            let outcome = self.call(method.clone(), path, Some(body)).await;
            if outcome != TOO_MANY {
                return outcome;
            }
        }
    }

    /// Sends a request on its canvas.
    async fn call(&self, method: Method, path: &str, body: Option<&Value>) -> String {
        let url = format!("http://{}/v1/canvases/{ATTACKER}{path}", self.address);
        let mut request = self.client.request(method, url).bearer_auth(&self.key);
        if let Some(body) = body {
            request = request.json(body);
        }
        outcome(request).await
    }

    /// One request of a part; returns whether there is more to do.
    async fn once(&self, part: &'static str, task: usize) -> bool {
        let outcome = if FEATURES.contains(&part) {
            Some(self.costly(part, task).await)
        } else {
            self.flood(part, task).await
        };
        let Some(outcome) = outcome else { return false };
        *self.counts.lock().unwrap().entry(part).or_default().entry(outcome).or_default() += 1;
        true
    }

    /// The number of a part's next request.
    fn number(&self, part: &str) -> usize {
        self.next[part].fetch_add(1, Ordering::Relaxed)
    }

    /// One request of a part that runs beside others; `None` if there is nothing more to do.
    async fn flood(&self, part: &str, task: usize) -> Option<String> {
        let outcome = match part {
            "emits" => {
                let event = json!({"name": "flood", "value": "x".repeat(LARGE)});
                self.call(Method::POST, "/events", Some(&event)).await
            }
            "log" => self.call(Method::GET, "/log?category=large&limit=1000", None).await,
            "keys" => {
                let key = format!("wakeq_{:012x}_{}", self.number(part), "0".repeat(64));
                let url = format!("http://{}/v1/canvases/{ATTACKER}/handlers", self.address);
                outcome(self.client.get(url).bearer_auth(key)).await
            }
            // Two of them emit 100,000 events for 2,000 names, the others list.
            "names" if task < 2 => {
                let number = self.number(part);
                if number >= 200 {
                    return None;
                }
                let event = |index: usize| json!({"name": format!("name-{}", (number * 500 + index) % 2000), "value": index});
                let batch = json!({"events": (0..500).map(event).collect::<Vec<_>>()});
                self.patiently(Method::POST, "/events:batch", &batch).await
            }
            "names" if task.is_multiple_of(2) => self.call(Method::GET, "/events?limit=1000", None).await,
            "names" => self.call(Method::GET, "/handlers", None).await,
            _ => {
                let number = self.number(part);
                if number >= 500 {
                    return None;
                }
                let event = json!({"name": "deposit", "payload": {"cents": 1, "pad": "x".repeat(LARGE)}});
                self.patiently(Method::POST, &format!("/entities/account/e{number}/events"), &event).await
            }
        };
        Some(outcome)
    }
}

/// Sends a request, and reads its answer.
async fn outcome(request: RequestBuilder) -> String {
    let Ok(mut answer) = request.send().await else { return NO_ANSWER.to_owned() };
    let status = answer.status();
    if status.is_server_error() {
        let problem: Value = answer.json().await.unwrap_or_default();
        return format!("{} {}", status.as_u16(), problem["detail"].as_str().unwrap_or_default());
    }
    // Read as it arrives, and discarded.
    while let Ok(Some(_)) = answer.chunk().await {}
    status.as_u16().to_string()
}
