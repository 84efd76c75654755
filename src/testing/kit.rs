//! The kit: a queue, a worker that goes step by step, and the clock of both.
//!
//! It decides nothing that machine, driver or statements decide: it hands notifications to the worker's driver and asks
//! the store to wake what is due.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::emitted::EmittedEvent;
use super::notifier::MemoryNotifier;
use crate::admin::{Admin, AdminError};
use crate::emit::{EmitError, Emitted, Queue, QueueConfig};
use crate::event::{CanvasId, Event, EventId, Notification, Timestamp, Timing};
use crate::explain::Explanation;
use crate::machine::Outcome;
use crate::notify::{NoNotifier, Notifier, NotifyError};
use crate::store::{DeadEvent, DeadFilter, Store, StoreError};
use crate::worker::{Handlers, QueueWorker, RunReport, Verdict, WorkerConfig, WorkerError};

/// Most runs of one [`TestKit::drain`]: handlers that go on emitting for one another never come to rest.
const RUNS_MAX: usize = 10_000;
/// Most dead events that are looked at.
const DEAD_MAX: u32 = 1_000;

/// A queue for tests, with a worker that runs when it is told to and a clock that a test moves.
///
/// Handlers run one at a time, in the order in which their events were published. Everything else is the worker's own
/// code, so what holds here holds there: retries and their delays, error values, panics, time-outs, routes, limits, pauses
/// and blocks, dead events.
///
/// Time stands still until [`TestKit::advance`] moves it. It is the time of the database, by which delays, leases and rules
/// go; time-outs and whatever handlers themselves wait for go by tokio's clock, which a test can pause.
///
/// A drain that is dropped half-way, by a time-out around it, is a worker that died: what it ran is taken over by a later
/// drain, once a lease (60 s) has passed.
pub struct TestKit {
    store: Store,
    notifier: MemoryNotifier,
    queue: Queue,
    /// Emits without waking.
    silent: Queue,
    admin: Admin,
    handlers: Handlers,
    worker_config: WorkerConfig,
    lot: Lot,
}

/// What a drain did.
#[derive(Clone, Debug, Default)]
pub struct Drained {
    /// Events that completed; those whose handlers answered with an error value are among them.
    pub completed: usize,
    /// Attempts that failed and are tried again.
    pub retried: usize,
    /// Events that are dead now.
    pub died: usize,
    /// Events that wait under a pause or a block, and were looked at.
    pub parked: usize,
    /// Events whose handler is not among the kit's, and that were looked at.
    pub unknown: usize,
    /// Events that have not ended: they wait for their time, under a rule, or for their handler.
    pub waiting: u64,
    /// Each run in which a handler was started, in order; and of those that only looked at an event the first with each
    /// outcome.
    pub runs: Vec<RunReport>,
    looks: BTreeSet<(EventId, Outcome)>,
}

/// Why a kit could not do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub enum KitError {
    /// The list of handlers, or the worker's configuration.
    #[error(transparent)]
    Worker(#[from] WorkerError),
    /// An emit was refused.
    #[error(transparent)]
    Emit(#[from] EmitError),
    /// A command was refused.
    #[error(transparent)]
    Admin(#[from] AdminError),
    /// The database, or what a store in memory does not do.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The notifier, which a test may have broken.
    #[error(transparent)]
    Notify(#[from] NotifyError),
    /// A run got no answer from the database.
    #[error("a run was cut short: {0}")]
    CutShort(String),
    /// Handlers emit for one another without end.
    #[error("{RUNS_MAX} runs and no end: do handlers emit for one another, or retry without a delay?")]
    Restless,
}

impl Default for TestKit {
    fn default() -> Self {
        Self::new()
    }
}

impl TestKit {
    /// A queue in memory, with the default durations. Its clock starts at the system's time. Must be called inside a tokio
    /// runtime.
    ///
    /// # Panics
    /// Never: the default durations are valid.
    pub fn new() -> Self {
        match Self::with_timing(Timing::default()) {
            Ok(kit) => kit,
            Err(error) => unreachable!("{error}"),
        }
    }

    /// A queue in memory with other durations.
    pub fn with_timing(timing: Timing) -> Result<Self, KitError> {
        Ok(Self::over(Store::in_memory(timing)?))
    }

    /// A queue on a database, for handlers that emit in transactions of their own. It must be the kit's alone: moving the
    /// clock moves every stored moment, and a worker elsewhere would run the kit's events.
    pub fn on(store: Store) -> Self {
        let mut kit = Self::over(store.remembering());
        kit.lot.running_since = Some(Instant::now());
        kit
    }

    fn over(store: Store) -> Self {
        let notifier = MemoryNotifier::new();
        let shared: Arc<dyn Notifier> = Arc::new(notifier.clone());
        Self {
            queue: Queue::new(store.clone(), Arc::clone(&shared), QueueConfig::default()),
            silent: Queue::new(store.clone(), Arc::new(NoNotifier), QueueConfig::default()),
            admin: Admin::new(store.clone(), shared),
            store,
            notifier,
            handlers: Handlers::new(),
            worker_config: WorkerConfig::default(),
            lot: Lot::default(),
        }
    }

    /// Gives the worker its handlers, in place of those it had.
    pub fn handlers(&mut self, handlers: Handlers) -> Result<(), KitError> {
        self.worker_of(handlers.clone())?;
        self.handlers = handlers;
        Ok(())
    }

    /// Emits into the kit; clones of it are for handlers and for the code under test.
    pub fn queue(&self) -> Queue {
        self.queue.clone()
    }

    /// Pauses, blocks, explains, cancels, redrives. In memory it neither lists nor counts.
    pub fn admin(&self) -> &Admin {
        &self.admin
    }

    /// For code that makes its own `Queue` or `Admin`. What is emitted through it is remembered, too.
    pub fn store(&self) -> Store {
        self.store.clone()
    }

    /// What wakes the kit's worker. A drain fails while a test has broken it.
    pub fn notifier(&self) -> &MemoryNotifier {
        &self.notifier
    }

    /// Emits an event.
    pub async fn emit(&self, event: Event) -> Result<Emitted, KitError> {
        Ok(self.queue.emit(event).await?)
    }

    /// The time.
    pub async fn now(&self) -> Result<Timestamp, KitError> {
        Ok(self.store.clock().await?)
    }

    /// Moves the clock; nothing runs until the next drain. On a database moments that were stored before are from then on
    /// earlier by this much, and [`TestKit::now`] is the server's time.
    pub async fn advance(&self, by: Duration) -> Result<(), KitError> {
        self.store.advance(by).await?;
        self.lot.advance(by);
        Ok(())
    }

    /// Runs what may run at the present time, and what that emits, until nothing is left that may.
    pub async fn drain(&self) -> Result<Drained, KitError> {
        let mut drained = Drained::default();
        self.drain_into(&mut drained).await?;
        Ok(drained)
    }

    /// Drains, moves the clock to when something happens next, and so on, for at most so long on that clock: retries and
    /// delayed events run at their time. It ends early when nothing waits for a time. What waits under a rule, for a
    /// handler, or longer than that, is in [`Drained::waiting`].
    ///
    /// ```
    /// # use std::time::{Duration, Instant};
    /// # use wakeq::{Event, HandlerError, Handlers};
    /// # use wakeq::testing::TestKit;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let mut kit = TestKit::new();
    /// kit.handlers(Handlers::new().on("flaky", |_| async { Err(HandlerError::operational("no")) }))?;
    /// kit.emit(Event::new("flaky", &1)?.after(Duration::from_secs(86_400))?).await?;
    /// let drained = kit.drain_for(Duration::from_secs(7 * 86_400)).await?;
    /// assert_eq!((drained.retried, drained.died, drained.waiting), (2, 1, 0));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn drain_for(&self, longest: Duration) -> Result<Drained, KitError> {
        let mut drained = Drained::default();
        let mut left = longest;
        loop {
            self.drain_into(&mut drained).await?;
            let Some(next) = self.store.next_moment().await? else { break };
            let step = (next - self.now().await?).to_std().unwrap_or_default();
            let Some(rest) = left.checked_sub(step) else { break };
            left = rest;
            self.advance(step).await?;
        }
        Ok(drained)
    }

    /// Emits an event and runs it once, whatever else waits: what its handler did, and what becomes of the event.
    ///
    /// ```
    /// # use wakeq::{Event, Execution, HandlerResult, Handlers, Outcome};
    /// # use wakeq::testing::TestKit;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// async fn parse(event: Execution) -> HandlerResult {
    ///     event.value::<String>()?.parse::<i64>()?;
    ///     Ok(())
    /// }
    ///
    /// let mut kit = TestKit::new();
    /// kit.handlers(Handlers::new().on("parse", parse))?;
    /// let run = kit.perform(Event::new("parse", "seventeen")?).await?;
    /// assert_eq!(run.error.as_deref(), Some("invalid digit found in string"));
    /// assert_eq!(run.trail.last(), Some(&Outcome::RetryAllowed));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn perform(&self, event: Event) -> Result<RunReport, KitError> {
        let canvas = event.address(CanvasId::DEFAULT).scope.canvas;
        let id = self.silent.emit(event).await?.id;
        let report = self.worker()?.driver().run(Notification { id, canvas }).await;
        match &report.verdict {
            Verdict::Failed(error) => Err(KitError::CutShort(error.clone())),
            Verdict::Acknowledged | Verdict::PutBack | Verdict::Waits(_) | Verdict::WaitsForRoom => {
                Ok(report)
            }
        }
    }

    /// What was emitted since the kit was made, by whomever, in order; the last 100,000. [`assert_emitted`](crate::assert_emitted) asks it.
    pub fn emitted(&self) -> Vec<EmittedEvent> {
        self.store.emitted().iter().map(|event| EmittedEvent::of(event)).collect()
    }

    /// Events that are dead, of every canvas that was emitted to, the latest first; 1,000 of each.
    pub async fn dead(&self) -> Result<Vec<DeadEvent>, KitError> {
        let canvases = self.store.emitted().into_iter().map(|event| event.address.scope.canvas);
        let canvases: BTreeSet<CanvasId> = canvases.chain([CanvasId::DEFAULT]).collect();
        let mut dead = Vec::new();
        for canvas in canvases {
            let filter = DeadFilter { canvas, ..DeadFilter::default() };
            dead.extend(self.admin.dead(&filter, None, DEAD_MAX).await?.items);
        }
        Ok(dead)
    }

    /// Why an event of the default canvas is not running, in the words of the state machine.
    pub async fn explain(&self, id: EventId) -> Result<Explanation, KitError> {
        Ok(self.admin.explain(CanvasId::DEFAULT, id).await?)
    }

    fn worker(&self) -> Result<QueueWorker, KitError> {
        self.worker_of(self.handlers.clone())
    }

    fn worker_of(&self, handlers: Handlers) -> Result<QueueWorker, KitError> {
        let notifier = Arc::new(self.notifier.clone());
        Ok(QueueWorker::new(self.store.clone(), notifier, handlers, self.worker_config.clone())?)
    }

    /// In waves: what is due is woken, as an operator does who wakes all, and what waited in the lot; then everything
    /// published is run. A wave in which no handler ran is the last: what it met waits for something else.
    async fn drain_into(&self, drained: &mut Drained) -> Result<(), KitError> {
        let worker = self.worker()?;
        worker.register().await?;
        let driver = worker.driver();
        let mut subscription = self.notifier.subscribe(1).await?;
        loop {
            let attempts = drained.attempts();
            self.admin.wake(true).await?;
            self.notifier.publish(&self.lot.due()).await?;
            // Who is named twice is looked at once: what changes meanwhile is for the next wave.
            let mut named = BTreeSet::new();
            while self.notifier.pending() > 0 {
                let Some(delivery) = subscription.next().await else { break };
                let new =
                    delivery.notification.as_ref().ok().filter(|notification| named.insert(notification.id));
                let Some(notification) = new.copied() else {
                    delivery.acknowledge();
                    continue;
                };
                // Never after its time: the run reads the clock later than this.
                let before = self.lot.age();
                let report = driver.run(notification).await;
                if let Verdict::Waits(wait) = report.verdict {
                    self.lot.keep(notification, before.saturating_add(wait));
                } else if matches!(report.trail.last(), Some(Outcome::Deleted | Outcome::EventMissing)) {
                    self.lot.forget(notification.id);
                }
                drained.add(report)?;
                delivery.acknowledge();
            }
            if drained.attempts() == attempts {
                break;
            }
        }
        drained.waiting = self.store.count().await?;
        Ok(())
    }
}

/// Notifications that wait for their time: the parking lot of a worker, on the kit's clock.
#[derive(Default)]
struct Lot {
    waiting: Mutex<Waiting>,
    /// Since when the time of a database runs beside what the kit moves.
    running_since: Option<Instant>,
}

#[derive(Default)]
struct Waiting {
    moved: Duration,
    /// Until when, counted from the making of the kit.
    notifications: BTreeMap<EventId, (Notification, Duration)>,
}

impl Lot {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long the kit has lived, on its clock.
    fn age(&self) -> Duration {
        let ran = self.running_since.map(|since| since.elapsed());
        self.waiting().moved + ran.unwrap_or_default()
    }

    fn advance(&self, by: Duration) {
        self.waiting().moved += by;
    }

    /// One for each event, for the earlier of two times.
    fn keep(&self, notification: Notification, until: Duration) {
        let mut waiting = self.waiting();
        let (_, known) = waiting.notifications.entry(notification.id).or_insert((notification, until));
        *known = until.min(*known);
    }

    fn forget(&self, event: EventId) {
        self.waiting().notifications.remove(&event);
    }

    fn due(&self) -> Vec<Notification> {
        let age = self.age();
        let mut waiting = self.waiting();
        let due = waiting.notifications.extract_if(.., |_, (_, until)| *until <= age);
        due.map(|(_, (notification, _))| notification).collect()
    }
}

impl Drained {
    /// How many times a handler was started.
    pub fn attempts(&self) -> usize {
        self.runs.iter().filter(|run| run.attempt.is_some()).count()
    }

    /// The runs of one event.
    pub fn of(&self, id: EventId) -> impl Iterator<Item = &RunReport> {
        self.runs.iter().filter(move |run| run.notification.id == id)
    }

    fn add(&mut self, report: RunReport) -> Result<(), KitError> {
        if let Verdict::Failed(error) = &report.verdict {
            return Err(KitError::CutShort(error.clone()));
        }
        if self.runs.len() == RUNS_MAX {
            return Err(KitError::Restless);
        }
        let trail = &report.trail;
        if report.attempt.is_none()
            && let Some(last) = trail.last()
            && !self.looks.insert((report.notification.id, *last))
        {
            return Ok(());
        }
        let count = match trail.last() {
            Some(Outcome::Deleted) if trail.contains(&Outcome::ExecutesToCompletion) => {
                Some(&mut self.completed)
            }
            Some(Outcome::Deleted) => Some(&mut self.died),
            Some(Outcome::RetryAllowed) => Some(&mut self.retried),
            Some(Outcome::RulePaused | Outcome::RuleBlocked) => Some(&mut self.parked),
            Some(Outcome::Deferred) => Some(&mut self.unknown),
            Some(_) | None => None,
        };
        if let Some(count) = count {
            *count += 1;
        }
        self.runs.push(report);
        Ok(())
    }
}
