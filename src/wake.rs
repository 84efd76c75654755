//! Publishes the events that have to be woken according to the store: those with overdue promises,
//! those behind a lifted rule, and ticks of crons.
//!
//! The store moves a promise before anything is published: a process that dies there loses nothing.

mod attending;
mod backlog;
mod batches;
mod cancelled;
mod error;
mod expiry;
mod idle;
mod limits;
mod missed;
mod next_limit;
mod pace;
mod pauses;
mod progress;
mod queues;
mod resuming;
mod ticks;
mod trouble;
mod turns;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::event::{CanvasId, Notification};
use crate::notify::Notifier;
use crate::store::{Attendance, MinuteOutcome, PulledSplit, Retention, Store, StoreError};
use crate::telemetry::WakeMetrics;
use backlog::Backlog;
pub use error::WakeError;
use next_limit::NextLimit;
use pace::{PAGE_PERIOD, Pace};
use pauses::Pauses;
use progress::Progress;
use trouble::Trouble;

/// Default rate of waking one canvas's events, per second: two seconds of it are published ahead of
/// what workers take, and a tenth of it whatever they take.
pub(crate) const CANVAS_EVENT_RATE: u32 = 1_000;

/// A process looks for expired data in one of this many of its passes; a row of `chores` admits one
/// process per hour.
const EXPIRE_EVERY: u64 = 60;

/// Says what a worker does now.
type Roll = dyn Fn() -> Attendance + Send + Sync;

/// Wakes events. Cheap to clone.
#[derive(Clone)]
pub struct Waker {
    store: Store,
    notifier: Arc<dyn Notifier>,
    /// Counts passes that know the retention.
    passes: Arc<AtomicU64>,
    /// The part of the expired data that is the first to be deleted.
    first_part: Arc<AtomicUsize>,
    /// When to begin no further page; the rest is left to the next pass.
    until: Option<Instant>,
    pace: Arc<Pace>,
    pub(crate) progress: Arc<Progress>,
    next_limit: Arc<NextLimit>,
    metrics: WakeMetrics,
    lets_sleep: bool,
    /// Of the worker of this process, if it has one.
    worker: Option<Arc<Roll>>,
}

/// The result of one minute's pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pass {
    /// Overdue events whose notifications were published.
    pub woken: usize,
    /// Resume jobs that were continued.
    pub jobs: usize,
    /// Events emitted by crons: those that are due, and those that will be before the next pass.
    pub ticks: usize,
    /// Whether time ran out: the next pass is due immediately, and continues.
    pub more: bool,
}

impl Waker {
    #[doc(hidden)]
    pub fn new(store: Store, notifier: Arc<dyn Notifier>) -> Self {
        let pace = Arc::new(Pace::new(CANVAS_EVENT_RATE));
        let metrics = WakeMetrics::new();
        Self {
            store,
            notifier,
            passes: Arc::default(),
            first_part: Arc::default(),
            until: None,
            pace,
            progress: Arc::default(),
            next_limit: Arc::default(),
            metrics,
            lets_sleep: false,
            worker: None,
        }
    }

    /// With `true`, the periodic work pauses while this process is idle and nothing needs a pass.
    #[doc(hidden)]
    pub fn letting_sleep(self, lets_sleep: bool) -> Self {
        Self { lets_sleep, ..self }
    }

    /// Sets how many events of one canvas are woken per second.
    #[doc(hidden)]
    pub fn paced(self, canvas_event_rate: u32) -> Self {
        Self { pace: Arc::new(Pace::new(canvas_event_rate)), ..self }
    }

    /// The periodic work of every long-running process: the pass, once a period, with jitter so
    /// that processes spread out. A row in the database admits one of them at a time.
    #[doc(hidden)]
    pub async fn run(self, period: Duration, retention: Option<Retention>) {
        let mut pauses = Pauses::of(period);
        loop {
            let pass = self.pass(retention).await;
            let pause = pauses.after(pass.is_ok());
            let uses = self.store.uses().count();
            let was_idle = matches!(pass, Ok(pass) if pass == Pass::default());
            match pass {
                Ok(_) if was_idle => {}
                Ok(pass) => tracing::info!(
                    woken = pass.woken,
                    jobs = pass.jobs,
                    ticks = pass.ticks,
                    "woke what was overdue"
                ),
                Err(error) => {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "the minute's pass failed; retrying"
                    );
                }
            }
            tokio::time::sleep(pause).await;
            if self.lets_sleep && was_idle && self.store.uses().count() == uses {
                // Now, so that this wakes nothing in a minute.
                self.store.write_statistics().await;
                self.let_sleep(period).await;
            }
        }
    }

    /// The minute's pass, with a time limit after which no further page is begun.
    pub(crate) async fn pass_within(
        &self,
        limit: Duration,
        retention: Option<Retention>,
    ) -> Result<Pass, WakeError> {
        let bounded = Self { until: Some(Instant::now() + limit), ..self.clone() };
        let pass = bounded.pass(retention).await?;
        if pass.more {
            self.store.hasten_minute(2 * self.store.timing().probe_period).await?;
        }
        Ok(pass)
    }

    /// Whether the time limit, if any, has been reached.
    fn is_over(&self) -> bool {
        self.until.is_some_and(|until| until <= Instant::now())
    }

    /// The minute's pass. It does nothing unless it is due, nor if the notifier can't wake any
    /// worker: then the promises are left to others, and only the durations compared. Expired data
    /// is only deleted if the retention is known.
    ///
    /// Crons tick once a period however long the rest of the pass takes: with a single process no
    /// other pass would emit their ticks.
    #[doc(hidden)]
    pub async fn pass(&self, retention: Option<Retention>) -> Result<Pass, WakeError> {
        if !self.notifier.wakes() {
            self.store.compare_timing().await?;
            return Ok(Pass::default());
        }
        let over = CancellationToken::new();
        let pages = async {
            let _over = over.clone().drop_guard();
            self.pages(retention).await
        };
        let (pass, ticks) = tokio::join!(pages, self.tick_until(&over));
        pass.map(|pass| Pass { ticks: pass.ticks + ticks, ..pass })
    }

    async fn pages(&self, retention: Option<Retention>) -> Result<Pass, WakeError> {
        let mut pass = Pass::default();
        let (mut backlog, mut trouble) = (Backlog::new(self), Trouble::default());
        let (mut again, mut open) = (false, false);
        loop {
            let started = Instant::now();
            let worker = self.seen(again);
            let mut minute = match self.store.minute(again, worker.as_ref()).await {
                Ok(minute) => minute,
                Err(error) => {
                    // Contention: another process is running the pass at this moment.
                    if error.is_contention() {
                        self.attend_alone(worker.as_ref()).await;
                    } else {
                        let may_tick =
                            !matches!(error, StoreError::Unavailable(_) | StoreError::OtherTiming { .. });
                        trouble.note("the minute", error);
                        if may_tick && !again {
                            self.tick_all(&mut pass, &mut trouble).await;
                        }
                    }
                    break;
                }
            };
            if !minute.seen {
                self.enter_again(worker.as_ref()).await;
            }
            // Without a horizon, the pass normally wakes delayed events, so nothing was lost.
            if !self.store.timing().horizon.is_zero() {
                self.metrics.recovered(minute.recovered);
            }
            // First, because these promises have been moved: if the process dies before this, they
            // wait for the back-off.
            let overdue = std::mem::take(&mut minute.notifications);
            let woken = self.publish_overdue(overdue, &mut backlog, &mut trouble).await;
            pass.woken += woken.unwrap_or(0);
            minute.failed.drain(..).for_each(|error| trouble.note("promises and jobs", error));
            if minute.crons {
                self.tick_all(&mut pass, &mut trouble).await;
            }
            self.look_after(&minute, &mut trouble).await;
            backlog.carry_on(minute.jobs);
            open |= minute.open;
            // Where nothing can be published, no further promises are moved.
            if !minute.more || woken.is_none() || self.is_over() {
                break;
            }
            again = true;
            tokio::time::sleep_until(started + PAGE_PERIOD).await;
        }
        let (woken, jobs) = backlog.end(&mut trouble).await;
        (pass.woken, pass.jobs) = (pass.woken + woken, jobs);
        if let Some(retention) = retention.filter(|_| open)
            && self.passes.fetch_add(1, Ordering::Relaxed).is_multiple_of(EXPIRE_EVERY)
        {
            self.expire(retention).await;
        }
        pass.more = self.is_over();
        trouble.ended().map(|()| pass)
    }

    /// What the minute's statement has found to do beside promises, jobs and crons.
    async fn look_after(&self, minute: &MinuteOutcome, trouble: &mut Trouble) {
        if minute.queues {
            self.tidy_queues(trouble).await;
        }
        if minute.cancelled {
            self.remove_cancelled(trouble).await;
        }
        if minute.batches {
            self.look_at_batches(trouble).await;
        }
        if minute.limits {
            self.wake_limits(trouble).await;
        }
        if minute.log {
            self.provide_for_log().await;
        }
    }

    async fn tick_all(&self, pass: &mut Pass, trouble: &mut Trouble) {
        pass.ticks += trouble.look("ticks", self.tick(None).await).unwrap_or(0);
    }

    /// Publishes as much of a page as its canvases may publish at once; returns the number of
    /// events, or `None` if none were published. The rest waits for its turn.
    async fn publish_overdue(
        &self,
        page: Vec<Notification>,
        backlog: &mut Backlog,
        trouble: &mut Trouble,
    ) -> Option<usize> {
        let split = backlog.split(page);
        let published = self.publish(&split.now).await;
        if published.is_err() {
            // The back-off is meant for lost notifications, not for a broker that is unavailable.
            let ids: Vec<_> = split.now.iter().map(|notification| notification.id).collect();
            trouble.look("promises that were not published", self.store.promise_again(&ids).await);
        }
        if !split.later.is_empty() {
            trouble.look("promises to be published later", self.store.postpone(&split.later).await);
        }
        trouble.look("notifications", published).map(|()| split.now.len())
    }

    /// Publishes the events that a change made due, as far as the canvas may publish them at once.
    /// The minute's pass keeps the promises of the rest.
    pub(crate) async fn publish_share(
        &self,
        canvas: CanvasId,
        notifications: &[Notification],
    ) -> Result<(), WakeError> {
        let taken = self.pace.take(canvas, notifications);
        self.publish(&notifications[..taken]).await
    }

    /// Publishes notifications for workers. Copies in pulled queues get their turns instead: after
    /// the others have been published, since the lock of a queue may have to be waited for.
    pub(crate) async fn publish(&self, notifications: &[Notification]) -> Result<(), WakeError> {
        if notifications.is_empty() {
            return Ok(());
        }
        let PulledSplit { workers, pulled } = self.store.split_pulled(notifications).await?;
        let mut trouble = Trouble::default();
        if !workers.is_empty() && self.notifier.wakes() {
            match self.notifier.publish(&workers).await {
                Ok(()) => self.progress.woke(workers.len()),
                Err(error) => trouble.note("notifications", error),
            }
        }
        for copies in &pulled {
            trouble.look("announcements of copies", self.store.announce_pulled(copies).await);
        }
        trouble.ended()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Actor, CanvasId, HandlerScope, RuleKind};
    use crate::notify::{LocalNotifier, NoNotifier, NotifyError};
    use crate::store::tests::Table;

    /// A broker that does not answer.
    struct Stuck {
        entered: tokio::sync::Notify,
        answers: CancellationToken,
    }

    #[async_trait::async_trait]
    impl Notifier for Stuck {
        async fn publish(&self, _: &[Notification]) -> Result<(), NotifyError> {
            self.entered.notify_one();
            self.answers.cancelled().await;
            Ok(())
        }

        async fn subscribe(&self, _: usize) -> Result<Box<dyn crate::notify::Subscription>, NotifyError> {
            unreachable!("nothing is received here")
        }
    }

    /// A pass may take minutes, and be the only one: crons tick in the meantime.
    #[tokio::test]
    async fn crons_tick_however_long_a_pass_takes() {
        let timing = crate::event::Timing { probe_period: Duration::from_millis(200), ..Default::default() };
        let table =
            Table::with(crate::store::StoreConfig { timing: Some(timing), ..Default::default() }).await;
        table.add(1).await;
        table.add_cron("often").await;
        let stuck =
            Arc::new(Stuck { entered: tokio::sync::Notify::new(), answers: CancellationToken::new() });
        let waker = Waker::new(table.store.clone(), Arc::clone(&stuck) as Arc<dyn Notifier>);
        let passing = tokio::spawn(async move { waker.pass(None).await.unwrap() });
        stuck.entered.notified().await;
        table.start_crons().await;
        let ticked = async {
            while table.events_of("often").await == 0 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), ticked).await.expect("no tick while the pass lasts");
        stuck.answers.cancel();
        let pass = passing.await.unwrap();
        assert!(pass.ticks > 0 && pass.woken == 1, "{pass:?}");
    }

    /// A process that wakes no worker also learns that the deployment's durations were changed.
    #[tokio::test]
    async fn a_pass_that_wakes_nobody_compares_the_durations() {
        let table = Table::new().await;
        let waker = Waker::new(table.store.clone(), Arc::new(NoNotifier));
        assert_eq!(waker.pass(None).await.unwrap(), Pass::default());
        table.lengthen_grace().await;
        let error = waker.pass(None).await.unwrap_err();
        assert!(matches!(error.of_store(), Some(StoreError::OtherTiming { name: "grace", .. })), "{error:?}");
    }

    /// A pass deletes a group's dead events after the same time as others, on any canvas.
    #[tokio::test]
    async fn a_pass_forgets_what_groups_gave_up_long_ago() {
        let table = Table::new().await;
        table.add_group_dead(4).await;
        let waker = Waker::new(table.store.clone(), Arc::new(LocalNotifier::new()));
        let retention = Retention { dead_events: Duration::from_secs(9_000), ..Retention::default() };
        waker.pass(Some(retention)).await.unwrap();
        assert_eq!(table.group_dead_of("g").await, [2, 1]);
    }

    /// However many there are, page by page. A pass whose time is over leaves the rest to the next.
    #[tokio::test]
    async fn a_pass_forgets_several_pages_of_what_is_old() {
        let table = Table::new().await;
        let kept = Duration::from_secs(9_000);
        let retention = Retention { dead_events: kept, ..Retention::default() };
        let waker = Waker::new(table.store.clone(), Arc::new(LocalNotifier::new()));
        let minute = Duration::from_secs(60);
        table.add_group_dead(25_000).await;
        for canvas in [6, 7] {
            table.add_old_tombstones(CanvasId(uuid::Uuid::from_u128(canvas)), 1_600).await;
        }
        // Data that such a pass did not reach comes first in the next.
        for left in [(25_000, 3_200), (15_000, 3_200), (15_000, 2_200)] {
            assert!(waker.pass_within(Duration::ZERO, Some(retention)).await.unwrap().more);
            assert_eq!(table.dead_of_groups_and_tombstones().await, left);
        }
        waker.pass_within(minute, Some(retention)).await.unwrap();
        assert_eq!(table.dead_of_groups_and_tombstones().await, (2, 2), "what is young stays");
    }

    /// A pass without time processes one page, reports that there is more, and has the next pass
    /// continue immediately.
    // Shows: PUSH-14
    #[tokio::test]
    async fn a_pass_whose_time_is_over_is_carried_on_by_the_next() {
        let table = Table::new().await;
        table.add(2_500).await;
        let (scope, ada) = (HandlerScope::worker(CanvasId::DEFAULT, "other").unwrap(), Actor::user("ada"));
        table.store.add_rule(RuleKind::Pause, &scope, None, None, &ada).await.unwrap();
        assert_eq!(table.store.lift_rule(RuleKind::Pause, &scope, &ada).await.unwrap().jobs.len(), 1);
        let waker = Waker::new(table.store.clone(), Arc::new(LocalNotifier::new()));
        let mut passed = Vec::new();
        for limit in [Duration::ZERO, Duration::ZERO, Duration::from_secs(60)] {
            let Pass { woken, jobs, more, .. } = waker.pass_within(limit, None).await.unwrap();
            passed.push((woken, jobs, more));
        }
        assert_eq!(passed, [(1000, 0, true), (1000, 0, true), (500, 1, false)]);
        assert_eq!(waker.pass_within(Duration::from_secs(60), None).await.unwrap(), Pass::default());
    }
}
