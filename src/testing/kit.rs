//! The kit: a queue, a worker that runs step by step, and the clock of both.
//!
//! It makes no decision that belongs to machine, driver or statements: it hands notifications to
//! the worker's driver, and has the store wake what is due.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::delay_queue::DelayQueue;
use super::drained::DrainReport;
use super::emitted::EmittedEvent;
use super::error::{IDLE_WAVES_MAX, KitError};
use super::notifier::MemoryNotifier;
use super::stepper::Stepper;
use crate::admin::Admin;
use crate::emit::{Emitted, Queue, QueueConfig};
use crate::event::{CanvasId, Event, EventId, Notification, Timestamp, Timing};
use crate::explain::Explanation;
use crate::machine::Outcome;
use crate::notify::{NoNotifier, Notifier};
use crate::store::{DeadEvent, DeadFilter, Store, StoreConfig};
use crate::worker::{Handlers, RunReport, Verdict};

/// Maximum number of dead events that are read per canvas.
const DEAD_MAX: u32 = 1_000;
/// A lease ends after its last moment, so a wait of zero is rounded up to this.
const A_MOMENT: Duration = Duration::from_micros(1);

/// A queue for tests, with a worker that runs on request and a clock that the test moves.
///
/// Handlers run one at a time, in the order in which their events were published. Everything else
/// is the code of the worker itself: retries and their delays, error values, panics, time-outs,
/// routes, limits, pauses and blocks, dead events.
///
/// In memory the clock moves only with [`TestKit::advance`] and [`TestKit::drain_for`]. It stands
/// for the clock of the database, which counts for delays, leases and rules; time-outs, and what
/// handlers wait for themselves, use tokio's clock, which a test can pause.
///
/// A drain that is dropped half-way, for example by a time-out, is like a worker that died: what it
/// was running is taken over by a later drain, a moment more than a lease (60 s) later.
pub struct TestKit {
    store: Store,
    notifier: MemoryNotifier,
    queue: Queue,
    /// Emits without waking the worker.
    silent: Queue,
    admin: Admin,
    stepper: Stepper,
    delayed: DelayQueue,
}

impl Default for TestKit {
    fn default() -> Self {
        Self::new()
    }
}

impl TestKit {
    /// A queue in memory, with the default durations. Its clock starts at the system's time.
    ///
    /// # Panics
    /// If it is called outside of a tokio runtime, which an async test has.
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

    /// A queue on a database, for handlers that emit in their own transactions. The kit must be its
    /// only user: moving the clock moves every stored time, and another worker would run the kit's
    /// events.
    pub fn on(store: Store) -> Self {
        let mut kit = Self::over(store.remembering());
        kit.delayed = DelayQueue::on_database_clock();
        kit
    }

    /// A queue on the database at this URL, which is migrated first. As with [`TestKit::on`], the
    /// kit must be its only user: give each test a database of its own, and they can run in
    /// parallel. The kit uses one connection, and accepts a server that does not flush to disk, as
    /// those for tests often do.
    ///
    /// ```no_run
    /// use wakeq::testing::TestKit;
    /// use wakeq::{Event, Handlers};
    ///
    /// // A test with `#[sqlx::test]` has a database of its own: its URL is `pool.connect_options().to_url_lossy()`.
    /// async fn orders_are_confirmed(pool: sqlx::PgPool, url: &str) -> Result<(), Box<dyn std::error::Error>> {
    ///     let mut kit = TestKit::on_database(url).await?;
    ///     kit.handlers(Handlers::new().on("confirm-order", |_event| async { Ok(()) }))?;
    ///     let mut transaction = pool.begin().await?;
    ///     let receipt = kit.queue().emit_in(&mut transaction, Event::new("confirm-order", &17)?).await?;
    ///     transaction.commit().await?;
    ///     receipt.notify().await;
    ///     kit.drain().await?.assert_all_fine(1);
    ///     Ok(())
    /// }
    /// ```
    pub async fn on_database(url: &str) -> Result<Self, KitError> {
        Store::migrate(url, false).await?;
        let config =
            StoreConfig { max_connections: 1, allow_unsafe_durability: true, ..StoreConfig::default() };
        Ok(Self::on(Store::connect(url, config).await?))
    }

    fn over(store: Store) -> Self {
        let notifier = MemoryNotifier::new();
        let shared: Arc<dyn Notifier> = Arc::new(notifier.clone());
        Self {
            queue: Queue::new(store.clone(), Arc::clone(&shared), QueueConfig::default()),
            silent: Queue::new(store.clone(), Arc::new(NoNotifier), QueueConfig::default()),
            // No other canvas waits for a worker here, so the rate of waking need not be limited.
            admin: Admin::new(store.clone(), shared).canvas_event_rate(u32::MAX),
            stepper: Stepper::without_handlers(&store, &notifier),
            store,
            notifier,
            delayed: DelayQueue::default(),
        }
    }

    /// Sets the worker's handlers, in place of previous ones.
    pub fn handlers(&mut self, handlers: impl Into<Handlers>) -> Result<(), KitError> {
        self.stepper = Stepper::new(&self.store, &self.notifier, handlers.into())?;
        Ok(())
    }

    /// Emits into the kit. Clones are for handlers and for the code under test.
    pub fn queue(&self) -> Queue {
        self.queue.clone()
    }

    /// Pauses, blocks, lists, explains, cancels and redrives. In memory it does not support counts
    /// by handler, nor what is in tables of its own, such as crons and queues.
    pub fn admin(&self) -> &Admin {
        &self.admin
    }

    /// For code that makes its own `Queue` or `Admin`. What is emitted through it is remembered as
    /// well.
    pub fn store(&self) -> Store {
        self.store.clone()
    }

    /// The notifier that wakes the kit's worker. A drain fails while a test has broken it.
    pub fn notifier(&self) -> &MemoryNotifier {
        &self.notifier
    }

    /// Emits an event.
    pub async fn emit(&self, event: Event) -> Result<Emitted, KitError> {
        Ok(self.queue.emit(event).await?)
    }

    /// The current time of the kit.
    pub async fn now(&self) -> Result<Timestamp, KitError> {
        Ok(self.store.clock().await?)
    }

    /// Moves the clock; nothing runs until the next drain. On a database all stored times become
    /// earlier by this much, and [`TestKit::now`] remains the server's time.
    pub async fn advance(&self, by: Duration) -> Result<(), KitError> {
        self.store.advance(by).await?;
        self.delayed.advance(by);
        Ok(())
    }

    /// Runs everything that may run now, and what that emits, until nothing is left that may.
    pub async fn drain(&self) -> Result<DrainReport, KitError> {
        let mut drained = DrainReport::after(self.store.emitted().len());
        self.drain_into(&mut drained).await?;
        Ok(drained)
    }

    /// Drains, moves the clock to the next time at which something happens, and repeats, for at
    /// most this long on that clock: retries and delayed events run at their time. It ends early
    /// when nothing waits for a time; as long as something does, all of that time passes. What
    /// waits under a rule, for a handler, or for longer is in [`DrainReport::waiting`].
    ///
    /// ```
    /// # use std::time::{Duration, Instant};
    /// # use wakeq::{Event, HandlerError, Handlers};
    /// # use wakeq::testing::TestKit;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let mut kit = TestKit::new();
    /// kit.handlers(Handlers::new().on("flaky", |_| async { Err::<(), _>(HandlerError::operational("no")) }))?;
    /// kit.emit(Event::new("flaky", &1)?.after(Duration::from_secs(86_400))?).await?;
    /// let drained = kit.drain_for(Duration::from_secs(7 * 86_400)).await?;
    /// assert_eq!((drained.retried, drained.died, drained.waiting), (2, 1, 0));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn drain_for(&self, longest: Duration) -> Result<DrainReport, KitError> {
        let mut drained = DrainReport::after(self.store.emitted().len());
        // By the kit's clock, which also runs by itself beside a database.
        let end = self.delayed.age().saturating_add(longest);
        loop {
            // What fell due since then has not been run, even if its time has passed.
            let looked_at = self.drain_into(&mut drained).await?;
            let Some(next) = self.store.next_moment(looked_at).await? else { break };
            let step = (next - self.now().await?).to_std().unwrap_or_default();
            let left = end.saturating_sub(self.delayed.age());
            if step > left {
                self.advance(left).await?;
                break;
            }
            self.advance(step).await?;
        }
        Ok(drained)
    }

    /// Emits an event and runs it once, regardless of what else waits. Returns what its handler
    /// did, and what happens to the event.
    ///
    /// ```
    /// # use wakeq::machine::Outcome;
    /// # use wakeq::testing::TestKit;
    /// # use wakeq::{Event, Execution, HandlerResult, Handlers};
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
        let report = self.stepper.run(Notification::new(id, canvas)).await;
        match &report.verdict {
            Verdict::Failed(error) => Err(KitError::CutShort(error.clone())),
            Verdict::Acknowledged | Verdict::PutBack | Verdict::Waits(_) | Verdict::WaitsForRoom => {
                Ok(report)
            }
        }
    }

    /// The last 100,000 events that were emitted since the kit was made, by anyone, in order.
    /// [`assert_emitted`](crate::assert_emitted) checks them.
    pub fn emitted(&self) -> Vec<EmittedEvent> {
        self.store.emitted().iter().map(|event| EmittedEvent::of(event)).collect()
    }

    /// The dead events of every canvas that was emitted to, the latest first; at most 1,000 per
    /// canvas.
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

    /// Why an event of the default canvas is not running, in the terms of the state machine.
    pub async fn explain(&self, id: EventId) -> Result<Explanation, KitError> {
        Ok(self.admin.explain(CanvasId::DEFAULT, id).await?)
    }

    /// Works in waves: wakes what is due, as an operator who wakes everything does, and what has
    /// been delayed; then runs everything that is published. A wave is the last if no handler
    /// ran and nothing fell due meanwhile: what it met waits for something else. Returns when that
    /// wave began, because the clock of a database has moved on since.
    async fn drain_into(&self, drained: &mut DrainReport) -> Result<Timestamp, KitError> {
        self.stepper.register().await?;
        let mut subscription = self.notifier.subscribe(1).await?;
        let mut idle_waves = 0;
        let looked_at = loop {
            let looked_at = self.now().await?;
            let attempts = drained.attempts();
            self.admin.wake(true).await?;
            self.notifier.publish(&self.delayed.due()).await?;
            // An event that is named twice is looked at once. What is published after the wave has
            // begun may be due to a run of it, and is then for the next wave.
            let mut named = BTreeSet::new();
            let (mut ended, mut left_of_beginning) = (BTreeSet::new(), self.notifier.pending());
            while self.notifier.pending() > 0 {
                self.refuse_to_wait_for_ever()?;
                let Some(delivery) = subscription.next().await else { break };
                let is_late = left_of_beginning == 0;
                left_of_beginning = left_of_beginning.saturating_sub(1);
                let Some(notification) = delivery.notification.as_ref().ok().copied() else {
                    delivery.acknowledge();
                    continue;
                };
                if !named.insert(notification.id) {
                    if is_late && !ended.contains(&notification.id) {
                        self.delayed.keep(notification, self.delayed.age());
                    }
                    delivery.acknowledge();
                    continue;
                }
                // Never later than its time: the run reads the clock after this.
                let before = self.delayed.age();
                let report = self.stepper.run(notification).await;
                if let Verdict::Waits(wait) = report.verdict {
                    self.delayed.keep(notification, before.saturating_add(wait.max(A_MOMENT)));
                } else if matches!(report.ending(), Some(Outcome::Deleted | Outcome::EventMissing)) {
                    self.delayed.forget(notification.id);
                    ended.insert(notification.id);
                }
                drained.add(report)?;
                delivery.acknowledge();
            }
            let is_idle = drained.attempts() == attempts;
            if is_idle && !self.delayed.has_due() {
                break looked_at;
            }
            idle_waves = if is_idle { idle_waves + 1 } else { 0 };
            if idle_waves == IDLE_WAVES_MAX {
                return Err(KitError::Idle);
            }
        };
        drained.waiting = self.store.count().await?;
        Ok(looked_at)
    }

    /// A test, or a handler, may have stopped the notifier, and nothing would start it again while
    /// a drain waits.
    fn refuse_to_wait_for_ever(&self) -> Result<(), KitError> {
        let waiting = self.notifier.pending();
        match self.notifier.remedy() {
            Some(remedy) => Err(KitError::HeldBack { waiting, remedy }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "requires a Tokio context")]
    fn a_kit_needs_a_runtime() {
        TestKit::new();
    }
}
