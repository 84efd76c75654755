//! How fast the queue is, as ratios within one run: `cargo bench`.
//!
//! Each figure is compared with a baseline on the same Postgres, in interleaved rounds; the median
//! round is printed.
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a benchmark prints, and ends at the first error"
)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use sqlx::PgPool;
use tokio::sync::mpsc;
use wakeq::machine::Outcome;
use wakeq::notify::Notifier;
use wakeq::testing::MemoryNotifier;
use wakeq::{Event, Execution, Handlers, Queue, QueueConfig, QueueWorker, Store, StoreConfig, WorkerConfig};
use wakeq_services::{Cluster, ClusterOptions};

#[path = "queue/telemetry.rs"]
mod telemetry;

const ROUNDS: usize = 5;
const EMITTED: usize = 10_000;
const DRAINED: usize = 30_000;
const CALLERS: usize = 32;
/// How many events the raw loop claims and deletes at a time; the same as in the worker.
const BATCH: usize = 250;

#[tokio::main]
async fn main() {
    // `cargo test --benches` only checks that it starts.
    if std::env::args().any(|argument| argument == "--test") {
        return;
    }
    telemetry::start();
    let cluster = Cluster::start(ClusterOptions::default()).await.unwrap();
    let url = cluster.url("postgres");
    Store::migrate(&url, false).await.unwrap();
    sqlx::query("create extension if not exists pg_stat_statements")
        .execute(&PgPool::connect(&url).await.unwrap())
        .await
        .unwrap();
    let bench = Bench::connect(&url).await;
    let mut rounds = Vec::new();
    for round in 1..=ROUNDS {
        let figures = bench.round().await;
        println!("round {round}: {figures:?}");
        rounds.push(figures);
    }
    report(&rounds);
    cluster.stop().await.unwrap();
}

struct Bench {
    store: Store,
    queue: Queue,
    notifier: Arc<MemoryNotifier>,
    pool: PgPool,
}

/// Events per second, and milliseconds of statement execution per 1,000 events.
#[derive(Clone, Copy, Debug)]
struct Figures {
    emit_single_s: f64,
    emit_queue_s: f64,
    drain_raw_s: f64,
    drain_raw_exec_ms: f64,
    drain_worker_s: f64,
    drain_worker_exec_ms: f64,
    /// Milliseconds of processor time of this process per 1,000 events: without telemetry, with
    /// metrics, and with metrics and traces.
    drain_cpu_ms: [f64; 3],
}

impl Bench {
    async fn connect(url: &str) -> Self {
        let store = Store::connect(url, StoreConfig::default()).await.unwrap();
        let notifier = Arc::new(MemoryNotifier::new());
        let queue = Queue::new(store.clone(), notifier.clone(), QueueConfig::default());
        let options = sqlx::postgres::PgPoolOptions::new().max_connections(CALLERS as u32);
        Self { store, queue, notifier, pool: options.connect(url).await.unwrap() }
    }

    async fn round(&self) -> Figures {
        let emit_single_s = self.emit_single().await;
        self.clear().await;
        let emit_queue_s = self.emit_queue().await;
        self.clear().await;
        let (drain_raw_s, drain_raw_exec_ms) = self.drain_raw().await;
        let mut drain_cpu_ms = [0.0; 3];
        let mut drained = (0.0, 0.0);
        for (index, (metrics, traces)) in
            [(true, true), (true, false), (false, false)].into_iter().enumerate()
        {
            telemetry::switch(metrics, traces);
            let (rate, exec_ms, cpu_ms) = self.drain_worker().await;
            drained = (rate, exec_ms);
            drain_cpu_ms[2 - index] = cpu_ms;
        }
        let (drain_worker_s, drain_worker_exec_ms) = drained;
        Figures {
            emit_single_s,
            emit_queue_s,
            drain_raw_s,
            drain_raw_exec_ms,
            drain_worker_s,
            drain_worker_exec_ms,
            drain_cpu_ms,
        }
    }

    async fn clear(&self) {
        self.notifier.forget_everything();
        sqlx::query("truncate wakeq.events_v2").execute(&self.pool).await.unwrap();
        sqlx::query("checkpoint").execute(&self.pool).await.unwrap();
    }

    /// The baseline: as many connections as callers, one row per statement.
    async fn emit_single(&self) -> f64 {
        let sql = "insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value)
                   values ($1, $2, 'WORKER', 'bench', '_', '{}')";
        let started = Instant::now();
        join_all((0..CALLERS).map(|_| async {
            for _ in 0..EMITTED / CALLERS {
                let query = sqlx::query(sql).bind(uuid::Uuid::now_v7()).bind(uuid::Uuid::nil());
                query.execute(&self.pool).await.unwrap();
            }
        }))
        .await;
        EMITTED as f64 / started.elapsed().as_secs_f64()
    }

    async fn emit_queue(&self) -> f64 {
        let started = Instant::now();
        join_all((0..CALLERS).map(|_| async {
            for _ in 0..EMITTED / CALLERS {
                self.queue.emit(Event::new("bench", &()).unwrap()).await.unwrap();
            }
        }))
        .await;
        EMITTED as f64 / started.elapsed().as_secs_f64()
    }

    async fn preload(&self) {
        for _ in 0..DRAINED / 10_000 {
            let events = (0..10_000).map(|_| Event::new("bench", &()).unwrap()).collect();
            self.queue.emit_all(events).await.unwrap();
        }
        sqlx::query("checkpoint").execute(&self.pool).await.unwrap();
        sqlx::query("select pg_stat_statements_reset()").execute(&self.pool).await.unwrap();
    }

    async fn exec_ms(&self) -> f64 {
        let sql = "select sum(total_exec_time) from pg_stat_statements where query ilike '%wakeq.%'";
        let total: f64 = sqlx::query_scalar(sql).fetch_one(&self.pool).await.unwrap();
        total * 1000.0 / DRAINED as f64
    }

    /// The ceiling: claims and deletes in batches on two connections, with nothing around them.
    async fn drain_raw(&self) -> (f64, f64) {
        self.preload().await;
        let ids: Vec<uuid::Uuid> = sqlx::query_scalar("select id from wakeq.events_v2 order by id")
            .fetch_all(&self.pool)
            .await
            .unwrap();
        let halves: Vec<Vec<uuid::Uuid>> = ids.chunks(DRAINED / 2).map(<[_]>::to_vec).collect();
        let started = Instant::now();
        join_all(halves.iter().map(|half| async {
            for batch in half.chunks(BATCH) {
                let claim = "select id from wakeq.claim(
                    $1, '{}', '00000000-0000-0000-0000-000000000000', '{WORKER/bench/_}', '{}', '1 min', 2)";
                let claimed: Vec<uuid::Uuid> =
                    sqlx::query_scalar(claim).bind(batch).fetch_all(&self.pool).await.unwrap();
                assert_eq!(claimed.len(), batch.len());
                let delete = "delete from wakeq.events_v2 where id = any ($1)";
                sqlx::query(delete).bind(claimed).execute(&self.pool).await.unwrap();
            }
        }))
        .await;
        let rate = DRAINED as f64 / started.elapsed().as_secs_f64();
        let exec_ms = self.exec_ms().await;
        self.clear().await;
        (rate, exec_ms)
    }

    async fn drain_worker(&self) -> (f64, f64, f64) {
        self.preload().await;
        let (done, mut ended) = mpsc::channel(DRAINED);
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
        let (started, cpu) = (Instant::now(), cpu_ms());
        let running = tokio::spawn(worker.run());
        for _ in 0..DRAINED {
            ended.recv().await.unwrap();
        }
        while counters.outcome(Outcome::Deleted) < DRAINED as u64 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let rate = DRAINED as f64 / started.elapsed().as_secs_f64();
        let cpu_ms = (cpu_ms() - cpu) * 1000.0 / DRAINED as f64;
        let exec_ms = self.exec_ms().await;
        stop.cancel();
        running.await.unwrap().unwrap();
        self.clear().await;
        (rate, exec_ms, cpu_ms)
    }
}

fn report(rounds: &[Figures]) {
    let median = |figure: fn(&Figures) -> f64| {
        let mut figures: Vec<f64> = rounds.iter().map(figure).collect();
        figures.sort_by(f64::total_cmp);
        figures[figures.len() / 2]
    };
    println!();
    println!("medians of {ROUNDS} rounds");
    println!("emit, {CALLERS} callers, one row a statement   {:>9.0}/s", median(|round| round.emit_single_s));
    println!(
        "emit, {CALLERS} callers, through the queue      {:>9.0}/s   {:.2} times that",
        median(|round| round.emit_queue_s),
        median(|round| round.emit_queue_s / round.emit_single_s)
    );
    println!(
        "claim and delete, raw, 2 connections    {:>9.0}/s   {:.1} ms in Postgres per 1,000",
        median(|round| round.drain_raw_s),
        median(|round| round.drain_raw_exec_ms)
    );
    println!(
        "the same through a worker               {:>9.0}/s   {:.1} ms in Postgres per 1,000, {:.2} times the raw rate",
        median(|round| round.drain_worker_s),
        median(|round| round.drain_worker_exec_ms),
        median(|round| round.drain_worker_s / round.drain_raw_s)
    );
    let cpu = |index: usize| {
        let mut figures: Vec<f64> = rounds.iter().map(|round| round.drain_cpu_ms[index]).collect();
        figures.sort_by(f64::total_cmp);
        figures[figures.len() / 2]
    };
    println!(
        "what this process's processors did for 1,000 events: {:.1} ms, with metrics {:.1} ms, with all traces too {:.1} ms",
        cpu(0),
        cpu(1),
        cpu(2)
    );
}

/// The processor time that this process has used.
fn cpu_ms() -> f64 {
    let usage = getrusage(UsageWho::RUSAGE_SELF).unwrap();
    [usage.user_time(), usage.system_time()].iter().map(|time| time.num_microseconds() as f64 / 1000.0).sum()
}
