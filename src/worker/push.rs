//! Runs pushed notifications, one per call, with the machine and the claims of any worker and
//! without a parking lot. If an event has to wait longer than a moment, it is left to the promise
//! on its row.
//!
//! Knows nothing about HTTP, and takes no decision that belongs to the machine.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use super::counters::{Counters, RunReport};
use super::finished::RunEnd;
use super::permits::{PermitQueues, Permits};
use super::presence::Presence;
use super::republisher;
use super::run::Runner;
use super::shared_permits::SharedPermits;
use super::{QueueWorker, STATISTICS_WAIT, WorkerError};
use crate::event::{EventId, Notification};
use crate::machine::{Answer, When};
use crate::notify::Notifier;
use crate::store::{Coalescer, Store, StoreError};
use crate::telemetry::WorkerGauges;

/// How long after its arrival a notification may wait here, for its event's time or for room.
const WAIT_MAX: Duration = Duration::from_secs(10);
/// When an event that could not be started, or whose lease was lost, is woken again: as soon as a
/// pull subscription would deliver it again.
const SOON: Duration = Duration::from_secs(10);
/// The capacity divided by this is the maximum number of requests that wait for room at their
/// handlers. The others are left to promises immediately, so that pushes for other handlers get
/// through.
const WAITING_SHARE: usize = 4;
/// How long Pub/Sub waits for an answer.
pub(super) const ANSWER_MAX: Duration = Duration::from_secs(600);
/// How long releasing claims and sending the last answers may take once the grace is over.
const CLOSE_WAIT: Duration = Duration::from_millis(1_500);

/// Why a pushed notification has to be delivered again.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PushError {
    /// The process is shutting down; another one will run the event.
    #[error("this process is shutting down")]
    Stopping,
    /// Postgres did not answer, or the deployment's durations are no longer this process's, which
    /// has to end.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A bug in wakeq; the claim expires.
    #[error("the run panicked (bug in wakeq)")]
    Defect,
}

/// Runs the notifications that Pub/Sub pushes, in a deployment with a push subscription. Cheap to
/// clone. The HTTP server of `wakeq-service` takes pushes and has an example.
#[derive(Clone)]
pub struct PushRunner {
    inner: Arc<PushState>,
}

struct PushState {
    runner: Runner,
    store: Store,
    notifier: Arc<dyn Notifier>,
    /// Limits how many runs are active at once. One that ends makes room for the canvas that has
    /// the fewest.
    slots: SharedPermits,
    capacity: usize,
    /// Limits how many requests wait for room at their handlers at once.
    waiting: Semaphore,
    permit_queues: PermitQueues,
    gauges: WorkerGauges,
    /// Held while the gauges are set, so that the last to set them was also the last to read.
    showing: Mutex<()>,
    promises: Coalescer<(EventId, Duration), ()>,
    counters: Arc<Counters>,
    reports: Option<mpsc::Sender<RunReport>>,
    shutdown_grace: Duration,
    tasks: TaskTracker,
    /// When cancelled, nothing more is accepted, and nothing waits any longer.
    stop: CancellationToken,
    /// The tasks that renew claims and write the worker's row, until the last run has ended.
    kept: Mutex<Option<[AbortOnDropHandle<()>; 6]>>,
    presence: Arc<Presence>,
}

impl QueueWorker {
    /// Turns the worker into one that is passed its notifications instead of fetching them, with
    /// the same capacity, grace and handlers.
    ///
    /// Refused if the deployment's horizon is not 0, because between two pushes there is no place
    /// to keep events until their time, and if a handler's timeout is longer than the 600 s that
    /// Pub/Sub waits for an answer.
    pub async fn into_push_runner(self) -> Result<PushRunner, WorkerError> {
        if !self.store.timing().horizon.is_zero() {
            return Err(WorkerError::Config(
                "push mode needs a horizon of 0 s, and this deployment has another: stop every process, run `wakeq \
                 settings set --horizon 0s`, and start them again",
            ));
        }
        if self.registry.longest_timeout() > Some(ANSWER_MAX) {
            return Err(WorkerError::Config(
                "a handler's time-out is longer than 600 s, the longest that Pub/Sub waits for the \
                 answer to a push: make it shorter, or run that handler in a deployment that pulls",
            ));
        }
        let registered = self.register().await?;
        if registered > 0 {
            tracing::info!(
                handlers = registered,
                "woke events that were waiting for this process's handlers"
            );
        }
        let leases = self.leases();
        let [renewing, watching, heeding, comparing] = self.keep(&leases);
        let stop = self.stop.clone();
        let stopping = tokio::spawn(async move {
            if comparing.await.is_ok() {
                stop.cancel();
            }
        });
        // Between two pushes the process may have no processor time.
        let presence = self.presence(&leases, true);
        presence.enter().await;
        let attending = tokio::spawn(Arc::clone(&presence).attend());
        let telling = tokio::spawn(Arc::clone(&presence).tell_stop());
        let [stopping, attending, telling] = [stopping, attending, telling].map(AbortOnDropHandle::new);
        let kept = [renewing, watching, heeding, stopping, attending, telling];
        let mut runner = self.runner(leases, self.config.capacity);
        // Not the deployment's horizon, which is 0 and stored in rows, but the longest wait here.
        runner.policy.horizon = WAIT_MAX;
        let promises = self.store.batched(|store, asked: Vec<(EventId, Duration)>| async move {
            store.bring_forward(&asked).await.map(|()| vec![(); asked.len()])
        });
        let inner = PushState {
            runner,
            store: self.store,
            notifier: self.notifier,
            slots: SharedPermits::all_lent(self.config.capacity),
            capacity: self.config.capacity,
            waiting: Semaphore::new((self.config.capacity / WAITING_SHARE).max(1)),
            permit_queues: PermitQueues::default(),
            gauges: WorkerGauges::new(),
            showing: Mutex::default(),
            promises,
            counters: self.counters,
            reports: self.reports,
            shutdown_grace: self.config.shutdown_grace,
            tasks: TaskTracker::new(),
            stop: self.stop,
            kept: Mutex::new(Some(kept)),
            presence,
        };
        Ok(PushRunner { inner: Arc::new(inner) })
    }
}

impl PushRunner {
    /// Runs the event that a message is about. `Ok` means that the message is done, including one
    /// that is not a notification. An event that has to wait for more than 10 s is done as well:
    /// the promise on its row wakes it.
    ///
    /// Once a minute's pass notices that the deployment's durations have been changed, nothing more
    /// is accepted, with [`StoreError::OtherTiming`].
    ///
    /// The run continues if the caller drops this future.
    pub async fn run(&self, message: &[u8]) -> Result<(), PushError> {
        let notification = match Notification::parse(message) {
            Ok(notification) => notification,
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, "acknowledged a pushed message that is not a notification");
                self.inner.counters.count_malformed();
                return Ok(());
            }
        };
        let inner = Arc::clone(&self.inner);
        let running = self.inner.tasks.spawn(async move { inner.run(notification).await });
        running.await.unwrap_or_else(|defect| {
            let error = &defect as &dyn std::error::Error;
            tracing::error!(error, "a run panicked (bug in wakeq)");
            Err(PushError::Defect)
        })
    }

    /// The counts so far.
    pub fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.inner.counters)
    }

    /// Stops accepting, lets handlers end within the grace, then cuts them off and releases their
    /// claims. All callers whose event is not done receive [`PushError::Stopping`].
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
                tracing::warn!(running = inner.tasks.len(), "handlers did not end: their claims expire");
            }
        }
        inner.kept.lock().unwrap_or_else(PoisonError::into_inner).take();
        inner.store.write_statistics_within(STATISTICS_WAIT).await;
        inner.presence.leave().await;
    }
}

impl PushState {
    async fn run(&self, notification: Notification) -> Result<(), PushError> {
        let latest = Instant::now() + WAIT_MAX;
        let id = notification.id;
        let mut permits = Permits::default();
        loop {
            // The slot is released while the event waits, so that others can run.
            let acquiring = async { Some(self.slots.acquire(notification.canvas).await) };
            let Some(slot) = self.acquire(acquiring, latest).await? else {
                return self.leave_to_promise(id, SOON).await;
            };
            self.show();
            let finished = self.runner.run(notification, permits).await;
            drop(slot);
            self.show();
            self.counters.count(&finished.report, finished.fault);
            let ran = finished.report.notification.id;
            self.report(*finished.report);
            for next in finished.next.iter().chain(&finished.again).filter(|_| self.notifier.wakes()) {
                republisher::publish(self.notifier.as_ref(), *next).await;
            }
            permits = Permits::default();
            if finished.again.is_some() {
                // Another event took this one's turn, and this one's notification was republished.
                return match finished.end {
                    RunEnd::Answer(Answer::Acknowledge) => Ok(()),
                    RunEnd::Wait(When::In(wait)) => self.leave_to_promise(ran, wait).await,
                    RunEnd::Answer(Answer::PutBack)
                    | RunEnd::Wait(When::Soon)
                    | RunEnd::Failed(_)
                    | RunEnd::NeedsRoom(_) => self.leave_to_promise(ran, SOON).await,
                };
            }
            match finished.end {
                RunEnd::Answer(Answer::Acknowledge) => return Ok(()),
                RunEnd::Failed(error) => return Err(error.into()),
                RunEnd::Answer(Answer::PutBack) | RunEnd::Wait(When::Soon) => {
                    return self.leave_to_promise(id, SOON).await;
                }
                RunEnd::Wait(When::In(wait)) => {
                    let due = Instant::now() + wait;
                    if due > latest {
                        return self.leave_to_promise(id, wait).await;
                    }
                    self.unless_stopped(tokio::time::sleep_until(due)).await?;
                }
                RunEnd::NeedsRoom(shortage) => {
                    // A waiting request occupies one of the deployment's, in which an event of
                    // another handler could run.
                    let Ok(_waits) = self.waiting.try_acquire() else {
                        return self.leave_to_promise(id, SOON).await;
                    };
                    let acquiring = shortage.over(&self.permit_queues, notification, finished.permits);
                    let Some(acquired) = self.acquire(acquiring, latest).await? else {
                        return self.leave_to_promise(id, SOON).await;
                    };
                    permits = acquired;
                }
            }
        }
    }

    /// A permit, if one is free in time.
    async fn acquire<T>(
        &self,
        acquiring: impl Future<Output = Option<T>>,
        latest: Instant,
    ) -> Result<Option<T>, PushError> {
        Ok(self.unless_stopped(tokio::time::timeout_at(latest, acquiring)).await?.ok().flatten())
    }

    /// Leaves the event to the promise on its row, which is brought forward to this long from now
    /// at the latest. During a shutdown the notification is given back instead: another process may
    /// start it immediately.
    async fn leave_to_promise(&self, id: EventId, wait: Duration) -> Result<(), PushError> {
        if self.stop.is_cancelled() {
            return Err(self.stopping());
        }
        Ok(self.promises.call((id, wait)).await?)
    }

    async fn unless_stopped<F: Future>(&self, waiting: F) -> Result<F::Output, PushError> {
        self.stop.run_until_cancelled(waiting).await.ok_or_else(|| self.stopping())
    }

    /// Why nothing more is accepted.
    fn stopping(&self) -> PushError {
        self.store.noticed_timing().map_or(PushError::Stopping, PushError::Store)
    }

    fn show(&self) {
        let _one_after_the_other = self.showing.lock().unwrap_or_else(PoisonError::into_inner);
        self.gauges.show(self.capacity.saturating_sub(self.slots.free()), 0);
    }

    fn report(&self, report: RunReport) {
        if let Some(reports) = &self.reports {
            // A slow reader misses reports; runs do not wait for it.
            let _ = reports.try_send(report);
        }
    }
}
