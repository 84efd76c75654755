//! apalis with its Postgres storage. Traffic wakes it by LISTEN, with an interval as a fallback,
//! as in its own example. A backlog has larger batches at a short interval: only insertions notify.

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
/// Of its example with LISTEN.
const BACKSTOP: Duration = Duration::from_secs(5);
const CONCURRENCY: usize = 500;

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
        let batch = match mode {
            Mode::Backlog => 1_000,
            Mode::Live => 500,
        };
        let storage = PostgresStorage::<Job>::new(&self.pool)
            .with_config(Config::default().queue(QUEUE).batch_size(batch));
        let name = format!("bench-{}", self.workers.fetch_add(1, Ordering::Relaxed));
        let working = match mode {
            Mode::Backlog => {
                let storage = storage.poll_with_interval(Duration::from_millis(5));
                let worker = WorkerBuilder::new(name.as_str()).backend(storage).concurrency(CONCURRENCY);
                let worker = worker.build(handle);
                tokio::spawn(
                    async move { worker.run().await.map(drop).map_err(|error| anyhow!("{error:?}")) },
                )
            }
            Mode::Live => {
                let storage = storage.with_pubsub().poll_with_interval(BACKSTOP);
                let worker = WorkerBuilder::new(name.as_str()).backend(storage).concurrency(CONCURRENCY);
                let worker = worker.build(handle);
                tokio::spawn(
                    async move { worker.run().await.map(drop).map_err(|error| anyhow!("{error:?}")) },
                )
            }
        };
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(async move {
            let _ = stopped.await;
            working.abort();
            Ok(())
        });
        Ok(crate::Worker { stop, task })
    }

    fn unfinished(&self) -> &'static str {
        "select exists (select from apalis.jobs where status <> 'Done')"
    }
}
