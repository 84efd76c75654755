//! Worker processes, and what they run. They serve all canvases, so the key has to be of every one.
//! Programs that lease events are of one canvas.

use chrono::{DateTime, Utc};
use serde::Deserialize;
use uuid::Uuid;

use crate::{Client, Error, Method, Page, Request};

const WORKERS: &str = "/v1/admin/workers";

/// A worker process in a list, as it was when it was last seen.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct WorkerSummary {
    /// Its name, shown with the events that it has claimed.
    pub name: String,
    /// Tells it from other workers of the same name: each start has another one.
    pub instance: Uuid,
    /// Whether it is at work.
    pub state: WorkerState,
    /// The host it runs on, if that is known.
    pub host: Option<String>,
    /// Its process on that host.
    pub pid: Option<i32>,
    /// Its release of wakeq.
    pub release: String,
    /// The build of its program, if it was given.
    pub build: Option<String>,
    /// When it started.
    pub started_at: DateTime<Utc>,
    /// When it was last seen: it is once a minute, and when it starts and stops.
    pub seen_at: DateTime<Utc>,
    /// How many handlers it runs at once.
    pub capacity: u32,
    /// How many events it had claimed.
    pub running: u32,
    /// How many handlers it has.
    pub handlers: u32,
}

/// Whether a worker is at work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum WorkerState {
    /// It takes events.
    Working,
    /// It takes no more events, and ends when its handlers have.
    Stopping,
    /// It has not been seen for five minutes, as it sends nothing while it is idle.
    Asleep,
    /// It has not been seen for five minutes: it was killed, or does not reach the database.
    Lost,
    /// One that this client does not know.
    #[serde(other)]
    Unknown,
}

/// A worker process, with its handlers and what it ran when it was last seen.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct Worker {
    /// The process.
    #[serde(rename = "worker")]
    pub summary: WorkerSummary,
    /// The first 1,000 of its handlers, as `module/name/modifier`, after a canvas if they are for
    /// one only.
    pub handlers: Vec<String>,
    /// Whether it also calls HTTP targets.
    #[serde(rename = "targets")]
    pub has_targets: bool,
    /// Up to 100 of the events that it had claimed, those that it has had for longest.
    pub runs: Vec<WorkerRun>,
}

/// An event that a worker has claimed.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct WorkerRun {
    /// The event's id.
    pub event: Uuid,
    /// Its canvas.
    pub canvas: Uuid,
    /// Its handler, as `module/name/modifier`.
    pub handler: String,
    /// When the worker claimed it.
    pub since: DateTime<Utc>,
}

/// A program that leases events of a pulled handler, by the name that it gives.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct Program {
    /// Its name.
    pub worker: String,
    /// The handler's module.
    pub module: String,
    /// The handler's name.
    pub name: String,
    /// Since when it has been seen, without a pause of more than five minutes.
    pub since: DateTime<Utc>,
    /// When it last leased events, or spoke of a lease, to the minute.
    pub seen_at: DateTime<Utc>,
}

impl Client {
    /// A page of the worker processes of all canvases, by name. With a key of one canvas the code
    /// is `forbidden`.
    ///
    /// ```no_run
    /// # async fn example(wakeq: wakeq_client::Client) -> Result<(), wakeq_client::Error> {
    /// for worker in wakeq.workers(100, None).await?.items {
    ///     println!("{} runs {} of {}", worker.name, worker.running, worker.capacity);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn workers(&self, limit: u32, cursor: Option<&str>) -> Result<Page<WorkerSummary>, Error> {
        self.request(&Request::new(Method::GET, WORKERS).page(limit, cursor)).await
    }

    /// A worker process: of several with the name the one that was seen last, or this instance.
    pub async fn worker(&self, name: &str, instance: Option<Uuid>) -> Result<Worker, Error> {
        let request = Request::new(Method::GET, &format!("{WORKERS}/{{worker}}")).path("worker", name);
        let instance = instance.into_iter();
        self.request(&instance.fold(request, |request, instance| request.query("instance", instance))).await
    }

    /// A page of the programs that lease events of the canvas.
    pub async fn programs(&self, limit: u32, cursor: Option<&str>) -> Result<Page<Program>, Error> {
        self.request(&Request::new(Method::GET, "/v1/canvases/{canvas}/programs").page(limit, cursor)).await
    }
}
