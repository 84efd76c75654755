//! One tenant at its worst for a minute, and another beside it: `serve` and `work` as processes,
//! their memory, and how long the other's events take from the emit to the start. Figures for
//! `cargo xtask edge worst`. Then the worst requests of one feature after the other.
//!
//! `WAKEQ_WORST` lists the parts of the attack to run, separated by commas; `WAKEQ_WORST_S` is the
//! number of seconds of each measurement, without and with the attack. A feature takes a quarter.

mod attack;
mod features;
mod neighbour;

use std::collections::BTreeMap;
use std::io::Write;
use std::net::IpAddr;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use reqwest::{Method, RequestBuilder};
use serde_json::json;
use tokio::net::UdpSocket;
use tokio::task::JoinSet;
use uuid::Uuid;
use wakeq::log::Log;
use wakeq::notify::{PubSub, PubSubConfig, create_topics};
use wakeq::{CanvasId, Execution, HandlerResult, Handlers, Queue, QueueConfig, Store, StoreConfig};
use wakeq_service::access::{Access, AccessConfig, Reach, Scope};
use wakeq_streams::{BrokerBacking, BrokerConfig, EntityConfig, EntityProcessor, EventBroker};
use wakeq_testbed::{ChildProcess, Guard, Launch};

use attack::{Attack, FEATURES, PARTS, all_parts};

use crate::streams::entities::Account;
use crate::support::brokers::Broker;
use crate::support::service::make_key;
use crate::support::{SECRET_KEY, Stage, durability, fit};

/// Bounds: the memory of each process, and how much slower the other tenant may become.
const SERVE_KIB: u64 = 256 * 1024;
const WORK_KIB: u64 = 384 * 1024;
const SLOWER: f64 = 3.0;

const ATTACKER: CanvasId = CanvasId(Uuid::from_u128(0xa1));
const VICTIM: CanvasId = CanvasId(Uuid::from_u128(0xb1));
/// The victim emits one event per period.
const PACE: Duration = Duration::from_millis(100);
/// Longest wait for emitted events, after the attack.
const REST: Duration = Duration::from_secs(30);
/// How often the disk is timed.
const LOOK: Duration = Duration::from_millis(100);
/// The variable that tells a child where to report starts.
const REPORT_TO: &str = "WAKEQ_TEST_REPORT_TO";

/// The program of the workers: the victim's handler, one for the flood, and a processor of
/// entities.
#[test]
#[ignore = "a role in the test of this file, which starts it itself"]
fn worst_worker() -> ExitCode {
    let to = std::env::var(REPORT_TO).expect("only the test of this file starts this");
    wakeq_service::run_from(["worst-worker", "work"], async move |_| {
        let socket = Arc::new(UdpSocket::bind("127.0.0.1:0").await?);
        socket.connect(to).await?;
        process_entities().await?;
        let report = move |event: Execution| -> futures_util::future::BoxFuture<'static, HandlerResult> {
            let socket = Arc::clone(&socket);
            Box::pin(async move {
                let number: u64 = event.value()?;
                socket.send(&number.to_be_bytes()).await?;
                Ok(())
            })
        };
        Ok(Handlers::new().on("start", report).on("flood", async |_| Ok(())))
    })
}

async fn process_entities() -> Result<(), wakeq_service::cli::BoxError> {
    let store = Store::connect(&std::env::var("DATABASE_URL")?, fit(StoreConfig::default())).await?;
    let mut config = PubSubConfig::new("tests");
    config.emulator_host = std::env::var("PUBSUB_EMULATOR_HOST").ok();
    config.topic = std::env::var("WAKEQ_TOPIC")?;
    config.subscription = std::env::var("WAKEQ_SUBSCRIPTION")?;
    let notifier = Arc::new(PubSub::connect(config).await?);
    let queue = Queue::new(store.clone(), notifier, QueueConfig::default());
    let log = Log::with_signals(store.clone(), queue.signals().clone());
    let accounts = EntityProcessor::<Account>::new(queue, Arc::new(log), EntityConfig::default())?;
    let broker = EventBroker::single(BrokerBacking::Postgres(store), BrokerConfig::default())?;
    broker.register(Arc::new(accounts)).await?;
    // It ends with the process.
    tokio::spawn(async move { broker.run().await });
    Ok(())
}

/// Both processes and their clients.
struct Deployment {
    address: String,
    /// The victim's client, which has an address of its own.
    client: reqwest::Client,
    keys: BTreeMap<CanvasId, String>,
    serve: ChildProcess,
    work: ChildProcess,
    starts: Arc<Mutex<BTreeMap<u64, Instant>>>,
    stage: Stage,
    guard: Guard,
}

impl Deployment {
    async fn start() -> Arc<Self> {
        let config = Broker::pubsub_config("worst").await;
        create_topics(&config).await.unwrap();
        let notifier = Arc::new(PubSub::connect(config.clone()).await.unwrap());
        let stage = Stage::with(notifier, wakeq::Timing::default()).await;
        let access = Access::new(stage.store.clone(), AccessConfig::default()).unwrap();
        let mut keys = BTreeMap::new();
        for canvas in [ATTACKER, VICTIM] {
            keys.insert(canvas, make_key(&access, "tests", Reach::Canvas(canvas), &Scope::ALL).await);
        }
        let (starts, socket) =
            (Arc::<Mutex<BTreeMap<u64, Instant>>>::default(), UdpSocket::bind("127.0.0.1:0").await.unwrap());
        let reported_to = socket.local_addr().unwrap().to_string();
        let noted = Arc::clone(&starts);
        tokio::spawn(async move {
            let mut number = [0; 8];
            while socket.recv(&mut number).await.is_ok() {
                noted.lock().unwrap().entry(u64::from_be_bytes(number)).or_insert_with(Instant::now);
            }
        });
        let guard = Guard::new(None).unwrap();
        let (said, mut heard) = tokio::sync::mpsc::channel(1);
        let serve = Launch::new(env!("CARGO_BIN_EXE_wakeq")).argument("serve").environment("PORT", "0");
        let serve = common(serve, stage.database.url(), &config).on_line(move |line| {
            if let Some((_, address)) =
                line.split_once("serving the API").and_then(|(_, rest)| rest.split_once("address="))
            {
                let _ = said.try_send(address.split(' ').next().unwrap_or_default().to_owned());
            }
        });
        let serve = guard.start(serve.environment("WAKEQ_LISTEN", "127.0.0.1")).unwrap();
        let address = tokio::time::timeout(REST, heard.recv()).await.unwrap().expect("it serves");
        let work = Launch::new(std::env::current_exe().unwrap()).arguments([
            "--exact",
            "edge::worst::worst_worker",
            "--ignored",
            "--nocapture",
        ]);
        let work = common(work, stage.database.url(), &config).environment(REPORT_TO, &reported_to);
        let work = guard.start(work).unwrap();
        let client = reqwest::Client::builder().no_proxy().timeout(REST);
        let client = client.local_address(IpAddr::from([127, 0, 0, 2])).build().unwrap();
        Arc::new(Self { address, client, keys, serve, work, starts, stage, guard })
    }

    fn request(&self, canvas: CanvasId, method: Method, path: &str) -> RequestBuilder {
        let url = format!("http://{}/v1/canvases/{canvas}{path}", self.address);
        self.client.request(method, url).bearer_auth(&self.keys[&canvas])
    }

    /// The peak memory of both processes, in KiB.
    fn peaks(&self) -> (u64, u64) {
        (peak_kib(&self.serve), peak_kib(&self.work))
    }

    /// Asserts that both processes live, within their memory.
    fn check_bounds(&self) {
        let running = (self.serve.is_running(), self.work.is_running());
        assert_eq!(
            running,
            (true, true),
            "both processes live:\n{}\n{}",
            self.serve.last_lines(),
            self.work.last_lines()
        );
        let (serve, work) = self.peaks();
        assert!(serve <= SERVE_KIB, "serve had {serve} KiB");
        assert!(work <= WORK_KIB, "work had {work} KiB");
    }
}

fn common(launch: Launch, url: &str, config: &PubSubConfig) -> Launch {
    launch
        .environment("DATABASE_URL", url)
        .environment("PUBSUB_EMULATOR_HOST", config.emulator_host.as_ref().unwrap())
        .environment("GOOGLE_CLOUD_PROJECT", &config.project)
        .environment("WAKEQ_TOPIC", &config.topic)
        .environment("WAKEQ_SUBSCRIPTION", &config.subscription)
        .environment(durability().0, durability().1)
        .environment(SECRET_KEY.0, SECRET_KEY.1)
        .environment("NO_COLOR", "1")
        .environment("RUST_LOG", "warn,wakeq=info")
}

/// The peak memory of a process in KiB, as the kernel counts it; 0 if it is gone.
fn peak_kib(child: &ChildProcess) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.pid())).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").trim().parse().ok()).unwrap_or(0)
}

/// What the victim measured in a period.
#[derive(Debug, Default)]
struct Measurements {
    /// From the emit to its answer.
    answers: Vec<Duration>,
    /// From the emit to the start.
    delays: Vec<Duration>,
    /// Times to write a page through to the disk meanwhile: a slow disk is not only the neighbour's
    /// doing.
    disk: Vec<Duration>,
    refused: Vec<String>,
    never: usize,
}

/// A percentile of sorted durations.
pub(super) fn percentile(durations: &[Duration], per_mille: usize) -> Duration {
    let last = durations.len().saturating_sub(1);
    durations.get((durations.len() * per_mille / 1000).min(last)).copied().unwrap_or_default()
}

/// Repeatedly writes a page through to the disk that Postgres writes to, until the sender is
/// dropped; returns the sorted times.
fn watch_disk(over: &Receiver<()>) -> Vec<Duration> {
    let path = std::env::temp_dir().join(format!("wakeq-disk-{}", Uuid::new_v4()));
    let mut file = std::fs::File::create(&path).unwrap();
    // It exists for as long as it is open.
    std::fs::remove_file(&path).unwrap();
    let mut took = Vec::new();
    while over.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
        let begun = Instant::now();
        file.write_all(&[0; 8192]).and_then(|()| file.sync_data()).unwrap();
        took.push(begun.elapsed());
    }
    took.sort();
    took
}

/// The victim emits at its pace for a time; then its events are awaited.
async fn emits(deployment: &Arc<Deployment>, first: u64, time: Duration) -> Measurements {
    let end = Instant::now() + time;
    let (going_on, over) = mpsc::channel();
    let disk = tokio::task::spawn_blocking(move || watch_disk(&over));
    let mut ticks = tokio::time::interval(PACE);
    let mut requests = JoinSet::new();
    let mut number = first;
    while Instant::now() < end {
        ticks.tick().await;
        let (deployment, value) = (Arc::clone(deployment), number);
        requests.spawn(async move {
            let begun = Instant::now();
            let request = deployment.request(VICTIM, Method::POST, "/events");
            let refused = match request.json(&json!({"name": "start", "value": value})).send().await {
                Ok(answer) if answer.status().is_success() => None,
                Ok(answer) => Some(format!("{}", answer.status())),
                Err(error) if error.is_timeout() => Some(format!("no answer within {REST:?}")),
                Err(error) => Some(error.to_string()),
            };
            (value, begun, begun.elapsed(), refused)
        });
        number += 1;
    }
    let emitted = requests.join_all().await;
    drop(going_on);
    let disk = disk.await.unwrap();
    let accepted: Vec<_> = emitted.iter().filter(|(.., refused)| refused.is_none()).collect();
    let all = async {
        while !accepted.iter().all(|(value, ..)| deployment.starts.lock().unwrap().contains_key(value)) {
            // Reports come from another process; nothing here could be awaited instead.
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let _ = tokio::time::timeout(REST, all).await;
    let starts = deployment.starts.lock().unwrap();
    let mut seen = Measurements {
        disk,
        refused: emitted.iter().filter_map(|(.., refused)| refused.clone()).collect(),
        ..Measurements::default()
    };
    for (value, begun, answer, _) in accepted {
        seen.answers.push(*answer);
        match starts.get(value) {
            Some(started) => seen.delays.push(started.duration_since(*begun)),
            None => {
                seen.never += 1;
                seen.delays.push(begun.elapsed());
            }
        }
    }
    seen.answers.sort();
    seen.delays.sort();
    seen
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "minutes of a tenant at its worst: `cargo xtask edge worst` runs it"]
async fn the_worst_tenant_affects_only_itself() {
    let all: Vec<_> = all_parts().collect();
    let wanted = std::env::var("WAKEQ_WORST").unwrap_or_else(|_| all.join(","));
    let (alone, parts): (Vec<_>, Vec<_>) = wanted.split(',').partition(|part| FEATURES.contains(part));
    assert!(parts.iter().all(|part| PARTS.contains(part)), "the parts are {all:?}");
    let time = Duration::from_secs(std::env::var("WAKEQ_WORST_S").map_or(60, |time| time.parse().unwrap()));
    let deployment = Deployment::start().await;
    // A warm-up, which is not measured.
    emits(&deployment, 0, Duration::from_secs(3)).await;
    if !parts.is_empty() {
        attack_at_once(&deployment, &parts, time).await;
    }
    for feature in alone {
        features::attack(&deployment, feature, time / 4).await;
    }
}

/// The parts that run at once, measured against a time without any.
async fn attack_at_once(deployment: &Arc<Deployment>, parts: &[&str], time: Duration) {
    let alone = emits(deployment, 1_000_000, time).await;
    let quiet = deployment.peaks();
    let attack =
        Attack::begin(&deployment.guard, &deployment.address, &deployment.keys[&ATTACKER], parts).await;
    let beside = emits(deployment, 2_000_000, time).await;
    let counts = attack.counts();
    drop(attack);
    let (serve, work) = deployment.peaks();
    let (p50, p99) = (percentile(&alone.delays, 500), percentile(&alone.delays, 990));
    let ratio = percentile(&beside.delays, 990).as_secs_f64() / p99.as_secs_f64();
    println!("parts: {}", parts.join(", "));
    counts.iter().for_each(|(part, outcomes)| println!("    {part}: {outcomes:?}"));
    println!("serve: at most {serve} KiB ({} before the attack); work: {work} KiB ({})", quiet.0, quiet.1);
    println!(
        "emit to start: p50 {p50:?} and p99 {p99:?} alone; p50 {:?} and p99 {:?} beside it: {ratio:.1} times; {} of {} refused, {} never started",
        percentile(&beside.delays, 500),
        percentile(&beside.delays, 990),
        beside.refused.len(),
        beside.refused.len() + beside.delays.len(),
        beside.never
    );
    for (when, seen) in [("alone", &alone), ("beside it", &beside)] {
        let [answer, disk] = [&seen.answers, &seen.disk].map(|durations| percentile(durations, 990));
        println!("{when}: p99 of emit to answer {answer:?}, of a write to the disk {disk:?}");
    }
    println!("waiting in the end: {} events", deployment.stage.rows().await);
    deployment.check_bounds();
    let mut refused = BTreeMap::<_, usize>::new();
    beside.refused.into_iter().for_each(|how| *refused.entry(how).or_default() += 1);
    assert_eq!(refused, BTreeMap::new(), "the other tenant is never refused");
    assert!(ratio <= SLOWER && beside.never == 0, "the other tenant's p99 is {ratio:.1} times its own alone");
}
