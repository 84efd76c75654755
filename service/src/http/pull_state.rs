//! What requests on pulled queues share in this process: permits for those that wait for copies,
//! and metrics.

use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::telemetry::PullMetrics;
use wakeq::internals::telemetry::RunMetrics;
use wakeq::machine::Cause;
use wakeq::{HandlerScope, Name};

/// Maximum number of requests in this process that wait for copies.
const WAITING_MAX: usize = 100;

/// Permits for requests that wait for copies, and metrics. Cheap to clone.
#[derive(Clone)]
pub(crate) struct PullState {
    pub(crate) waiting: Arc<Semaphore>,
    pub(crate) metrics: PullMetrics,
    /// The counterpart of the workers' run metrics.
    runs: Arc<RunMetrics>,
    /// Ends the waiting requests.
    pub(crate) stop: CancellationToken,
}

impl PullState {
    pub(crate) fn new(stop: CancellationToken) -> Self {
        let waiting = Arc::new(Semaphore::new(WAITING_MAX));
        Self { waiting, metrics: PullMetrics::new(), runs: Arc::default(), stop }
    }

    /// Counts dead copies of a queue by the handlers of their events.
    pub(crate) fn died(&self, queue: &Name, scopes: &[HandlerScope], cause: Cause) {
        self.metrics.pulled(queue, "died", scopes.len());
        scopes.iter().for_each(|scope| self.runs.died(scope, cause));
    }
}
