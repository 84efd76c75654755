//! What registered queues cost emitters, and what turns cost: `cargo bench --bench queues`.
//!
//! First, the inserting statement without the comparison with the registry, and with it while no
//! queue is registered, batch by batch in turns. Then emits through the queue with 0, 1, 10 and 100
//! registered patterns, none of which matches, and with one that does, in interleaved rounds. Last,
//! a busy canvas beside quiet ones, and the quiet ones alone.
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a benchmark prints, and ends at the first error"
)]

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use sqlx::{AssertSqlSafe, Connection, PgConnection, PgPool};
use uuid::Uuid;
use wakeq::notify::Notifier;
use wakeq::testing::MemoryNotifier;
use wakeq::{
    CanvasId, Event, Execution, Handlers, Queue, QueueConfig, QueueWorker, Store, StoreConfig, WorkerConfig,
};
use wakeq_testbed::{Cluster, ClusterOptions};

const BATCH: usize = 250;
const BATCHES: usize = 400;
const ROUNDS: usize = 5;
const CALLERS: usize = 32;
const EMITTED: usize = 6_400;
const BUSY: u64 = 100_000;
const QUIET: u128 = 49;
const EACH: u64 = 100;
const CAPACITY: usize = 64;

/// As in `src/store/events/rows.rs`, except for the comparison with the registry.
const INSERT: &str = "insert into wakeq.events_v2
        (id, canvas_id, module, name, modifier, value, delay_until, notify_at, traceparent)
    select new.id, new.canvas_id, new.module, new.name, new.modifier, new.value, due.at,
           wakeq.wake_at(due.at, clock_timestamp(), '10 min', '30 s'), new.traceparent
      from unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::text[], $6::text[],
                  $7::timestamptz[], $8::float8[], $9::text[])
           as new (id, canvas_id, module, name, modifier, value, moment, delay_s, traceparent),
           lateral (select coalesce(new.moment, now() + new.delay_s * interval '1 second')) as due (at)";
const COMPARED: &str = " where (select version from wakeq.queue_registry) = $10";
const RETURNING: &str = " returning id, delay_until <= clock_timestamp() + interval '10 min'";

#[tokio::main]
async fn main() {
    // `cargo test --benches` only checks that it starts.
    if std::env::args().any(|argument| argument == "--test") {
        return;
    }
    let cluster = Cluster::start(ClusterOptions::default()).await.unwrap();
    let url = cluster.url("postgres");
    Store::migrate(&url, false).await.unwrap();
    compared(&url).await;
    let bench = Bench::connect(&url).await;
    bench.patterns().await;
    bench.fairness().await;
    cluster.stop().await.unwrap();
}

/// Compares the statement with and without the comparison, on one connection.
async fn compared(url: &str) {
    let mut connection = PgConnection::connect(url).await.unwrap();
    let mut took = [Vec::new(), Vec::new()];
    let with = format!("{INSERT}{COMPARED}{RETURNING}");
    let without = format!("{INSERT}{RETURNING}");
    for batch in 0..BATCHES {
        for at in if batch % 2 == 0 { [0, 1] } else { [1, 0] } {
            let sql = if at == 0 { &without } else { &with };
            let ids: Vec<Uuid> = (0..BATCH).map(|_| Uuid::now_v7()).collect();
            let text = |text: &str| vec![text.to_owned(); BATCH];
            let query = sqlx::query(AssertSqlSafe(sql.clone()))
                .bind(ids)
                .bind(vec![Uuid::nil(); BATCH])
                .bind(text("WORKER"))
                .bind(text("bench"))
                .bind(text("_"))
                .bind(text("{}"))
                .bind(vec![None::<wakeq::Timestamp>; BATCH])
                .bind(vec![0.0_f64; BATCH])
                .bind(text("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"));
            let query = if at == 0 { query } else { query.bind(0_i64) };
            let started = Instant::now();
            let rows = query.fetch_all(&mut connection).await.unwrap();
            assert_eq!(rows.len(), BATCH);
            if batch > BATCHES / 10 {
                took[at].push(started.elapsed().as_secs_f64() * 1000.0);
            }
            sqlx::query("delete from wakeq.events_v2").execute(&mut connection).await.unwrap();
        }
    }
    let [without, with] = took.map(median);
    println!(
        "emit of {BATCH}, one statement: {without:.3} ms; compared with the registry, without a queue: {with:.3} ms, {:+.1} %\n",
        (with / without - 1.0) * 100.0
    );
}

struct Bench {
    store: Store,
    notifier: Arc<MemoryNotifier>,
    pool: PgPool,
}

impl Bench {
    async fn connect(url: &str) -> Self {
        let store = Store::connect(url, StoreConfig::default()).await.unwrap();
        Self { store, notifier: Arc::new(MemoryNotifier::new()), pool: PgPool::connect(url).await.unwrap() }
    }

    fn queue(&self) -> Queue {
        Queue::new(self.store.clone(), self.notifier.clone(), QueueConfig::default())
    }

    async fn clear(&self) {
        self.notifier.forget_everything();
        sqlx::raw_sql("truncate wakeq.events_v2, wakeq.facets; checkpoint")
            .execute(&self.pool)
            .await
            .unwrap();
    }

    async fn register(&self, patterns: &[String]) {
        sqlx::raw_sql("delete from wakeq.queues").execute(&self.pool).await.unwrap();
        for (at, pattern) in patterns.iter().enumerate() {
            let put = "with q as (insert into wakeq.queues (name, created_by, updated_by) values ($1, 'bench', 'bench'))
                       select 1";
            sqlx::query(put).bind(format!("q{at}")).execute(&self.pool).await.unwrap();
            sqlx::query("insert into wakeq.queue_patterns (queue, pattern) values ($1, $2)")
                .bind(format!("q{at}"))
                .bind(pattern)
                .execute(&self.pool)
                .await
                .unwrap();
        }
        sqlx::raw_sql("update wakeq.queue_registry set version = version + 1")
            .execute(&self.pool)
            .await
            .unwrap();
    }

    async fn patterns(&self) {
        let none = |count: usize| (0..count).map(|at| format!("^.*:module{at}:(a|b)+$")).collect::<Vec<_>>();
        let sets = [
            ("none", none(0)),
            ("1", none(1)),
            ("10", none(10)),
            ("100", none(100)),
            ("1 that matches", vec!["bench".into()]),
        ];
        let mut rates = vec![Vec::new(); sets.len()];
        for _ in 0..ROUNDS {
            for (at, (_, patterns)) in sets.iter().enumerate() {
                self.register(patterns).await;
                let queue = self.queue();
                queue.emit(Event::new("bench", &()).unwrap()).await.unwrap();
                let started = Instant::now();
                join_all((0..CALLERS).map(|_| async {
                    for _ in 0..EMITTED / CALLERS {
                        queue.emit(Event::new("bench", &()).unwrap()).await.unwrap();
                    }
                }))
                .await;
                rates[at].push(EMITTED as f64 / started.elapsed().as_secs_f64());
                self.clear().await;
            }
        }
        println!("emit, {CALLERS} callers, medians of {ROUNDS} rounds, by registered patterns");
        for (at, (what, _)) in sets.iter().enumerate() {
            let ratios = rates[at].iter().zip(&rates[0]).map(|(rate, base)| rate / base).collect();
            println!("{what:<16} {:>8.0}/s   {:.2} times", median(rates[at].clone()), median(ratios));
        }
        println!();
    }

    /// When the events of each quiet canvas had run, with and without a busy one beside them, and
    /// after how many turns.
    async fn fairness(&self) {
        self.register(&["bench".to_owned()]).await;
        let mut took = [Vec::new(), Vec::new()];
        for _ in 0..3 {
            for (at, busy) in [(0, 0), (1, BUSY)] {
                let (elapsed, turns) = self.quiet_beside(busy).await;
                took[at].push(elapsed.as_secs_f64());
                println!(
                    "{QUIET} quiet canvases beside {busy} events: all {EACH} of each after {elapsed:.1?}, {turns} turns"
                );
                self.clear().await;
            }
        }
        let [alone, beside] = took.map(median);
        println!("beside the busy one {:.2} times as long", beside / alone);
    }

    async fn quiet_beside(&self, busy: u64) -> (Duration, usize) {
        let queue = self.queue();
        let event = |canvas: u128, value: u64| {
            let event = Event::new("bench", &value).unwrap().only_to_queues();
            event.canvas(CanvasId(Uuid::from_u128(canvas)))
        };
        for from in (0..busy).step_by(10_000) {
            queue.emit_all((from..from + 10_000).map(|value| event(1, value)).collect()).await.unwrap();
        }
        for canvas in 2..2 + QUIET {
            queue.emit_all((0..EACH).map(|value| event(canvas, value)).collect()).await.unwrap();
        }
        let ran = Arc::new(Mutex::new((0_usize, 0_u64)));
        let (counted, (done, mut ended)) = (Arc::clone(&ran), tokio::sync::mpsc::channel(1));
        let handlers = Handlers::new().on_queue("q0", move |event: Execution| {
            let (counted, done) = (Arc::clone(&counted), done.clone());
            async move {
                let turns = {
                    let mut ran = counted.lock().unwrap();
                    ran.0 += 1;
                    ran.1 += u64::from(event.address.scope.canvas.0.as_u128() != 1);
                    (ran.1 == QUIET as u64 * EACH).then_some(ran.0)
                };
                if let Some(turns) = turns {
                    let _ = done.try_send(turns);
                }
                Ok(())
            }
        });
        let config = WorkerConfig { capacity: CAPACITY, ..WorkerConfig::default() };
        let notifier: Arc<dyn Notifier> = self.notifier.clone();
        let worker = QueueWorker::new(self.store.clone(), notifier, handlers, config).unwrap();
        let (stop, started) = (worker.stop_token(), Instant::now());
        let running = tokio::spawn(worker.run());
        let turns = ended.recv().await.unwrap();
        let elapsed = started.elapsed();
        stop.cancel();
        running.await.unwrap().unwrap();
        (elapsed, turns)
    }
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}
