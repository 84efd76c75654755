//! The worker: takes notifications, runs each through the machine, keeps the claims it holds alive.
//!
//! Intake and parking lot belong to one loop; each run is a task; leases and chores have tasks of their own.

#[cfg(test)]
mod agreement;
mod ahead;
mod answers;
mod counters;
mod finished;
mod handlers;
mod intake;
mod leases;
mod lot;
mod name;
mod offers;
mod onward;
mod pace;
mod process;
mod push;
mod room;
mod rotation;
mod run;
mod signal;
mod statements;
#[cfg(feature = "http")]
mod targets;
mod values;

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, select, select_all};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

pub use answers::{HandlerError, HandlerResult};
pub use counters::{Counters, RunReport, Verdict};
pub use handlers::{Execution, Handlers, InvalidRoute, Origin, Route};
pub use push::{PushError, PushRunner};
pub use signal::shutdown_signal;

#[cfg(feature = "http")]
use crate::delivery::Deliverer;
use crate::event::{Name, Notification};
use crate::machine::Policy;
use crate::notify::{Notifier, NotifyError, Subscription};
use crate::store::{Retention, Store, StoreError};
use crate::wake::{CANVAS_EVENT_RATE, Waker};
use handlers::Registry;
use leases::Leases;
use room::Room;
use run::Runner;
use statements::Statements;
#[cfg(feature = "http")]
use targets::Targets;
use values::Values;

/// Largest capacity, prefetch and parking lot.
const LOT_MAX: usize = 50_000;
/// What is taken ahead of what runs, in capacities.
const PREFETCH_ROUNDS: usize = 4;
/// What is taken beyond that while handlers are quick.
const AHEAD: usize = 5_000;
/// Largest room for values.
const VALUE_BYTES_MAX: usize = 64 * 1024 * 1024 * 1024;

/// How much a worker takes on, and how it stops.
#[derive(Clone, Debug)]
pub struct WorkerConfig {
    /// What the worker is called where it is shown which events it has in hand. Default none: the name of its host, and eight
    /// random digits, which the workers of a process have in common.
    pub name: Option<Name>,
    /// Handlers that run at a time. Default 64.
    pub capacity: usize,
    /// Handlers of one canvas that are HTTP targets and run at a time. Default none: a quarter of the capacity, so that no
    /// canvas's slow targets keep the others waiting.
    pub target_share: Option<usize>,
    /// Notifications that are taken ahead of what runs, and that no other worker has meanwhile. Default none: four times the
    /// capacity, and 5,000 more while handlers are so quick that those would be done within ten seconds, so that canvases take turns
    /// among many. Less shares handlers that take minutes more evenly.
    pub prefetch: Option<usize>,
    /// Notifications that wait here for their time, or for room at their handler. Default 5,000; beyond that the promise on
    /// the row wakes the event.
    pub lot_max: usize,
    /// Bytes of the values of running events, beyond what is small. Default 64 MiB, at least 1 MiB: events whose value is
    /// larger than 256 KiB (or than this divided by the capacity, if that is less) run beside each other only as far as
    /// their values fit into it together, and one that is larger than all of it runs alone.
    pub value_bytes_max: usize,
    /// Events of a canvas that this worker's share of the minute's pass wakes in a second when many wait, twice as many at
    /// once. Default 1,000: one canvas's backlog is not to stand in front of what others emit. [`CanvasId::DEFAULT`](crate::CanvasId::DEFAULT) has no rate.
    pub canvas_event_rate: u32,
    /// How long handlers may run on after a shutdown was asked for. Default 28 s; Cloud Run allows 8.
    pub shutdown_grace: Duration,
    /// Lost claims after which an event is not tried any more. Default 5.
    pub losses_max: u32,
    /// Lost claims after which an event counts as suspect: a worker runs one suspect at a time. Default 2.
    pub suspect_losses: u32,
    /// How long ids and dead events are kept.
    pub retention: Retention,
}

impl Default for WorkerConfig {
    fn default() -> Self {
        Self {
            name: None,
            capacity: 64,
            prefetch: None,
            target_share: None,
            lot_max: 5_000,
            value_bytes_max: 64 * 1024 * 1024,
            canvas_event_rate: CANVAS_EVENT_RATE,
            shutdown_grace: Duration::from_secs(28),
            losses_max: 5,
            suspect_losses: 2,
            retention: Retention::default(),
        }
    }
}

impl WorkerConfig {
    /// Most notifications that run, or wait for a place, at a time.
    fn held_max(&self) -> usize {
        let prefetch = self.prefetch.unwrap_or(PREFETCH_ROUNDS * self.capacity);
        self.capacity + prefetch.min(LOT_MAX)
    }

    /// Most that wait beyond that, while handlers are quick.
    fn ahead_max(&self) -> usize {
        if self.prefetch.is_none() { AHEAD } else { 0 }
    }
}

/// Why a worker could not start.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// A handler's registration is wrong.
    #[error(transparent)]
    Route(#[from] InvalidRoute),
    /// The configuration is wrong.
    #[error("{0}")]
    Config(&'static str),
    /// A part of the worker ended that never should.
    #[error("the worker has shut down because {0} ended by a defect: start it again")]
    Defect(&'static str),
    /// The database.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The notifier.
    #[error(transparent)]
    Notify(#[from] NotifyError),
}

/// Pulls notifications and runs events.
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
    store: Store,
    notifier: Arc<dyn Notifier>,
    registry: Arc<Registry>,
    config: WorkerConfig,
    counters: Arc<Counters>,
    reports: Option<mpsc::Sender<RunReport>>,
    trouble: watch::Sender<Option<String>>,
    #[cfg(feature = "http")]
    deliverer: Option<Deliverer>,
    stop: CancellationToken,
    kill: CancellationToken,
}

impl QueueWorker {
    /// A worker with its handlers; it starts with [`QueueWorker::run`].
    pub fn new(
        store: Store,
        notifier: Arc<dyn Notifier>,
        handlers: Handlers,
        config: WorkerConfig,
    ) -> Result<Self, WorkerError> {
        if config.capacity == 0 {
            return Err(WorkerError::Config(
                "the capacity is 0: a worker must be able to run at least one handler",
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
        let registry = Arc::new(handlers.registry()?);
        let name = config.name.clone().unwrap_or_else(name::of_this_process);
        Ok(Self {
            store: store.claiming_as(name),
            notifier,
            registry,
            config,
            counters: Arc::default(),
            reports: None,
            trouble: watch::Sender::new(Some("the worker has not started".into())),
            #[cfg(feature = "http")]
            deliverer: None,
            stop: CancellationToken::new(),
            kill: CancellationToken::new(),
        })
    }

    /// Lets it run the events of handlers that are registered as HTTP targets, too. A function for the same events goes
    /// first.
    ///
    /// ```
    /// use wakeq::QueueWorker;
    /// use wakeq::delivery::{Deliverer, DeliveryConfig};
    ///
    /// fn with_targets(worker: QueueWorker) -> Result<QueueWorker, Box<dyn std::error::Error>> {
    ///     Ok(worker.deliver_with(Deliverer::new(DeliveryConfig::default())?))
    /// }
    /// ```
    #[cfg(feature = "http")]
    pub fn deliver_with(mut self, deliverer: Deliverer) -> Self {
        self.deliverer = Some(deliverer);
        self
    }

    /// Tells of each run that ended. When the receiver is slow, reports are left out, not waited for.
    pub fn reports(&mut self) -> mpsc::Receiver<RunReport> {
        let (sender, receiver) = mpsc::channel(10_000);
        self.reports = Some(sender);
        receiver
    }

    /// What the worker has done so far.
    pub fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.counters)
    }

    /// Why the worker receives no notifications now, in words that say what to do; `None` while it is ready. It says so
    /// before the start and during a shutdown, too.
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

    /// Cancel it to shut the worker down.
    pub fn stop_token(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// Runs until [`QueueWorker::stop_token`] is cancelled: then takes nothing more, gives back what has not started,
    /// lets handlers end within the grace, and cuts off and releases the rest.
    pub async fn run(self) -> Result<(), WorkerError> {
        let registered = self.register().await?;
        if registered > 0 {
            tracing::info!(handlers = registered, "events had waited for handlers that this worker has");
        }
        let leases = Arc::new(Leases::new(self.store.timing().lease));
        let waker =
            Waker::new(self.store.clone(), Arc::clone(&self.notifier)).paced(self.config.canvas_event_rate);
        let period = self.store.timing().probe_period;
        let chores = AbortOnDropHandle::new(tokio::spawn(waker.run(period, Some(self.config.retention))));
        let [renewing, watching] = self.keep(&leases);
        let subscription = self.notifier.subscribe(self.config.held_max()).await?;
        let runner = Arc::new(self.runner(leases));
        let (notifier, config) = (Arc::clone(&self.notifier), &self.config);
        let intake = intake::Intake::new(runner, notifier, config, self.counters, self.reports, self.trouble);
        let working = pin!(intake.run(subscription, self.stop.clone(), self.kill));
        match select(working, select_all([chores, renewing, watching])).await {
            Either::Left((true, _)) => Ok(()),
            Either::Left((false, _)) => Err(WorkerError::Defect("its subscription")),
            // Without renewals or the probe nothing is right any more: end in good order, to be started again.
            Either::Right((_, working)) => {
                self.stop.cancel();
                working.await;
                Err(WorkerError::Defect("a task that renews leases or wakes what is overdue"))
            }
        }
    }

    /// Takes one notification from the subscription and runs it to its end; `None` once the subscription has ended.
    ///
    /// For tests, and for callers with a loop of their own. There is no parking lot: what has to wait, for its time or
    /// for room, is put back. Messages that are no notifications are acknowledged and passed over. Dropped half-way, it leaves
    /// a claim behind that runs out and counts as lost.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use wakeq::notify::{LocalNotifier, Notifier};
    /// use wakeq::{Handlers, QueueWorker, RunReport, Store, WorkerConfig};
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

    /// What runs notifications one after the other, without an intake.
    pub(crate) fn driver(&self) -> Driver {
        let leases = Arc::new(Leases::new(self.store.timing().lease));
        let kept = self.keep(&leases);
        let (notifier, counters) = (Arc::clone(&self.notifier), Arc::clone(&self.counters));
        Driver { runner: self.runner(leases), notifier, counters, _kept: kept }
    }

    /// Tells the database which handlers this worker has: what waited for them is woken. How many did.
    pub(crate) async fn register(&self) -> Result<u64, StoreError> {
        self.store.register(&self.registry.any_canvas(), &self.registry.one_canvas()).await
    }

    /// Keeps claims alive until it is dropped.
    fn keep(&self, leases: &Arc<Leases>) -> [AbortOnDropHandle<()>; 2] {
        let renewing = tokio::spawn(leases::renew(Arc::clone(leases), self.store.clone()));
        let watching = tokio::spawn(leases::watch(Arc::clone(leases)));
        [renewing, watching].map(AbortOnDropHandle::new)
    }

    #[cfg(feature = "http")]
    fn targets(&self, deliverer: Deliverer) -> Arc<Targets> {
        let share = self.config.target_share.unwrap_or_else(|| (self.config.capacity / 4).max(1));
        Arc::new(Targets::new(&self.store, deliverer, share.min(LOT_MAX)))
    }

    fn runner(&self, leases: Arc<Leases>) -> Runner {
        let timing = self.store.timing();
        #[cfg(feature = "http")]
        let with_targets = self.deliverer.is_some();
        #[cfg(not(feature = "http"))]
        let with_targets = false;
        let values = Values::new(self.config.value_bytes_max, self.config.capacity);
        let alone = (self.config.suspect_losses, values.small_max());
        Runner {
            statements: Statements::new(&self.store, &self.registry, alone, with_targets),
            registry: Arc::clone(&self.registry),
            #[cfg(feature = "http")]
            targets: self.deliverer.clone().map(|deliverer| self.targets(deliverer)),
            leases,
            policy: Policy {
                lease: timing.lease,
                horizon: timing.horizon,
                losses_max: self.config.losses_max,
            },
            suspect_losses: self.config.suspect_losses,
            suspects: Arc::new(tokio::sync::Semaphore::new(1)),
            values,
            kill: self.kill.clone(),
        }
    }
}

/// Runs single notifications, as a worker does; keeps their claims alive until it is dropped.
pub(crate) struct Driver {
    runner: Runner,
    notifier: Arc<dyn Notifier>,
    counters: Arc<Counters>,
    _kept: [AbortOnDropHandle<()>; 2],
}

impl Driver {
    /// Runs one notification to its end. What has to wait, for its time or for room, is the caller's business. The next
    /// event of an object is published.
    pub(crate) async fn run(&self, notification: Notification) -> RunReport {
        let finished = self.runner.run(notification, Room::default()).await;
        self.counters.count(&finished.report, finished.fault);
        for next in finished.next.iter().chain(&finished.again).filter(|_| self.notifier.wakes()) {
            onward::publish(self.notifier.as_ref(), *next).await;
        }
        finished.report
    }
}
