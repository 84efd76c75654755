//! What ordering costs: `cargo bench --bench order`.
//!
//! Events on one hot object, on many, and on none, through the queue and a worker, in interleaved
//! rounds; the median round is printed. With `-- busy`, instead: a worker with a short lease and
//! its whole backlog from the start, which may lose no claim, and how long the objects waited.
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a benchmark prints, and ends at the first error"
)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use sqlx::PgPool;
use tokio::sync::mpsc;
use wakeq::machine::Outcome;
use wakeq::notify::Notifier;
use wakeq::testing::MemoryNotifier;
use wakeq::{
    Event, Execution, Handlers, Queue, QueueConfig, QueueWorker, Store, StoreConfig, Timing, WorkerConfig,
};
use wakeq_testbed::{Cluster, ClusterOptions};

const ROUNDS: usize = 5;
const CALLERS: usize = 32;
const EMITTED: usize = 3_200;
/// Events and objects of the busy worker.
const BACKLOG: usize = 100_000;
const OBJECTS: usize = 1_000;

#[tokio::main]
async fn main() {
    // `cargo test --benches` only checks that it starts.
    if std::env::args().any(|argument| argument == "--test") {
        return;
    }
    let cluster = Cluster::start(ClusterOptions::default()).await.unwrap();
    if std::env::args().any(|argument| argument == "busy") {
        busy(&cluster).await;
    } else {
        on_objects(&cluster).await;
    }
    cluster.stop().await.unwrap();
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// Which objects the events of a round are on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum On {
    Nothing,
    Many,
    One,
}

/// Events per second, and milliseconds of statement execution per 1,000 events: emitted one by one,
/// emitted in hundreds, run.
type Figures = [(f64, f64); 3];

struct Bench {
    store: Store,
    queue: Queue,
    notifier: Arc<MemoryNotifier>,
    pool: PgPool,
}

async fn on_objects(cluster: &Cluster) {
    let url = cluster.url("postgres");
    Store::migrate(&url, false).await.unwrap();
    let pool = PgPool::connect(&url).await.unwrap();
    sqlx::query("create extension if not exists pg_stat_statements").execute(&pool).await.unwrap();
    let store = Store::connect(&url, StoreConfig::default()).await.unwrap();
    let notifier = Arc::new(MemoryNotifier::new());
    let queue = Queue::new(store.clone(), notifier.clone(), QueueConfig::default());
    let bench = Bench { store, queue, notifier, pool };
    let kinds = [On::Nothing, On::Many, On::One];
    let mut rounds: Vec<[Figures; 3]> = Vec::new();
    for round in 1..=ROUNDS {
        let mut figures = [[(0.0, 0.0); 3]; 3];
        for (at, on) in kinds.into_iter().enumerate() {
            figures[at] = bench.round(on).await;
        }
        println!("round {round}: {figures:.1?}");
        rounds.push(figures);
    }
    println!("\nmedians of {ROUNDS} rounds of {EMITTED} events: events a second, ms in Postgres per 1,000");
    println!("{:<30} {:>20} {:>20} {:>20}", "", "on no object", "on 1,000 objects", "on one object");
    for (at, what) in
        ["emitted singly, 32 callers", "emitted in hundreds, 1 caller", "run by a worker of 1,000"]
            .into_iter()
            .enumerate()
    {
        let cell = |kind: usize| {
            let rate = median(rounds.iter().map(|round| round[kind][at].0).collect());
            let exec_ms = median(rounds.iter().map(|round| round[kind][at].1).collect());
            format!("{rate:.0}/s {exec_ms:.0} ms")
        };
        println!("{what:<30} {:>20} {:>20} {:>20}", cell(0), cell(1), cell(2));
    }
}

impl Bench {
    async fn round(&self, on: On) -> Figures {
        let single = self.measured(self.emit_singly(on)).await;
        self.clear().await;
        let hundreds = self.measured(self.emit_in_hundreds(on)).await;
        let run = self.measured(self.drain()).await;
        self.clear().await;
        [single, hundreds, run]
    }

    async fn clear(&self) {
        self.notifier.forget_everything();
        sqlx::query("truncate wakeq.events_v2, wakeq.objects").execute(&self.pool).await.unwrap();
        sqlx::query("checkpoint").execute(&self.pool).await.unwrap();
    }

    async fn measured(&self, work: impl Future<Output = f64>) -> (f64, f64) {
        sqlx::query("select pg_stat_statements_reset()").execute(&self.pool).await.unwrap();
        let took_s = work.await;
        let sql = "select sum(total_exec_time) from pg_stat_statements where query ilike '%wakeq.%' or query ilike 'commit'";
        let exec_ms: f64 = sqlx::query_scalar(sql).fetch_one(&self.pool).await.unwrap();
        (EMITTED as f64 / took_s, exec_ms * 1000.0 / EMITTED as f64)
    }

    async fn emit_singly(&self, on: On) -> f64 {
        let started = Instant::now();
        join_all((0..CALLERS).map(|caller| async move {
            for at in 0..EMITTED / CALLERS {
                let event = event(on, caller * (EMITTED / CALLERS) + at);
                // An emit that waits too long for the object is refused and leaves nothing behind.
                while self.queue.emit(event.clone()).await.is_err() {}
            }
        }))
        .await;
        started.elapsed().as_secs_f64()
    }

    async fn emit_in_hundreds(&self, on: On) -> f64 {
        let started = Instant::now();
        for page in 0..EMITTED / 100 {
            let events = (0..100).map(|at| event(on, page * 100 + at)).collect();
            self.queue.emit_all(events).await.unwrap();
        }
        started.elapsed().as_secs_f64()
    }

    async fn drain(&self) -> f64 {
        let (done, mut ended) = mpsc::channel(EMITTED);
        let handlers = Handlers::new().on("bench", move |_event: Execution| {
            let done = done.clone();
            async move {
                done.send(()).await?;
                Ok(())
            }
        });
        let config = WorkerConfig { capacity: 1000, ..WorkerConfig::default() };
        let notifier: Arc<dyn Notifier> = self.notifier.clone();
        let worker = QueueWorker::new(self.store.clone(), notifier, handlers, config).unwrap();
        let (stop, counters) = (worker.stop_token(), worker.counters());
        let started = Instant::now();
        let running = tokio::spawn(worker.run());
        for _ in 0..EMITTED {
            ended.recv().await.unwrap();
        }
        while counters.outcome(Outcome::Deleted) < EMITTED as u64 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let took_s = started.elapsed().as_secs_f64();
        stop.cancel();
        running.await.unwrap().unwrap();
        took_s
    }
}

fn event(on: On, at: usize) -> Event {
    let event = Event::new("bench", &()).unwrap();
    match on {
        On::Nothing => event,
        On::Many => event.on(&format!("work:{}", at % 1000)).unwrap(),
        On::One => event.on("work:1").unwrap(),
    }
}

/// A worker whose lease is 3 s drains a backlog on many objects that is there before it starts.
/// Prints how long it took, and the times between the end of an object's event and the start of its
/// next one; fails if a claim is lost or an event runs out of order.
async fn busy(cluster: &Cluster) {
    let url = cluster.url("postgres");
    Store::migrate(&url, false).await.unwrap();
    let timing =
        Timing { lease: Duration::from_secs(3), horizon: Duration::from_secs(60), ..Timing::default() };
    let store =
        Store::connect(&url, StoreConfig { timing: Some(timing), ..StoreConfig::default() }).await.unwrap();
    let notifier = Arc::new(MemoryNotifier::new());
    let queue = Queue::new(store.clone(), notifier.clone(), QueueConfig::default());
    for page in 0..BACKLOG / OBJECTS {
        let events = (0..OBJECTS).map(|at| event(On::Many, page * OBJECTS + at)).collect();
        queue.emit_all(events).await.unwrap();
    }
    let (done, mut ended) = mpsc::channel(BACKLOG);
    let handlers = Handlers::new().on("bench", move |event: Execution| {
        let done = done.clone();
        async move {
            let place = event.place.expect("it is on an object");
            let began = Instant::now();
            done.send((place.object, place.link.id, began, Instant::now())).await?;
            Ok(())
        }
    });
    let notifier: Arc<dyn Notifier> = notifier;
    let worker = QueueWorker::new(store, notifier, handlers, WorkerConfig::default()).unwrap();
    let (stop, counters) = (worker.stop_token(), worker.counters());
    let started = Instant::now();
    let running = tokio::spawn(worker.run());
    let mut runs = Vec::with_capacity(BACKLOG);
    while runs.len() < BACKLOG {
        runs.push(ended.recv().await.unwrap());
    }
    let took_s = started.elapsed().as_secs_f64();
    while counters.outcome(Outcome::Deleted) < BACKLOG as u64 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    stop.cancel();
    running.await.unwrap().unwrap();
    let lost = [Outcome::FencedOut, Outcome::LeaseLost].map(|outcome| counters.outcome(outcome));
    assert_eq!(lost, [0, 0], "claims lost");
    runs.sort_by_key(|(object, link, ..)| (object.to_string(), *link));
    let pairs = runs.windows(2).filter(|pair| pair[0].0 == pair[1].0);
    let mut waits: Vec<f64> = pairs
        .map(|pair| pair[1].2.checked_duration_since(pair[0].3).expect("in order").as_secs_f64() * 1000.0)
        .collect();
    waits.sort_by(f64::total_cmp);
    let at = |percent: usize| waits[(waits.len() - 1) * percent / 100];
    println!("{BACKLOG} events on {OBJECTS} objects in {took_s:.1} s: no claim lost");
    println!(
        "an object's next began after p50 {:.0} ms, p99 {:.0} ms, longest {:.0} ms",
        at(50),
        at(99),
        at(100)
    );
}
