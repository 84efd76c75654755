//! The gauges of the queue itself: waiting events, and the connections to Postgres. It queries the
//! database only when metrics are collected, and rarely even then.
//!
//! If many processes are scraped, each of them queries. That is intended: any of them may be the
//! last one left.

mod groups;
mod registered;

use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

use registered::RegisteredHandlers;
use tokio::runtime::Handle;
use tokio::time::Instant;
use wakeq::control::HandlerDepth;
use wakeq::internals::LimitDepth;
use wakeq::internals::telemetry::{self, HandlerGauge, LimitGauge, QueueGauge};
use wakeq::log::LogAppender;
use wakeq::queues::QueueDepth;
use wakeq::{HandlerScope, Store, StoreError};
use wakeq_streams::internals::telemetry::{GroupGauges, GroupsGauge};

/// How long a result is used, and how long to wait after a failure.
const HOLDS: Duration = Duration::from_secs(15);
/// How long a collection waits for a result.
const PATIENCE: Duration = Duration::from_secs(2);

/// Shows the events that wait for each handler, and the connections to Postgres, as metrics of the
/// program's global OpenTelemetry meter provider, until it is dropped: `wakeq.handler.depth`,
/// `wakeq.handler.oldest`, `wakeq.handler.halted`, `wakeq.queue.depth`, `wakeq.queue.canvases`,
/// `wakeq.limit.running`, `wakeq.limit.waiting`, `wakeq.log.held`, `wakeq.quota.used`,
/// `wakeq.pool.connections`; for consumer groups `wakeq.group.nodes`,
/// `wakeq.group.coordinator.term`, `wakeq.group.sources`, `wakeq.group.owned`, `wakeq.group.lag`;
/// and `wakeq.log.holders` for the groups and pins that keep the log from being dropped.
///
/// The metrics that count events, runs and requests need only the provider; these have to be
/// queried. They query the database when metrics are collected, at most every 15 s.
///
/// ```no_run
/// # async fn example(url: &str) -> Result<(), Box<dyn std::error::Error>> {
/// use wakeq::{Store, StoreConfig};
/// use wakeq_service::Observer;
///
/// // opentelemetry::global::set_meter_provider(…), before anything of wakeq's is made
/// let store = Store::connect(url, StoreConfig::default()).await?;
/// let _observer = Observer::watch(&store);
/// # Ok(())
/// # }
/// ```
pub struct Observer {
    poller: Arc<Poller>,
    _gauges: telemetry::Gauges,
    _of_groups: GroupGauges,
    _of_quotas: telemetry::QuotaGauge,
    _of_limits: telemetry::LimitGauges,
}

/// Queries the database when needed, and keeps the last results.
struct Poller {
    store: Store,
    runtime: Handle,
    snapshot: Mutex<Snapshot>,
    /// Held during a query, which adds to it which handlers are registered.
    querying: tokio::sync::Mutex<RegisteredHandlers>,
}

#[derive(Default)]
struct Snapshot {
    at: Option<Instant>,
    depths: Vec<HandlerDepth>,
    halted: Vec<(HandlerScope, u64)>,
    queues: Vec<QueueDepth>,
    limits: Vec<LimitDepth>,
    held: Option<Duration>,
    groups: Option<GroupsGauge>,
}

impl Observer {
    /// Starts showing them. Must be called inside a tokio runtime.
    pub fn watch(store: &Store) -> Self {
        let poller = Arc::new(Poller {
            store: store.clone(),
            runtime: Handle::current(),
            snapshot: Mutex::default(),
            querying: tokio::sync::Mutex::default(),
        });
        let [of_handlers, of_halted, of_queues, of_log, of_pool] = [&poller; 5].map(Arc::downgrade);
        let gauges = telemetry::Gauges::over(
            move || of_handlers.upgrade().map(Poller::gauges).unwrap_or_default(),
            move || of_halted.upgrade().map(Poller::halted).unwrap_or_default(),
            move || of_queues.upgrade().map(Poller::queues).unwrap_or_default(),
            move || of_log.upgrade().and_then(Poller::held),
            move || of_pool.upgrade().and_then(|poller| poller.store.connections()),
        );
        let of_groups = Arc::downgrade(&poller);
        let groups = GroupGauges::over(move || of_groups.upgrade().and_then(Poller::groups));
        let of_quotas = store.clone();
        let quotas = telemetry::QuotaGauge::over(move || of_quotas.near_quotas());
        let of_limits = Arc::downgrade(&poller);
        let limits =
            telemetry::LimitGauges::over(move || of_limits.upgrade().map(Poller::limits).unwrap_or_default());
        Self { poller, _gauges: gauges, _of_groups: groups, _of_quotas: quotas, _of_limits: limits }
    }

    /// Queries now, unless the last result is recent, for a caller that is about to collect. Waits
    /// for at most 2 s.
    pub async fn refresh(&self) {
        let poller = Arc::clone(&self.poller);
        let querying = tokio::spawn(async move { poller.refresh().await });
        // If it takes longer, the next collection has the result.
        let _ = tokio::time::timeout(PATIENCE, querying).await;
    }
}

impl Poller {
    fn gauges(self: Arc<Self>) -> Vec<HandlerGauge> {
        self.bring_up_to_date();
        let snapshot = self.snapshot.lock().unwrap_or_else(PoisonError::into_inner);
        let age = snapshot.at.map(|at| at.elapsed()).unwrap_or_default();
        let gauge = |depth: &HandlerDepth| HandlerGauge {
            scope: depth.scope.clone(),
            depth: depth.depth.depth,
            oldest: depth.depth.oldest_age().map(|oldest| oldest + age),
        };
        snapshot.depths.iter().map(gauge).collect()
    }

    fn halted(self: Arc<Self>) -> Vec<(HandlerScope, u64)> {
        self.bring_up_to_date();
        self.snapshot.lock().unwrap_or_else(PoisonError::into_inner).halted.clone()
    }

    /// How long readers of the log have been held back; `None` if that is unknown.
    fn held(self: Arc<Self>) -> Option<Duration> {
        self.bring_up_to_date();
        self.snapshot.lock().unwrap_or_else(PoisonError::into_inner).held
    }

    fn queues(self: Arc<Self>) -> Vec<QueueGauge> {
        self.bring_up_to_date();
        let snapshot = self.snapshot.lock().unwrap_or_else(PoisonError::into_inner);
        let gauge = |depth: &QueueDepth| QueueGauge {
            queue: depth.queue.clone(),
            depth: depth.depth,
            canvases: depth.canvases,
        };
        snapshot.queues.iter().map(gauge).collect()
    }

    fn limits(self: Arc<Self>) -> Vec<LimitGauge> {
        self.bring_up_to_date();
        let snapshot = self.snapshot.lock().unwrap_or_else(PoisonError::into_inner);
        let gauge = |depth: &LimitDepth| LimitGauge {
            canvas: depth.canvas,
            name: depth.name.clone(),
            running: depth.running,
            waiting: depth.waiting,
        };
        snapshot.limits.iter().map(gauge).collect()
    }

    fn groups(self: Arc<Self>) -> Option<GroupsGauge> {
        self.bring_up_to_date();
        self.snapshot.lock().unwrap_or_else(PoisonError::into_inner).groups.clone()
    }

    /// Queries again, unless the last result is recent. Waits for the result only if the thread
    /// does not belong to a runtime; a thread that does must not block, and gets it with the next
    /// collection.
    fn bring_up_to_date(self: &Arc<Self>) {
        if !self.is_fresh() {
            let (finished, done) = mpsc::channel();
            let poller = Arc::clone(self);
            self.runtime.spawn(async move {
                poller.refresh().await;
                // The receiver may have stopped waiting.
                let _ = finished.send(());
            });
            if Handle::try_current().is_err() {
                let _ = done.recv_timeout(PATIENCE);
            }
        }
    }

    fn is_fresh(&self) -> bool {
        let snapshot = self.snapshot.lock().unwrap_or_else(PoisonError::into_inner);
        snapshot.at.is_some_and(|at| at.elapsed() < HOLDS)
    }

    async fn refresh(&self) {
        let mut registered = self.querying.lock().await;
        if self.is_fresh() {
            return;
        }
        match self.store.registered_handlers(registered.next_canvas()).await {
            Ok((handlers, next)) => {
                registered.add(handlers, next);
                telemetry::name_registered(registered.handlers());
            }
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, "the registered handlers are not known, and metrics may not name them");
            }
        }
        let depths = known(self.store.depths().await);
        let halted = known(self.store.halted().await);
        let queues = known(self.store.queue_depths(None).await);
        let limits = known(self.store.limit_depths().await);
        let held = held(self.store.log_appenders().await);
        let groups = known(groups::query(&self.store).await.map(Vec::from_iter)).pop();
        let mut snapshot = self.snapshot.lock().unwrap_or_else(PoisonError::into_inner);
        *snapshot = Snapshot { at: Some(Instant::now()), depths, halted, queues, limits, held, groups };
    }
}

fn held(appenders: Result<Vec<LogAppender>, StoreError>) -> Option<Duration> {
    let appenders = appenders.inspect_err(|error| {
        let error = error as &dyn std::error::Error;
        tracing::warn!(error, "could not determine whether readers of the log are held back");
    });
    let open = appenders.ok()?.into_iter().filter_map(|appender| appender.open_for).max();
    Some(open.unwrap_or_default())
}

fn known<T>(result: Result<Vec<T>, StoreError>) -> Vec<T> {
    result.unwrap_or_else(|error| {
        let error = &error as &dyn std::error::Error;
        tracing::warn!(error, "the backlog could not be counted, and is missing from the metrics");
        Vec::new()
    })
}
