//! Peers in Rust for `cargo xtask bench --peers`: graphile_worker, apalis and riverqueue.
//!
//! The argument names one. It sets its tables up in the database of `DATABASE_URL`, reports the
//! size of its payloads, and answers each line of its input by a line of JSON.

mod apalis_peer;
mod graphile;
mod river;
mod work;

use std::io::BufRead;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use async_trait::async_trait;
use serde_json::{Value, json};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use work::Job;

const CALLERS: usize = 32;
const CALL: u64 = 1_000;
const WARMING: u64 = 200;
/// Until a worker listens.
const SETTLING: Duration = Duration::from_millis(1500);
const PATIENCE: Duration = Duration::from_secs(120);
const LOOK: Duration = Duration::from_millis(5);

/// What a worker is configured for: a backlog, or traffic, which includes idle periods.
#[derive(Clone, Copy, PartialEq)]
enum Mode {
    Backlog,
    Live,
}

/// A queue.
#[async_trait]
trait Peer: Send + Sync {
    /// Emits one job by the call for one, or many by the call for many.
    async fn emit(&self, jobs: Vec<Job>) -> Result<()>;

    async fn start(&self, mode: Mode) -> Result<Worker>;

    /// The statement that checks whether there is a job that has not completed.
    fn unfinished(&self) -> &'static str;
}

/// A peer, and connections to ask its tables.
struct Bench {
    peer: Arc<dyn Peer>,
    pool: PgPool,
}

/// A worker: its task stops it once it is told to.
struct Worker {
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<()>>,
}

#[tokio::main]
async fn main() -> Result<()> {
    let name = std::env::args().nth(1).context("name a peer")?;
    let url = std::env::var("DATABASE_URL").context("DATABASE_URL")?;
    let options = PgPoolOptions::new().max_connections(40).acquire_timeout(PATIENCE);
    let pool = options.connect(&url).await?;
    let bench = Bench { peer: peer(&name, pool.clone()).await?, pool };
    println!("{}", json!({ "payload_bytes": Job::bytes()? }));
    let mut worker = None;
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |at: usize| words.get(at).and_then(|word| word.parse().ok()).unwrap_or(1_u64);
        let reply = match words.first().copied() {
            Some("single") => single(&bench.peer, number(1)).await?,
            Some("bulk") => bulk(&bench.peer, number(1)).await?,
            Some("drain") => drain(&bench, number(1)).await?,
            Some("start") => start(&bench, &mut worker).await?,
            Some("rate") => rate(&bench, number(1), number(2)).await?,
            Some(_) | None => bail!("`{line}` is not a request"),
        };
        println!("{reply}");
    }
    Ok(())
}

async fn peer(name: &str, pool: PgPool) -> Result<Arc<dyn Peer>> {
    match name.rsplit_once('-').map_or(name, |(name, _)| name) {
        "graphile_worker" => Ok(Arc::new(graphile::Graphile::new(pool).await?)),
        "apalis" => Ok(Arc::new(apalis_peer::Apalis::new(pool).await?)),
        "riverqueue" => Ok(Arc::new(river::River::new(pool).await?)),
        _ => bail!("unknown peer {name}"),
    }
}

fn took(since: Instant) -> Value {
    json!({ "secs": since.elapsed().as_secs_f64() })
}

async fn single(peer: &Arc<dyn Peer>, count: u64) -> Result<Value> {
    let (since, next) = (Instant::now(), Arc::new(AtomicU64::new(0)));
    let callers: Vec<_> = (0..CALLERS)
        .map(|_| {
            let (peer, next) = (Arc::clone(peer), Arc::clone(&next));
            tokio::spawn(async move {
                while next.fetch_add(1, Ordering::Relaxed) < count {
                    peer.emit(vec![Job::new(0)]).await?;
                }
                anyhow::Ok(())
            })
        })
        .collect();
    for caller in callers {
        caller.await??;
    }
    Ok(took(since))
}

async fn bulk(peer: &Arc<dyn Peer>, count: u64) -> Result<Value> {
    let since = Instant::now();
    for from in (0..count).step_by(CALL as usize) {
        peer.emit((from..count.min(from + CALL)).map(|_| Job::new(0)).collect()).await?;
    }
    Ok(took(since))
}

async fn drain(bench: &Bench, count: u64) -> Result<Value> {
    let (since, before) = (Instant::now(), work::started());
    let worker = bench.peer.start(Mode::Backlog).await?;
    until(bench, before + count).await?;
    let reply = took(since);
    let _ = worker.stop.send(());
    worker.task.await??;
    Ok(reply)
}

async fn start(bench: &Bench, worker: &mut Option<Worker>) -> Result<Value> {
    let since = Instant::now();
    *worker = Some(bench.peer.start(Mode::Live).await?);
    tokio::time::sleep(SETTLING).await;
    let before = work::started();
    for _ in 0..WARMING {
        bench.peer.emit(vec![Job::new(0)]).await?;
    }
    until(bench, before + WARMING).await?;
    Ok(took(since))
}

/// Emits at a rate: each job counts from its intended start.
async fn rate(bench: &Bench, per_second: u64, secs: u64) -> Result<Value> {
    let (since, before, count) = (Instant::now(), work::started(), per_second * secs);
    let (began_us, runtime, peer) = (work::now_us(), Handle::current(), Arc::clone(&bench.peer));
    // A thread: tokio's timers are late by up to a millisecond.
    thread::spawn(move || {
        for number in 0..count {
            let after_us = number * 1_000_000 / per_second;
            let due = since + Duration::from_micros(after_us);
            while let Some(wait) = due.checked_duration_since(Instant::now()).filter(|wait| !wait.is_zero()) {
                thread::park_timeout(wait);
            }
            let (peer, job) = (Arc::clone(&peer), Job::new(began_us + after_us));
            runtime
                .spawn(async move { peer.emit(vec![job]).await.inspect_err(|error| eprintln!("{error:#}")) });
        }
    });
    until(bench, before + count).await?;
    let mut reply = work::percentiles();
    reply["secs"] = json!(since.elapsed().as_secs_f64());
    Ok(reply)
}

/// Waits until so many jobs have started, and then until none is left: the tables are asked only at
/// the end, so that it costs nearly nothing.
async fn until(bench: &Bench, count: u64) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while work::started() < count {
        if deadline < Instant::now() {
            bail!("{} of {count} jobs have started", work::started());
        }
        tokio::time::sleep(LOOK).await;
    }
    while sqlx::query_scalar(bench.peer.unfinished()).fetch_one(&bench.pool).await? {
        if deadline < Instant::now() {
            bail!("all {count} jobs have started, and not all have completed");
        }
        tokio::time::sleep(LOOK).await;
    }
    Ok(())
}
