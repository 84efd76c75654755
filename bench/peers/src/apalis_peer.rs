//! apalis with its Postgres storage: large batches, at a fixed short interval; by LISTEN when idle.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Result, anyhow};
use apalis::prelude::*;
use apalis_postgres::{Config, PostgresStorage};
use async_trait::async_trait;
use sqlx::PgPool;
use tokio::sync::oneshot;

use crate::work::{self, Job};
use crate::{Mode, Peer};

const QUEUE: &str = "bench";
/// It acknowledges in the background: what a worker needs after the last job has started.
const ACKNOWLEDGED: Duration = Duration::from_millis(500);

pub(crate) struct Apalis {
    pool: PgPool,
    workers: AtomicU32,
}

impl Apalis {
    pub(crate) async fn new(pool: PgPool) -> Result<Self> {
        PostgresStorage::setup(&pool).await.map_err(|error| anyhow!("{error:?}"))?;
        Ok(Self { pool, workers: AtomicU32::new(0) })
    }
}

async fn handle(job: Job) -> Result<(), BoxDynError> {
    work::start(&job);
    Ok(())
}

#[async_trait]
impl Peer for Apalis {
    async fn emit(&self, jobs: Vec<Job>) -> Result<()> {
        let mut tasks = Vec::with_capacity(jobs.len());
        for job in jobs {
            tasks.push(TaskBuilder::new(serde_json::to_vec(&job)?).build());
        }
        let mut connection = self.pool.acquire().await?;
        let pushed = apalis_postgres::queries::push_tasks(&mut *connection, QUEUE, tasks).await;
        pushed.map_err(|error| anyhow!("{error:?}"))
    }

    async fn start(&self, mode: Mode) -> Result<crate::Worker> {
        let (batch, interval) = match mode {
            Mode::Backlog => (1_000, Duration::from_millis(5)),
            Mode::Live => (500, Duration::from_millis(100)),
            Mode::Idle => (10, Duration::ZERO),
        };
        let storage = PostgresStorage::<Job>::new(&self.pool)
            .with_config(Config::default().queue(QUEUE).batch_size(batch));
        let name = format!("bench-{}", self.workers.fetch_add(1, Ordering::Relaxed));
        let working = if mode == Mode::Idle {
            let storage = storage.with_pubsub();
            tokio::spawn(async move {
                let worker =
                    WorkerBuilder::new(name.as_str()).backend(storage).concurrency(500).build(handle);
                worker.run().await.map(|_| ()).map_err(|error| anyhow!("{error:?}"))
            })
        } else {
            let storage = storage.poll_with_interval(interval);
            tokio::spawn(async move {
                let worker =
                    WorkerBuilder::new(name.as_str()).backend(storage).concurrency(500).build(handle);
                worker.run().await.map(|_| ()).map_err(|error| anyhow!("{error:?}"))
            })
        };
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(async move {
            let _ = stopped.await;
            tokio::time::sleep(ACKNOWLEDGED).await;
            working.abort();
            Ok(())
        });
        Ok(crate::Worker { stop, task })
    }
}
