//! What HTTP costs an emit, as a ratio within one run: `cargo bench --bench http`.
//!
//! There are as many clients as tasks: each sends its next request when the last one is answered,
//! over a persistent connection. Clients, server and Postgres share the machine; the median round
//! is printed.
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a benchmark prints, and ends at the first error"
)]

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use futures_util::future::join_all;
use sqlx::PgPool;
use wakeq::testing::MemoryNotifier;
use wakeq::{Actor, CanvasId, Event, Queue, QueueConfig, Store, StoreConfig};
use wakeq_service::access::{Access, AccessConfig, NewKey, Reach, Scope};
use wakeq_service::server::{HttpConfig, HttpServer};
use wakeq_testbed::{Cluster, ClusterOptions};

const ROUNDS: usize = 5;
const EMITTED: usize = 10_000;
const CALLERS: usize = 32;
const BODY: &str = r#"{"name":"bench","value":{}}"#;

#[tokio::main]
async fn main() {
    // `cargo test --benches` only checks that it starts.
    if std::env::args().any(|argument| argument == "--test") {
        return;
    }
    let cluster = Cluster::start(ClusterOptions::default()).await.unwrap();
    let url = cluster.url("postgres");
    Store::migrate(&url, false).await.unwrap();
    let bench = Bench::start(&url).await;
    let mut rounds = Vec::new();
    for round in 0..=ROUNDS {
        // The two take turns at going first. Round 0 opens the connections and is not counted.
        let (library_s, http_s) = if round % 2 == 0 {
            let library_s = bench.library().await;
            (library_s, bench.http().await)
        } else {
            let http_s = bench.http().await;
            (bench.library().await, http_s)
        };
        println!("round {round}: library {library_s:.0}/s, HTTP {http_s:.0}/s");
        if round > 0 {
            rounds.push((library_s, http_s));
        }
    }
    report(&rounds);
    cluster.stop().await.unwrap();
}

struct Bench {
    queue: Queue,
    notifier: Arc<MemoryNotifier>,
    pool: PgPool,
    clients: Vec<reqwest::Client>,
    url: String,
    key: String,
}

impl Bench {
    async fn start(url: &str) -> Self {
        let store = Store::connect(url, StoreConfig::default()).await.unwrap();
        let notifier = Arc::new(MemoryNotifier::new());
        let queue = Queue::new(store.clone(), notifier.clone(), QueueConfig::default());
        let access = Access::new(store.clone(), AccessConfig::default()).unwrap();
        let reach = Reach::Canvas(CanvasId::DEFAULT);
        let new = NewKey {
            holder: "bench".into(),
            reach,
            scopes: [Scope::Emit].into_iter().collect(),
            lifetime: None,
        };
        let key = access.create_key(&new, &Actor::admin("bench")).await.unwrap().key.reveal();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let most = 1_000_000;
        let rates = HttpConfig {
            credential_rate: most,
            canvas_rate: most,
            canvas_event_rate: most,
            ..HttpConfig::default()
        };
        let config = HttpConfig { address, ..rates };
        let server = HttpServer::bind(store, notifier.clone(), config).await.unwrap();
        let url_of_events =
            format!("http://{}/v1/canvases/{}/events", server.local_address(), CanvasId::DEFAULT);
        tokio::spawn(server.run());
        let client = || reqwest::Client::builder().no_proxy().build().unwrap();
        Self {
            queue,
            notifier,
            pool: PgPool::connect(url).await.unwrap(),
            clients: (0..CALLERS).map(|_| client()).collect(),
            url: url_of_events,
            key,
        }
    }

    /// Emits from tasks of this process.
    async fn library(&self) -> f64 {
        let started = Instant::now();
        let tasks = (0..CALLERS).map(|_| {
            let queue = self.queue.clone();
            tokio::spawn(async move {
                for _ in 0..EMITTED / CALLERS {
                    queue.emit(Event::from_json("bench", "{}").unwrap()).await.unwrap();
                }
            })
        });
        join_all(tasks).await.into_iter().for_each(|task| task.unwrap());
        self.rate(started).await
    }

    /// Emits from clients over loopback, each request with a real key.
    async fn http(&self) -> f64 {
        let started = Instant::now();
        let tasks = self.clients.iter().cloned().map(|client| {
            let (url, key) = (self.url.clone(), self.key.clone());
            tokio::spawn(async move {
                for _ in 0..EMITTED / CALLERS {
                    let request =
                        client.post(&url).bearer_auth(&key).header("content-type", "application/json");
                    let answer = request.body(BODY).send().await.unwrap();
                    assert_eq!(answer.status(), reqwest::StatusCode::ACCEPTED);
                    answer.bytes().await.unwrap();
                }
            })
        });
        join_all(tasks).await.into_iter().for_each(|task| task.unwrap());
        self.rate(started).await
    }

    /// Requests per second since `started`. Checks that every request has left its row, then
    /// deletes the rows.
    async fn rate(&self, started: Instant) -> f64 {
        let emitted = EMITTED / CALLERS * CALLERS;
        let rate = emitted as f64 / started.elapsed().as_secs_f64();
        let count = "select count(*) from wakeq.events_v2";
        assert_eq!(sqlx::query_scalar::<_, i64>(count).fetch_one(&self.pool).await.unwrap(), emitted as i64);
        self.notifier.forget_everything();
        sqlx::query("truncate wakeq.events_v2").execute(&self.pool).await.unwrap();
        sqlx::query("checkpoint").execute(&self.pool).await.unwrap();
        rate
    }
}

fn report(rounds: &[(f64, f64)]) {
    let median = |mut figures: Vec<f64>| {
        figures.sort_by(f64::total_cmp);
        figures[figures.len() / 2]
    };
    let library_s = median(rounds.iter().map(|(library_s, _)| *library_s).collect());
    let http_s = median(rounds.iter().map(|(_, http_s)| *http_s).collect());
    let share = median(rounds.iter().map(|(library_s, http_s)| http_s / library_s).collect());
    println!();
    println!("medians of {ROUNDS} rounds");
    println!("emit, {CALLERS} tasks, by the library      {library_s:>9.0}/s");
    println!("emit, {CALLERS} clients, over HTTP         {http_s:>9.0}/s   {share:.2} times that");
}
