//! Worker processes, and what they run; and programs that lease events.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::resources::wire::wire_from;

/// A worker process in a list, as it was when it was last seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = WorkerSummary)]
pub(crate) struct WorkerSummaryJson {
    /// Its name, shown with the events that it has claimed.
    #[schema(example = "orders-6d4cf-x7k2p-1f0c5a9e")]
    pub(crate) name: String,
    /// Tells it from other workers of the same name: each start has another one.
    pub(crate) instance: Uuid,
    pub(crate) state: WorkerStateJson,
    /// The host it runs on, if that is known.
    #[schema(example = "orders-6d4cf-x7k2p")]
    pub(crate) host: Option<String>,
    /// Its process on that host.
    #[schema(minimum = 1)]
    pub(crate) pid: Option<i32>,
    /// Its release of wakeq.
    #[schema(example = "0.1.0")]
    pub(crate) release: String,
    /// The build of its program, if it was given.
    #[schema(example = "7c9e6679")]
    pub(crate) build: Option<String>,
    pub(crate) started_at: DateTime<Utc>,
    /// When it was last seen: it is once a minute, and when it starts and stops.
    pub(crate) seen_at: DateTime<Utc>,
    /// How many handlers it runs at once.
    #[schema(minimum = 0)]
    pub(crate) capacity: u32,
    /// How many events it had claimed.
    #[schema(minimum = 0)]
    pub(crate) running: u32,
    /// How many handlers it has.
    #[schema(minimum = 0)]
    pub(crate) handlers: u32,
}

/// Whether a worker is at work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = WorkerState)]
pub(crate) enum WorkerStateJson {
    /// It takes events.
    Working,
    /// It takes no more events, and ends when its handlers have.
    Stopping,
    /// It has not been seen for five minutes, as it sends nothing while it is idle.
    Asleep,
    /// It has not been seen for five minutes: it was killed, or does not reach the database.
    Lost,
}

/// A worker process, with its handlers and what it ran when it was last seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Worker)]
pub(crate) struct WorkerJson {
    pub(crate) worker: WorkerSummaryJson,
    /// The first 1,000 of its handlers, as `module/name/modifier`, after a canvas if they are for
    /// one only. The module of registered queues is `QUEUE`.
    pub(crate) handlers: Vec<String>,
    /// Whether it also calls HTTP targets.
    pub(crate) targets: bool,
    /// Up to 100 of the events that it had claimed, those that it has had for longest.
    pub(crate) runs: Vec<WorkerRunJson>,
}

/// An event that a worker has claimed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = WorkerRun)]
pub(crate) struct WorkerRunJson {
    pub(crate) event: Uuid,
    pub(crate) canvas: Uuid,
    /// Its handler, as `module/name/modifier`.
    #[schema(example = "WORKER/send-email/_")]
    pub(crate) handler: String,
    /// When the worker claimed it.
    pub(crate) since: DateTime<Utc>,
}

/// The process of the worker that runs an event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = WorkerProcess)]
pub(crate) struct WorkerProcessJson {
    pub(crate) state: WorkerStateJson,
    /// The host it runs on, if that is known.
    pub(crate) host: Option<String>,
    /// Its release of wakeq.
    pub(crate) release: String,
    /// The build of its program, if it was given.
    pub(crate) build: Option<String>,
    /// When it was last seen.
    pub(crate) seen_at: DateTime<Utc>,
}

/// A program that leases events of a pulled handler, by the name that it gives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Program)]
pub(crate) struct ProgramJson {
    #[schema(example = "mailer-6d4cf-x7k2p-31")]
    pub(crate) worker: String,
    #[schema(example = "WORKER")]
    pub(crate) module: String,
    #[schema(example = "send-email")]
    pub(crate) name: String,
    /// Since when it has been seen, without a pause of more than five minutes.
    pub(crate) since: DateTime<Utc>,
    /// When it last leased events, or spoke of a lease, to the minute.
    pub(crate) seen_at: DateTime<Utc>,
}

impl From<wakeq::control::WorkerState> for WorkerStateJson {
    fn from(state: wakeq::control::WorkerState) -> Self {
        match state {
            wakeq::control::WorkerState::Working => Self::Working,
            wakeq::control::WorkerState::Stopping => Self::Stopping,
            wakeq::control::WorkerState::Asleep => Self::Asleep,
            wakeq::control::WorkerState::Lost => Self::Lost,
        }
    }
}

wire_from! { wakeq::control::WorkerSummary => WorkerSummaryJson, |worker| {
    instance, host, pid, release, started_at, seen_at, capacity, running, handlers;
    name: worker.name.to_string(),
    state: worker.state.into(),
    build: worker.build.as_ref().map(ToString::to_string),
} }

wire_from! { wakeq::control::Worker => WorkerJson, |worker| {
    handlers;
    worker: worker.summary.into(),
    targets: worker.has_targets,
    runs: worker.runs.into_iter().map(WorkerRunJson::from).collect(),
} }

wire_from! { wakeq::control::WorkerRun => WorkerRunJson, |run| {
    handler, since;
    event: run.event.0,
    canvas: run.canvas.0,
} }

wire_from! { wakeq::control::WorkerSummary => WorkerProcessJson, |worker| {
    host, release, seen_at;
    state: worker.state.into(),
    build: worker.build.as_ref().map(ToString::to_string),
} }

wire_from! { wakeq::control::Program => ProgramJson, |program| {
    since, seen_at;
    worker: program.worker.to_string(),
    module: program.scope.module.to_string(),
    name: program.scope.name.to_string(),
} }
