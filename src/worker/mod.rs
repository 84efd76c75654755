//! The worker: receives notifications, runs each through the machine, and renews its claims.
//!
//! One loop owns intake and parking lot. Each run is a task, and so are leases and chores.

#[cfg(test)]
mod agreement;
mod ahead;
mod answers;
mod busy;
mod cancellation;
mod checkpointing;
mod checkpoints;
mod config;
mod counters;
mod execution;
mod finished;
mod handlers;
mod heeding;
mod intake;
mod leases;
mod levels;
mod limits;
mod lot;
mod name;
mod offers;
mod others;
mod pace;
mod permits;
mod places;
mod presence;
mod process;
mod push;
mod remote;
mod republisher;
mod rotation;
mod run;
mod shared_permits;
mod signal;
mod statements;
mod subject;
mod unknown;
mod values;
mod woken;

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, select, select_all};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

pub use answers::{Completion, HandlerError, HandlerOutput, HandlerResult};
pub use cancellation::CancelReason;
pub use checkpoints::CheckpointError;
pub use config::WorkerConfig;
pub use counters::{Counters, RunReport, Verdict};
pub use execution::{BoxedHandler, CompleteError, Execution, Origin};
pub use handlers::{
    Batch, HandlerFailure, HandlerService, Handlers, IntoResults, InvalidRoute, Next, Route, WithState,
};
pub use levels::{Level, Levels};
pub use push::{PushError, PushRunner};
pub use remote::{RemoteHandler, RemoteHandlers};
pub use shared_permits::{SharedPermit, SharedPermits};
pub use signal::shutdown_signal;

use crate::event::{Name, Notification};
use crate::machine::Policy;
use crate::notify::{Notifier, NotifyError, Subscription};
use crate::store::{Store, StoreError};
use crate::telemetry::name_handlers;
use crate::wake::Waker;
use busy::BusyTargets;
use checkpoints::Checkpoints;
use config::LOT_MAX;
use handlers::{Registry, Room};
use leases::Leases;
use permits::Permits;
use places::Places;
use presence::Presence;
use run::Runner;
use statements::Statements;
use unknown::UnknownHandlers;
use values::Values;
use woken::WokenEvents;

/// Upper limit of `value_bytes_max`.
const VALUE_BYTES_MAX: usize = 64 * 1024 * 1024 * 1024;
/// How long the last statistics may take to be written.
const STATISTICS_WAIT: Duration = Duration::from_secs(1);

/// Why a worker could not start, or ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkerError {
    /// The registration of a handler is not valid.
    #[error(transparent)]
    Route(#[from] InvalidRoute),
    /// The configuration is not valid.
    #[error("{0}")]
    Config(&'static str),
    /// A part of the worker ended that should have run until the shutdown.
    #[error("the worker has shut down because {0} ended unexpectedly (bug in wakeq): start it again")]
    Defect(&'static str),
    /// An error of the database.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// An error of the notifier.
    #[error(transparent)]
    Notify(#[from] NotifyError),
}

/// Receives notifications and runs their events.
///
/// ```no_run
/// use std::sync::Arc;
/// use wakeq::{Execution, HandlerResult, Handlers, QueueWorker, Store, WorkerConfig, notify::Notifier};
///
/// async fn send_email(event: Execution) -> HandlerResult {
///     let address: String = event.value()?;
///     println!("to {address}");
///     Ok(())
/// }
///
/// # async fn example(store: Store, notifier: Arc<dyn Notifier>) -> Result<(), Box<dyn std::error::Error>> {
/// let handlers = Handlers::new().on("send-email", send_email);
/// let worker = QueueWorker::new(store, notifier, handlers, WorkerConfig::default())?;
/// let (signal, stop) = (wakeq::shutdown_signal()?, worker.stop_token());
/// tokio::spawn(async move {
///     signal.await;
///     stop.cancel();
/// });
/// worker.run().await?;
/// # Ok(())
/// # }
/// ```
pub struct QueueWorker {
    name: Name,
    store: Store,
    notifier: Arc<dyn Notifier>,
    registry: Arc<Registry>,
    places: Places,
    /// Where the events of its batch handlers gather.
    room: Arc<Room>,
    config: WorkerConfig,
    counters: Arc<Counters>,
    reports: Option<mpsc::Sender<RunReport>>,
    trouble: watch::Sender<Option<String>>,
    remote: Option<Arc<dyn RemoteHandlers>>,
    /// Targets that have no capacity now.
    busy: Arc<BusyTargets>,
    stop: CancellationToken,
    kill: CancellationToken,
}

impl QueueWorker {
    /// A worker with its handlers. [`QueueWorker::run`] starts it.
    pub fn new(
        store: Store,
        notifier: Arc<dyn Notifier>,
        handlers: impl Into<Handlers>,
        config: WorkerConfig,
    ) -> Result<Self, WorkerError> {
        let handlers: Handlers = handlers.into();
        if config.capacity == 0 {
            return Err(WorkerError::Config(
                "the capacity is 0: a worker must be able to run at least one handler",
            ));
        }
        if config.urgent_slots >= config.capacity {
            return Err(WorkerError::Config(
                "urgent_slots must be less than the capacity: no event that is not urgent would ever start",
            ));
        }
        if config.target_share == Some(0) {
            return Err(WorkerError::Config(
                "a canvas's share of the capacity is 0: its HTTP targets would never be called",
            ));
        }
        if config.capacity.max(config.lot_max).max(config.prefetch.unwrap_or(0)) > LOT_MAX {
            return Err(WorkerError::Config("capacity, prefetch and lot_max may each be 50,000 at most"));
        }
        if !(1024 * 1024..=VALUE_BYTES_MAX).contains(&config.value_bytes_max) {
            return Err(WorkerError::Config("value_bytes_max must be 1 MiB to 64 GiB"));
        }
        if config.suspect_losses == 0 || config.losses_max < config.suspect_losses {
            return Err(WorkerError::Config("use 1 <= suspect_losses <= losses_max"));
        }
        name_handlers(handlers.names());
        let stop = CancellationToken::new();
        let places = Places::new(config.capacity, config.target_share, config.urgent_slots);
        let room = Room::new(places.clone(), Some(store.clone()), config.suspect_losses, stop.clone());
        let registry = Arc::new(handlers.registry(&room)?);
        let name = config.name.clone().unwrap_or_else(name::of_this_process);
        Ok(Self {
            store: store.claiming_as(name.clone()),
            name,
            notifier,
            registry,
            places,
            room,
            config,
            counters: Arc::default(),
            reports: None,
            trouble: watch::Sender::new(Some("the worker has not started".into())),
            remote: None,
            busy: Arc::default(),
            stop,
            kill: CancellationToken::new(),
        })
    }

    /// Also runs events whose handlers run elsewhere, e.g. registered HTTP targets. A function for
    /// the same events takes precedence.
    pub fn remote_handlers(mut self, handlers: impl RemoteHandlers) -> Self {
        self.remote = Some(Arc::new(handlers));
        self
    }

    /// Reports every run that ends. A slow receiver misses reports beyond the channel's 10,000;
    /// runs do not wait for it.
    pub fn reports(&mut self) -> mpsc::Receiver<RunReport> {
        let (sender, receiver) = mpsc::channel(10_000);
        self.reports = Some(sender);
        receiver
    }

    /// The counts of the worker so far.
    pub fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.counters)
    }

    /// Why the worker does not receive notifications at present, in words that say what to do;
    /// `None` while it is ready. It is also set before the start and during a shutdown.
    ///
    /// ```
    /// # async fn example(worker: wakeq::QueueWorker) {
    /// let mut trouble = worker.trouble();
    /// tokio::spawn(worker.run());
    /// let ready = trouble.wait_for(Option::is_none).await.is_ok();
    /// # }
    /// ```
    pub fn trouble(&self) -> watch::Receiver<Option<String>> {
        self.trouble.subscribe()
    }

    /// The token that shuts the worker down when it is cancelled.
    pub fn stop_token(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// Runs until [`QueueWorker::stop_token`] is cancelled. It then stops receiving, gives back
    /// events that have not started, lets handlers end within the grace, and cuts off the others
    /// and releases their claims.
    ///
    /// Ends with [`StoreError::OtherTiming`] once a minute's pass notices that the deployment's
    /// durations have been changed: connect again, which takes the new ones, and start another
    /// worker. If the lease became shorter, handlers are cut off without a grace, since other
    /// workers no longer wait for their claims.
    pub async fn run(self) -> Result<(), WorkerError> {
        let leases = self.leases();
        let presence = self.presence(&leases, self.config.lets_database_sleep);
        let ended = self.work(leases, &presence).await;
        presence.leave().await;
        ended
    }

    async fn work(self, leases: Arc<Leases>, presence: &Arc<Presence>) -> Result<(), WorkerError> {
        let registered = self.register().await?;
        if registered > 0 {
            tracing::info!(handlers = registered, "woke events that were waiting for this worker's handlers");
        }
        presence.enter().await;
        let _telling = AbortOnDropHandle::new(tokio::spawn(Arc::clone(presence).tell_stop()));
        let seen = Arc::clone(presence);
        let waker = Waker::new(self.store.clone(), Arc::clone(&self.notifier))
            .paced(self.config.canvas_event_rate)
            .letting_sleep(self.config.lets_database_sleep)
            .attending(move || seen.attendance());
        let period = self.store.timing().probe_period;
        let missing = AbortOnDropHandle::new(tokio::spawn(waker.clone().find_missed()));
        let chores = AbortOnDropHandle::new(tokio::spawn(waker.run(period, Some(self.config.retention))));
        let [renewing, watching, heeding, comparing] = self.keep(&leases);
        let held_max = self.config.held_max();
        let subscription = self.notifier.subscribe(held_max).await?;
        let urgent = self.notifier.subscribe_urgent(held_max).await?;
        let runner = Arc::new(self.runner(leases, self.config.capacity));
        let (notifier, config) = (Arc::clone(&self.notifier), &self.config);
        let intake = intake::Intake::new(runner, notifier, config, self.counters, self.reports, self.trouble);
        let working = pin!(intake.run((subscription, urgent), self.stop.clone(), self.kill));
        let tasks = select_all([chores, missing, renewing, watching, heeding, comparing]);
        let ended = match select(working, tasks).await {
            Either::Left((true, _)) => Ok(()),
            Either::Left((false, _)) => Err(WorkerError::Defect("its subscription")),
            // Without renewals or the probe, or with other durations than the deployment's, the
            // worker can't work correctly: shut down in good order, to be started again.
            Either::Right((_, working)) => {
                self.stop.cancel();
                working.await;
                let defect = WorkerError::Defect("a task that renews leases or wakes what is overdue");
                Err(self.store.noticed_timing().map_or(defect, WorkerError::Store))
            }
        };
        self.store.write_statistics_within(STATISTICS_WAIT).await;
        ended
    }

    /// Receives one notification from the subscription and runs it to its end; `None` once the
    /// subscription has ended.
    ///
    /// For tests, and for callers with a loop of their own. There is no parking lot: a notification
    /// that has to wait, for its time or for room, is put back. Messages that are not notifications
    /// are acknowledged and skipped. If the future is dropped midway, it leaves a claim that
    /// expires and counts as lost.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use wakeq::notify::{LocalNotifier, Notifier};
    /// use wakeq::workers::RunReport;
    /// use wakeq::{Handlers, QueueWorker, Store, WorkerConfig};
    ///
    /// async fn run_one(store: Store, handlers: Handlers) -> Result<Option<RunReport>, Box<dyn std::error::Error>> {
    ///     let notifier = Arc::new(LocalNotifier::new());
    ///     let worker = QueueWorker::new(store, notifier.clone(), handlers, WorkerConfig::default())?;
    ///     let mut subscription = notifier.subscribe(1).await?;
    ///     Ok(worker.dequeue(subscription.as_mut()).await)
    /// }
    /// ```
    pub async fn dequeue(&self, subscription: &mut dyn Subscription) -> Option<RunReport> {
        let (notification, delivery) = loop {
            if let Some(read) = intake::read(subscription.next().await?, &self.counters) {
                break read;
            }
        };
        let report = self.driver().run(notification).await;
        match &report.verdict {
            Verdict::Acknowledged => delivery.acknowledge(),
            Verdict::PutBack | Verdict::Waits(_) | Verdict::WaitsForRoom | Verdict::Failed(_) => {
                delivery.put_back();
            }
        }
        Some(report)
    }

    /// Runs notifications one after the other, without an intake.
    pub(crate) fn driver(&self) -> Driver {
        self.room.one_by_one();
        let leases = self.leases();
        let kept = self.keep(&leases);
        let (notifier, counters) = (Arc::clone(&self.notifier), Arc::clone(&self.counters));
        Driver { runner: self.runner(leases, 1), notifier, counters, _kept: kept }
    }

    /// Tells the database which handlers this worker has, which wakes the events that waited for
    /// them. Returns how many of the handlers had such events. Their limits are set before that.
    pub(crate) async fn register(&self) -> Result<u64, StoreError> {
        self.set_limits().await?;
        self.store.register(&self.registry.any_canvas(), &self.registry.one_canvas()).await
    }

    /// The claims that this worker is going to hold.
    fn leases(&self) -> Arc<Leases> {
        Arc::new(Leases::new(self.store.timing().lease, self.stop.clone()))
    }

    /// The worker as its row shows it from now on. With `may_sleep` its silence means nothing.
    fn presence(&self, leases: &Arc<Leases>, may_sleep: bool) -> Arc<Presence> {
        let how = (self.remote.is_some(), may_sleep);
        let worker = presence::new_worker(&self.name, &self.config, &self.registry, how);
        let doing = (Arc::clone(leases), Arc::clone(&self.busy));
        Presence::new(self.store.clone(), worker, doing, self.stop.clone())
    }

    /// Renews claims, and looks for events that were cancelled, until the handles are dropped. The
    /// last task ends once the deployment's durations are no longer this process's.
    fn keep(&self, leases: &Arc<Leases>) -> [AbortOnDropHandle<()>; 4] {
        let renewing = tokio::spawn(leases::renew(Arc::clone(leases), self.store.clone()));
        let watching = tokio::spawn(leases::watch(Arc::clone(leases)));
        let signals = self.notifier.signals();
        let heeding = tokio::spawn(heeding::heed(Arc::clone(leases), self.store.clone(), signals));
        let comparing = tokio::spawn(leases::until_retimed(self.store.clone(), self.kill.clone()));
        [renewing, watching, heeding, comparing].map(AbortOnDropHandle::new)
    }

    /// With room for this many concurrent runs.
    fn runner(&self, leases: Arc<Leases>, at_once: usize) -> Runner {
        let values = Values::new(self.config.value_bytes_max, self.config.capacity);
        let alone = (self.config.suspect_losses, values.small_max());
        Runner {
            waker: Waker::new(self.store.clone(), Arc::clone(&self.notifier)),
            statements: Statements::new(&self.store, &self.registry, alone, self.remote.is_some(), at_once),
            registry: Arc::clone(&self.registry),
            unknown: UnknownHandlers::default(),
            remote: self.remote.clone(),
            places: self.places.clone(),
            leases,
            policy: Policy::of(self.store.timing(), self.config.losses_max),
            busy: Arc::clone(&self.busy),
            suspect_losses: self.config.suspect_losses,
            suspects: Arc::new(tokio::sync::Semaphore::new(1)),
            values,
            woken: WokenEvents::default(),
            kill: self.kill.clone(),
            cancel_grace: self.config.cancel_grace,
            checkpoints: Checkpoints::new(&self.store),
        }
    }
}

/// Runs single notifications like a worker; renews their claims until it is dropped.
pub(crate) struct Driver {
    runner: Runner,
    notifier: Arc<dyn Notifier>,
    counters: Arc<Counters>,
    _kept: [AbortOnDropHandle<()>; 4],
}

impl Driver {
    /// The same without jitter, so that a test knows when the next attempt is due.
    #[cfg(feature = "testing")]
    pub(crate) fn without_jitter(mut self) -> Self {
        self.runner.policy.spreads = false;
        self
    }

    /// Runs one notification to its end. If it has to wait, for its time or for room, that is up to
    /// the caller. The next event of an object is published.
    pub(crate) async fn run(&self, notification: Notification) -> RunReport {
        let finished = self.runner.run(notification, Permits::default()).await;
        self.counters.count(&finished.report, finished.fault);
        for next in finished.next.iter().chain(&finished.again).filter(|_| self.notifier.wakes()) {
            republisher::publish(self.notifier.as_ref(), *next).await;
        }
        *finished.report
    }
}
