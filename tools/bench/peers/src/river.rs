//! River for Rust, with a short cooldown: notifications wake it, with its default interval as a
//! fallback. A backlog has the interval and the number of workers of River's own benchmark.

use std::time::Duration;

use anyhow::Result;
use async_trait::async_trait;
use riverqueue::migrate::PostgresMigrator;
use riverqueue::{BoxError, Client, QUEUE_DEFAULT, QueueConfig, WorkContext, WorkOutcome, Workers};
use sqlx::PgPool;
use tokio::sync::oneshot;

use crate::work::{self, Job};
use crate::{Mode, Peer, Worker};

/// Also how often an insertion notifies at most.
const COOLDOWN: Duration = Duration::from_millis(2);

pub(crate) struct River {
    pool: PgPool,
    /// Only inserts.
    client: Client,
}

impl River {
    pub(crate) async fn new(pool: PgPool) -> Result<Self> {
        PostgresMigrator::new(pool.clone()).migrate_up().await?;
        let client = Client::builder(pool.clone()).fetch_cooldown(COOLDOWN).build()?;
        Ok(Self { pool, client })
    }
}

async fn handle(_context: WorkContext, job: riverqueue::Job<Job>) -> Result<WorkOutcome, BoxError> {
    work::start(&job.args);
    Ok(WorkOutcome::Complete)
}

#[async_trait]
impl Peer for River {
    async fn emit(&self, mut jobs: Vec<Job>) -> Result<()> {
        if jobs.len() > 1 {
            self.client.insert_many::<Job, _>(jobs).await?;
        } else if let Some(job) = jobs.pop() {
            self.client.insert(job).await?;
        }
        Ok(())
    }

    async fn start(&self, mode: Mode) -> Result<Worker> {
        let queue = match mode {
            Mode::Backlog => QueueConfig::new(2_000).with_fetch_poll_interval(Duration::from_millis(20)),
            Mode::Live => QueueConfig::new(100),
        };
        let mut workers = Workers::new();
        workers.add_fn(handle)?;
        let client = Client::builder(self.pool.clone())
            .fetch_cooldown(COOLDOWN)
            .workers(workers)
            .queue(QUEUE_DEFAULT, queue)
            .build()?;
        let mut running = client.start()?;
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(async move {
            let _ = stopped.await;
            Ok(running.stop().await?)
        });
        Ok(Worker { stop, task })
    }

    fn unfinished(&self) -> &'static str {
        "select exists (select from river_job
             where state in ('available', 'pending', 'retryable', 'running', 'scheduled', 'discarded', 'cancelled'))"
    }
}
