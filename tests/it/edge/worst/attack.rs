//! The attacker: a process of its own, so that the cost of its clients is not measured as the
//! service's.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::{StreamExt, stream};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use wakeq_testbed::{ChildProcess, Guard, Launch};

use super::{ATTACKER, REST};

/// Variables that tell the process what to call, with which key, and which parts to run.
const ADDRESS: &str = "WAKEQ_TEST_ADDRESS";
const KEY: &str = "WAKEQ_TEST_KEY";
const ATTACKS: &str = "WAKEQ_TEST_ATTACKS";
/// What the process prints: that everything is prepared, and how many requests of each part were
/// sent and served.
const BEGINS: &str = "the attack begins";
const COUNT: &str = "attacked:";
/// How often it prints its counts.
const TELL: Duration = Duration::from_millis(500);
/// The largest value, in bytes.
const LARGE: usize = 240_000;

/// The parts of the attack.
pub(super) const PARTS: [&str; 6] = ["emits", "log", "keys", "names", "entities", "crons"];

/// An attack in progress; it ends when this is dropped.
pub(super) struct Attack {
    _process: ChildProcess,
    counts: Arc<Mutex<BTreeMap<String, String>>>,
}

impl Attack {
    /// Starts it at idle priority, so that it takes no processor time from the service. It has
    /// begun when this returns.
    pub(super) async fn begin(guard: &Guard, address: &str, key: &str, parts: &[&str]) -> Self {
        let counts = Arc::<Mutex<BTreeMap<String, String>>>::default();
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
                } else if let Some((part, counts)) =
                    line.strip_prefix(COUNT).and_then(|line| line.trim().split_once(": "))
                {
                    noted.lock().unwrap().insert(part.to_owned(), counts.to_owned());
                }
            });
        let process = guard.start(launch).unwrap();
        let begun = tokio::time::timeout(20 * REST, heard.recv()).await.unwrap();
        assert!(begun.is_some(), "it attacks: {}", process.last_lines());
        Self { _process: process, counts }
    }

    /// How many requests of each part were sent and served.
    pub(super) fn counts(&self) -> BTreeMap<String, String> {
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
        client: reqwest::Client::builder().no_proxy().timeout(REST).build().unwrap(),
        counts: Mutex::default(),
        next: PARTS.map(|part| (part, AtomicUsize::new(0))).into(),
    });
    let chosen = variable(ATTACKS);
    let parts: Vec<_> =
        PARTS.into_iter().filter(|part| chosen.split(',').any(|name| name == *part)).collect();
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
        for (part, (asked, served)) in attacker.counts.lock().unwrap().iter() {
            println!("{COUNT} {part}: {asked} requests, {served} served");
        }
    }
}

/// How many callers of a part run at a time.
fn callers(part: &str) -> usize {
    match part {
        "emits" => 400,
        "log" => 4,
        "keys" => 100,
        "names" => 42,
        "entities" => 8,
        _ => 0,
    }
}

fn served(status: Option<StatusCode>) -> bool {
    status.is_some_and(|status| status.is_success())
}

struct Attacker {
    address: String,
    key: String,
    client: reqwest::Client,
    /// Requests of each part, and how many were served.
    counts: Mutex<BTreeMap<&'static str, (u64, u64)>>,
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
    }

    /// Repeats a request as long as the answer is 429.
    async fn patiently(&self, method: Method, path: &str, body: &Value) -> bool {
        loop {
            let status = self.call(method.clone(), path, Some(body)).await;
            if status != Some(StatusCode::TOO_MANY_REQUESTS) {
                return served(status);
            }
        }
    }

    /// Sends a request on its canvas; `None` if there was no answer.
    async fn call(&self, method: Method, path: &str, body: Option<&Value>) -> Option<StatusCode> {
        let url = format!("http://{}/v1/canvases/{ATTACKER}{path}", self.address);
        let mut request = self.client.request(method, url).bearer_auth(&self.key);
        if let Some(body) = body {
            request = request.json(body);
        }
        let mut answer = request.send().await.ok()?;
        let status = answer.status();
        // Read as it arrives, and discarded.
        while let Ok(Some(_)) = answer.chunk().await {}
        Some(status)
    }

    /// One request of a part; returns whether there is more to do.
    async fn once(&self, part: &'static str, task: usize) -> bool {
        let number = || self.next[part].fetch_add(1, Ordering::Relaxed);
        let served = match part {
            "emits" => {
                let event = json!({"name": "flood", "value": "x".repeat(LARGE)});
                served(self.call(Method::POST, "/events", Some(&event)).await)
            }
            "log" => served(self.call(Method::GET, "/log?category=large&limit=1000", None).await),
            "keys" => {
                let key = format!("wakeq_{:012x}_{}", number(), "0".repeat(64));
                let url = format!("http://{}/v1/canvases/{ATTACKER}/handlers", self.address);
                self.client.get(url).bearer_auth(key).send().await.is_ok()
            }
            // Two of them emit 100,000 events for 2,000 names, the others list.
            "names" if task < 2 => {
                let number = number();
                if number >= 200 {
                    return false;
                }
                let event = |index: usize| json!({"name": format!("name-{}", (number * 500 + index) % 2000), "value": index});
                let batch = json!({"events": (0..500).map(event).collect::<Vec<_>>()});
                self.patiently(Method::POST, "/events:batch", &batch).await
            }
            "names" if task.is_multiple_of(2) => {
                served(self.call(Method::GET, "/events?limit=1000", None).await)
            }
            "names" => served(self.call(Method::GET, "/handlers", None).await),
            _ => {
                let number = number();
                if number >= 500 {
                    return false;
                }
                let event = json!({"name": "deposit", "payload": {"cents": 1, "pad": "x".repeat(LARGE)}});
                self.patiently(Method::POST, &format!("/entities/account/e{number}/events"), &event).await
            }
        };
        let mut counts = self.counts.lock().unwrap();
        let (asked, done) = counts.entry(part).or_default();
        *asked += 1;
        *done += u64::from(served);
        true
    }
}
