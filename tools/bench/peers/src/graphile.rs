//! graphile_worker with its local queue and batched completions, its documented way to throughput.
//! For traffic the queue has the sizes and the delay of its guide: without the delay, an idle
//! worker queries without pause. A backlog has the settings of its own benchmark.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, anyhow};
use async_trait::async_trait;
use graphile_worker::{
    Database, IntoTaskHandlerResult, JobSpec, LocalQueueConfig, RawJobSpec, RefetchDelayConfig, TaskHandler,
    WorkerContext, WorkerOptions, WorkerUtils,
};
use sqlx::PgPool;
use tokio::sync::oneshot;

use crate::work::{self, Job};
use crate::{Mode, Peer, Worker};

const SCHEMA: &str = "graphile_worker";
const BATCH: Duration = Duration::from_millis(5);

pub(crate) struct Graphile {
    database: Database,
    utils: WorkerUtils,
}

impl Graphile {
    pub(crate) async fn new(pool: PgPool) -> Result<Self> {
        let database: Database = pool.into();
        let utils = WorkerUtils::new(database.clone(), SCHEMA);
        utils.migrate().await.map_err(|error| anyhow!("{error:?}"))?;
        Ok(Self { database, utils })
    }
}

impl TaskHandler for Job {
    const IDENTIFIER: &'static str = "bench";

    async fn run(self, _context: WorkerContext) -> impl IntoTaskHandlerResult {
        work::start(&self);
        Ok::<(), String>(())
    }
}

#[async_trait]
impl Peer for Graphile {
    async fn emit(&self, mut jobs: Vec<Job>) -> Result<()> {
        if jobs.len() > 1 {
            let mut raw = Vec::with_capacity(jobs.len());
            for job in jobs {
                let (identifier, payload) = (Job::IDENTIFIER.to_owned(), serde_json::to_value(job)?);
                raw.push(RawJobSpec { identifier, payload, spec: JobSpec::default() });
            }
            self.utils.add_raw_jobs(&raw).await.map_err(|error| anyhow!("{error:?}"))?;
        } else if let Some(job) = jobs.pop() {
            self.utils.add_job(job, JobSpec::default()).await.map_err(|error| anyhow!("{error:?}"))?;
        }
        Ok(())
    }

    async fn start(&self, mode: Mode) -> Result<Worker> {
        let options =
            WorkerOptions::default().database(self.database.clone()).schema(SCHEMA).define_job::<Job>();
        let options = options.complete_job_batch_delay(BATCH);
        let options = match mode {
            Mode::Backlog => options
                .concurrency(500)
                .poll_interval(BATCH)
                .local_queue(LocalQueueConfig::default().with_size(5_000)),
            Mode::Live => {
                let delay = RefetchDelayConfig::default()
                    .with_duration(Duration::from_millis(100))
                    .with_threshold(10)
                    .with_max_abort_threshold(500);
                options
                    .concurrency(16)
                    .local_queue(LocalQueueConfig::default().with_size(100).with_refetch_delay(delay))
            }
        };
        let worker = Arc::new(options.init().await.map_err(|error| anyhow!("{error:?}"))?);
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(async move {
            let stopping = Arc::clone(&worker);
            tokio::spawn(async move {
                let _ = stopped.await;
                stopping.request_shutdown();
            });
            worker.run().await.map_err(|error| anyhow!("{error:?}"))
        });
        Ok(Worker { stop, task })
    }

    fn unfinished(&self) -> &'static str {
        "select exists (select from graphile_worker._private_jobs)"
    }
}
