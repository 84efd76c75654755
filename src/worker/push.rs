//! Runs notifications that are pushed: one at a time for who hands them over, with the machine and the claims of any
//! worker, and no parking lot. What has to wait longer than a moment is left to the promise on its row.
//!
//! It speaks no HTTP, and decides nothing that the machine decides.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use super::counters::{Counters, RunReport};
use super::finished::Halt;
use super::leases::Leases;
use super::onward;
use super::room::{Room, RoomQueues};
use super::run::Runner;
use super::statements::batched;
use super::{QueueWorker, WorkerError};
use crate::event::{EventId, Notification};
use crate::machine::{Answer, When};
use crate::notify::Notifier;
use crate::store::{Coalescer, StoreError};
use crate::telemetry::WorkerGauges;

/// How long after its arrival a notification may still wait here: for its event's time, or for room.
const WAIT_MAX: Duration = Duration::from_secs(10);
/// When an event is woken again that could not be started, or whose owner lost it: as soon as a pull subscription would
/// deliver it again.
const SOON: Duration = Duration::from_secs(10);
/// Which part of the capacity may wait in requests for room at one handler: the rest is left to promises at once, so that
/// what is pushed for others gets through.
const WAITING_SHARE: usize = 4;
/// How long Pub/Sub waits for an answer.
pub(super) const ANSWER_MAX: Duration = Duration::from_secs(600);
/// How long released claims and last answers may take once the grace is over.
const CLOSE_WAIT: Duration = Duration::from_millis(1_500);

/// Why a pushed notification has to come again.
#[derive(Debug, thiserror::Error)]
pub enum PushError {
    /// The process shuts down; another one takes it.
    #[error("this process shuts down")]
    Stopping,
    /// Postgres gave no answer.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A defect of ours; what it held runs out.
    #[error("the run ended by a defect of the worker")]
    Defect,
}

/// Runs what Pub/Sub pushes, in a deployment with a push subscription. Cheap to clone.
///
/// ```no_run
/// use std::sync::Arc;
/// use wakeq::http::{HttpConfig, HttpServer};
/// use wakeq::{Handlers, QueueWorker, Store, WorkerConfig, notify::Notifier};
///
/// # async fn example(
/// #     store: Store, notifier: Arc<dyn Notifier>, handlers: Handlers, config: HttpConfig,
/// # ) -> Result<(), Box<dyn std::error::Error>> {
/// let worker = QueueWorker::new(store.clone(), notifier.clone(), handlers, WorkerConfig::default())?;
/// let pushes = worker.into_push_runner().await?;
/// let taking = pushes.clone();
/// let server = HttpServer::bind(store, notifier, config).await?.on_push(move |message: Vec<u8>| {
///     let pushes = taking.clone();
///     async move { pushes.run(&message).await }
/// })?;
/// let (signal, stop) = (wakeq::shutdown_signal()?, server.stop_token());
/// tokio::spawn(async move {
///     signal.await;
///     stop.cancel();
///     pushes.shut_down().await;
/// });
/// server.run().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct PushRunner {
    inner: Arc<Inner>,
}

struct Inner {
    runner: Runner,
    notifier: Arc<dyn Notifier>,
    /// Runs at a time.
    places: Arc<Semaphore>,
    capacity: usize,
    /// Requests that may wait for room at their handler, at a time.
    waiting: Semaphore,
    rooms: RoomQueues,
    gauges: WorkerGauges,
    /// Held while the gauges are set, so that the last one to set them has looked last.
    showing: Mutex<()>,
    promises: Coalescer<(EventId, Duration), ()>,
    counters: Arc<Counters>,
    reports: Option<mpsc::Sender<RunReport>>,
    shutdown_grace: Duration,
    tasks: TaskTracker,
    /// Nothing more is taken, and nothing waits any longer.
    stop: CancellationToken,
    /// Renews what is held, until the last run has ended.
    kept: Mutex<Option<[AbortOnDropHandle<()>; 2]>>,
}

impl QueueWorker {
    /// This worker as one that is given its notifications, and doesn't fetch them: its capacity, its grace, its handlers.
    ///
    /// Refused where the deployment's horizon is not 0, because between two pushes there is nowhere to keep what waits
    /// for its time; and with handlers whose time-out is longer than the 600 s that Pub/Sub waits for an answer.
    pub async fn into_push_runner(self) -> Result<PushRunner, WorkerError> {
        if !self.store.timing().horizon.is_zero() {
            return Err(WorkerError::Config(
                "push mode needs a horizon of 0 s, and this deployment has another: stop every process, run `wakeq \
                 settings set --horizon 0s`, and start them again",
            ));
        }
        if self.registry.longest_timeout() > Some(ANSWER_MAX) {
            return Err(WorkerError::Config(
                "a handler's time-out is longer than 600 s, and Pub/Sub waits no longer for the answer to a push: make it \
                 shorter, or run that handler in a deployment that pulls",
            ));
        }
        let registered = self.register().await?;
        if registered > 0 {
            tracing::info!(handlers = registered, "events had waited for handlers that this process has");
        }
        let leases = Arc::new(Leases::new(self.store.timing().lease));
        let kept = self.keep(&leases);
        let mut runner = self.runner(leases);
        // Not the deployment's, which is 0 and written into rows: how far ahead a run says "wait" and not "another time".
        runner.policy.horizon = WAIT_MAX;
        let promises = batched(&self.store, |store, asked: Vec<(EventId, Duration)>| async move {
            store.bring_forward(&asked).await.map(|()| vec![(); asked.len()])
        });
        let inner = Inner {
            runner,
            notifier: self.notifier,
            places: Arc::new(Semaphore::new(self.config.capacity)),
            capacity: self.config.capacity,
            waiting: Semaphore::new((self.config.capacity / WAITING_SHARE).max(1)),
            rooms: RoomQueues::default(),
            gauges: WorkerGauges::new(),
            showing: Mutex::default(),
            promises,
            counters: self.counters,
            reports: self.reports,
            shutdown_grace: self.config.shutdown_grace,
            tasks: TaskTracker::new(),
            stop: self.stop,
            kept: Mutex::new(Some(kept)),
        };
        Ok(PushRunner { inner: Arc::new(inner) })
    }
}

impl PushRunner {
    /// Runs the event that a message is about: `Ok` if the message is done with, also where it was no notification. What
    /// has to wait for more than 10 s is done with, too: the promise on its row wakes it.
    ///
    /// The run goes on when nobody waits for this any more.
    pub async fn run(&self, message: &[u8]) -> Result<(), PushError> {
        let notification = match Notification::parse(message) {
            Ok(notification) => notification,
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, "acknowledged a pushed message that says nothing");
                self.inner.counters.count_malformed();
                return Ok(());
            }
        };
        let inner = Arc::clone(&self.inner);
        let running = self.inner.tasks.spawn(async move { inner.run(notification).await });
        running.await.unwrap_or_else(|defect| {
            let error = &defect as &dyn std::error::Error;
            tracing::error!(error, "a run ended by a defect of the worker");
            Err(PushError::Defect)
        })
    }

    /// What was done so far.
    pub fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.inner.counters)
    }

    /// Takes nothing more, lets handlers end within the grace, then cuts them off and releases their claims: all whose
    /// event is not done with are told so.
    pub async fn shut_down(&self) {
        let inner = &self.inner;
        inner.stop.cancel();
        inner.tasks.close();
        if tokio::time::timeout(inner.shutdown_grace, inner.tasks.wait()).await.is_err() {
            let running = inner.tasks.len();
            tracing::warn!(running, "the grace is over: handlers are cut off, their claims released");
            inner.runner.kill.cancel();
            // A handler that blocks its thread can't be cut off.
            if tokio::time::timeout(CLOSE_WAIT, inner.tasks.wait()).await.is_err() {
                tracing::warn!(running = inner.tasks.len(), "handlers did not end: their claims run out");
            }
        }
        inner.kept.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

impl Inner {
    async fn run(&self, notification: Notification) -> Result<(), PushError> {
        let latest = Instant::now() + WAIT_MAX;
        let id = notification.id;
        let mut room = Room::default();
        loop {
            // Left while it waits, so that what waits keeps nobody else from running.
            let entering = async { Arc::clone(&self.places).acquire_owned().await.ok() };
            let Some(place) = self.enter(entering, latest).await? else {
                return self.leave(id, SOON).await;
            };
            self.show();
            let finished = self.runner.run(notification, room).await;
            drop(place);
            self.show();
            self.counters.count(&finished.report, finished.fault);
            let ran = finished.report.notification.id;
            self.tell(finished.report);
            for next in finished.next.iter().chain(&finished.again).filter(|_| self.notifier.wakes()) {
                onward::publish(self.notifier.as_ref(), *next).await;
            }
            room = Room::default();
            if finished.again.is_some() {
                // Another event had this one's turn, and this one's notification was published once more.
                return match finished.halt {
                    Halt::Answer(Answer::Acknowledge) => Ok(()),
                    Halt::Wait(When::In(wait)) => self.leave(ran, wait).await,
                    Halt::Answer(Answer::PutBack)
                    | Halt::Wait(When::Soon)
                    | Halt::Failed(_)
                    | Halt::Room(..) => self.leave(ran, SOON).await,
                };
            }
            match finished.halt {
                Halt::Answer(Answer::Acknowledge) => return Ok(()),
                Halt::Failed(error) => return Err(error.into()),
                Halt::Answer(Answer::PutBack) | Halt::Wait(When::Soon) => return self.leave(id, SOON).await,
                Halt::Wait(When::In(wait)) => {
                    let due = Instant::now() + wait;
                    if due > latest {
                        return self.leave(id, wait).await;
                    }
                    self.unless_stopped(tokio::time::sleep_until(due)).await?;
                }
                Halt::Room(kind, full, places) => {
                    // Who waits keeps a request of the deployment, in which an event of another handler could run.
                    let Ok(_waits) = self.waiting.try_acquire() else {
                        return self.leave(id, SOON).await;
                    };
                    let entering = self.rooms.enter(notification.canvas, full, places);
                    let Some(entered) = self.enter(entering, latest).await? else {
                        return self.leave(id, SOON).await;
                    };
                    room = finished.room;
                    room.hold(kind, Some(entered));
                }
            }
        }
    }

    /// Room, if there is some in time.
    async fn enter(
        &self,
        entering: impl Future<Output = Option<OwnedSemaphorePermit>>,
        latest: Instant,
    ) -> Result<Option<OwnedSemaphorePermit>, PushError> {
        Ok(self.unless_stopped(tokio::time::timeout_at(latest, entering)).await?.ok().flatten())
    }

    /// Leaves the event to the promise on its row, which is this long from now at the latest. Once the process shuts down
    /// it is given back instead: another one may start it at once.
    async fn leave(&self, id: EventId, wait: Duration) -> Result<(), PushError> {
        if self.stop.is_cancelled() {
            return Err(PushError::Stopping);
        }
        Ok(self.promises.call((id, wait)).await?)
    }

    async fn unless_stopped<F: Future>(&self, waiting: F) -> Result<F::Output, PushError> {
        self.stop.run_until_cancelled(waiting).await.ok_or(PushError::Stopping)
    }

    fn show(&self) {
        let _one_after_the_other = self.showing.lock().unwrap_or_else(PoisonError::into_inner);
        self.gauges.show(self.capacity.saturating_sub(self.places.available_permits()), 0);
    }

    fn tell(&self, report: RunReport) {
        if let Some(reports) = &self.reports {
            // A slow reader misses reports; the queue does not wait for it.
            let _ = reports.try_send(report);
        }
    }
}
