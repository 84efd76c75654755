//! Publishing what the store says has to be woken: overdue promises, the events behind a lifted rule, and those of crons.
//!
//! The store moves a promise before anything is published, so a process that dies in between loses nothing.

mod backlog;
mod pace;
mod queues;
mod ticks;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::event::{CanvasId, Notification};
use crate::notify::{Notifier, NotifyError};
use crate::store::{GROUP_DEAD_PAGE, IdleRetention, Retention, Store, StoreError, TOMBSTONES_PAGE};
use crate::telemetry::WakeMetrics;
use backlog::Backlog;
use pace::{Pace, Turn};

/// Most notifications that are published at a time.
const PAGE: usize = 1_000;
/// Least time between two pages: workers and broker are not to be flooded.
const PAGE_PERIOD: Duration = Duration::from_millis(50);
/// Events of a canvas that are woken in a second, unless the configuration says otherwise: as many as it may emit.
pub(crate) const CANVAS_EVENT_RATE: u32 = 1_000;

/// In how many passes of its own a process looks once for what is old; a row of `chores` lets one through an hour.
const EXPIRE_EVERY: u64 = 60;

/// Most pages of what is old that one pass deletes; the next passes go on, so that none takes minutes.
const EXPIRE_PAGES: usize = 100;
/// Most pages of what nobody uses that one process looks at in a row.
const IDLE_PAGES: usize = 20;

/// Most partitions of the log that one look drops.
const LOG_PARTITIONS: usize = 10;

/// Wakes events. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Waker {
    store: Store,
    notifier: Arc<dyn Notifier>,
    /// Passes of those who know how long things are kept.
    passes: Arc<AtomicU64>,
    /// When no further page is begun; what is left is for the next pass.
    until: Option<Instant>,
    pace: Arc<Pace>,
    metrics: WakeMetrics,
}

/// What a pass of the minute's statement did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pass {
    /// Overdue events whose notifications were published.
    pub woken: usize,
    /// Resume jobs that were carried on.
    pub jobs: usize,
    /// Events of crons that were emitted: those that are due, and those that will be before the next pass.
    pub ticks: usize,
    /// Whether there was no time for all of it: the next pass, which is due at once, goes on.
    pub more: bool,
}

/// Why waking stopped; the promises on the rows make up for it.
#[derive(Debug, thiserror::Error)]
pub enum WakeError {
    /// The database.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Pub/Sub.
    #[error(transparent)]
    Notify(#[from] NotifyError),
}

impl WakeError {
    /// What the database said, if it was the database.
    #[cfg(feature = "http")]
    pub(crate) fn of_store(&self) -> Option<&StoreError> {
        match self {
            Self::Store(error) => Some(error),
            Self::Notify(_) => None,
        }
    }
}

impl Waker {
    pub(crate) fn new(store: Store, notifier: Arc<dyn Notifier>) -> Self {
        let pace = Arc::new(Pace::new(CANVAS_EVENT_RATE));
        Self { store, notifier, passes: Arc::default(), until: None, pace, metrics: WakeMetrics::new() }
    }

    /// Wakes so many events of a canvas in a second.
    pub(crate) fn paced(self, canvas_event_rate: u32) -> Self {
        Self { pace: Arc::new(Pace::new(canvas_event_rate)), ..self }
    }

    /// The periodic work of every long-running process: the pass, every period, from a moment that differs between
    /// processes. A row in the database lets one of them through at a time.
    pub(crate) async fn run(self, period: Duration, retention: Option<Retention>) {
        loop {
            match self.pass(retention).await {
                Ok(pass) if pass == Pass::default() => {}
                Ok(pass) => tracing::info!(
                    woken = pass.woken,
                    jobs = pass.jobs,
                    ticks = pass.ticks,
                    "woke what was overdue"
                ),
                Err(error) => {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "the minute's pass failed; tried again"
                    );
                }
            }
            tokio::time::sleep(jittered(period)).await;
        }
    }

    /// The minute's pass, with no page begun after this time.
    #[cfg(feature = "http")]
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

    /// Whether the time of a pass that has one is over.
    fn is_over(&self) -> bool {
        self.until.is_some_and(|until| until <= Instant::now())
    }

    /// The minute's pass: does nothing unless it is due, and nothing where nobody can be woken: the promises are for
    /// others to keep. Only who knows the deployment's retention expires what is old.
    ///
    /// Crons tick every period however long the rest of the pass takes: with one process no other pass would see to them.
    pub(crate) async fn pass(&self, retention: Option<Retention>) -> Result<Pass, WakeError> {
        if !self.notifier.wakes() {
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
        let mut backlog = Backlog::new(self);
        let (mut again, mut open) = (false, false);
        // What can't go on now must not hold up the others.
        let mut trouble = Ok(());
        loop {
            let started = Instant::now();
            let minute = match self.store.minute(again).await {
                // Another process is at it at this moment.
                Err(error) if error.is_contention() => break,
                minute => minute?,
            };
            // Without a horizon the pass is what wakes whatever has a time: nothing was lost.
            if !self.store.timing().horizon.is_zero() {
                self.metrics.recovered(minute.recovered);
            }
            // First, because these promises have been moved: who dies before this costs them the back-off.
            let published = self.publish_overdue(minute.notifications, &mut backlog).await?;
            if minute.crons {
                match self.tick(None).await {
                    Ok(ticks) => pass.ticks = ticks,
                    Err(error) => trouble = Err(error),
                }
            }
            if minute.queues
                && let Err(error) = self.tidy_queues().await
            {
                trouble = Err(error);
            }
            if minute.log {
                self.provide_for_log().await;
            }
            pass.woken += published?;
            backlog.carry_on(minute.jobs);
            open |= minute.open;
            if !minute.more || self.is_over() {
                break;
            }
            again = true;
            tokio::time::sleep_until(started + PAGE_PERIOD).await;
        }
        let (woken, jobs, carried_on) = backlog.end().await;
        (pass.woken, pass.jobs, trouble) = (pass.woken + woken, jobs, trouble.and(carried_on));
        if let Some(retention) = retention.filter(|_| open)
            && self.passes.fetch_add(1, Ordering::Relaxed).is_multiple_of(EXPIRE_EVERY)
            && let Err(error) = self.expire(retention).await
        {
            let error = &error as &dyn std::error::Error;
            tracing::error!(error, "what is old was not deleted; tried again within two hours");
        }
        pass.more = self.is_over();
        trouble.map(|()| pass)
    }

    /// Publishes what of a page its canvases may publish at once; how many events, or why none. The rest waits for its turn.
    async fn publish_overdue(
        &self,
        page: Vec<Notification>,
        backlog: &mut Backlog,
    ) -> Result<Result<usize, WakeError>, StoreError> {
        let shared = backlog.share(page);
        let published = self.publish(&shared.now).await;
        if published.is_err() {
            // The back-off is for notifications that got lost, not for a broker that is away.
            let ids: Vec<_> = shared.now.iter().map(|notification| notification.id).collect();
            self.store.promise_again(&ids).await?;
        }
        if !shared.later.is_empty() {
            self.store.put_off(&shared.later).await?;
        }
        Ok(published.map(|()| shared.now.len()))
    }

    /// Carries a resume job of a canvas on to its end, or as long as no other process has it; whether another one has it.
    /// Counts the events as they are published. Between two pages nothing is held but the turn.
    pub(crate) async fn resume(
        &self,
        canvas: CanvasId,
        job: i64,
        published: &AtomicUsize,
    ) -> Result<bool, WakeError> {
        while let Some(turn) = self.turn(canvas).await {
            let page = self.store.resume_page(job).await?;
            crate::fault::point("resume.page");
            self.publish(&page.notifications).await?;
            turn.took(page.notifications.len());
            published.fetch_add(page.notifications.len(), Ordering::Relaxed);
            if !page.more || self.is_over() {
                return Ok(page.elsewhere);
            }
        }
        Ok(false)
    }

    /// The canvas's turn to publish a page, if it comes before the time is over.
    async fn turn(&self, canvas: CanvasId) -> Option<Turn> {
        let turn = self.pace.turn(canvas);
        match self.until {
            Some(until) => tokio::time::timeout_at(until, turn).await.ok(),
            None => Some(turn.await),
        }
    }

    /// Publishes as much of what a change made due as the canvas may publish at once; the promises of the rest are kept by
    /// the minute's pass.
    pub(crate) async fn publish_share(
        &self,
        canvas: CanvasId,
        notifications: &[Notification],
    ) -> Result<(), WakeError> {
        let taken = self.pace.take(canvas, notifications.len());
        self.publish(&notifications[..taken]).await
    }

    /// Makes partitions for the numbers that come next. Appenders do it themselves when nobody did, so that it is no reason
    /// to stop.
    async fn provide_for_log(&self) {
        if let Err(error) = self.store.add_log_partitions().await {
            let error = &error as &dyn std::error::Error;
            tracing::error!(error, "no partitions of the log were made; tried again in ten passes");
        }
    }

    /// Drops partitions of the log that are older than this, and that nobody needs. Where somebody has the log open, the next
    /// pass that looks for what is old finds them.
    async fn expire_log(&self, kept: Duration) -> Result<(), StoreError> {
        for _ in 0..LOG_PARTITIONS {
            match self.store.drop_log_partition(kept).await {
                Ok(Some(partition)) => tracing::info!(partition, "an old part of the log was dropped"),
                Ok(None) => break,
                Err(error) if error.is_contention() => {
                    let error = &error as &dyn std::error::Error;
                    tracing::info!(error, "the log is in use: its old partitions are dropped later");
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Deletes what is old. Of very much the rest is left to the next pass, of this process or another.
    async fn expire(&self, retention: Retention) -> Result<(), StoreError> {
        if let Some(kept) = retention.log {
            self.expire_log(kept).await?;
        }
        self.expire_idle(retention).await?;
        let kept = retention.dead_events;
        let (mut group_dead, mut tombstones, mut others) = (true, true, true);
        for page in 0..EXPIRE_PAGES {
            group_dead = group_dead && self.store.expire_group_dead(kept).await? >= GROUP_DEAD_PAGE;
            tombstones = tombstones && self.store.expire_tombstones(kept).await? >= TOMBSTONES_PAGE;
            others = others && self.store.expire(page > 0, retention).await?;
            if !group_dead && !tombstones && !others {
                return Ok(());
            }
            if self.is_over() {
                break;
            }
        }
        self.passes.store(0, Ordering::Relaxed);
        self.store.hasten_expiry().await
    }

    /// Deletes what nobody uses any more, a part of it at a time: the next part is left to the next hour.
    async fn expire_idle(&self, retention: Retention) -> Result<(), StoreError> {
        let Retention { idle, audit, .. } = retention;
        let kept = IdleRetention { objects: idle, entity_events: idle, keys: audit };
        for page in 0..IDLE_PAGES {
            if !self.store.expire_idle(page > 0, kept).await? || self.is_over() {
                break;
            }
        }
        Ok(())
    }

    /// Publishes what workers are to be notified of. Copies of pulled queues get their turns instead.
    pub(crate) async fn publish(&self, notifications: &[Notification]) -> Result<(), WakeError> {
        if notifications.is_empty() {
            return Ok(());
        }
        let told = self.store.announce_pulled(notifications).await?;
        if told.is_empty() || !self.notifier.wakes() {
            return Ok(());
        }
        Ok(self.notifier.publish(&told).await?)
    }
}

/// Up to a tenth longer than the period, and never shorter: who looks a moment before the pass is due finds nothing to
/// do, and would be late by a whole period.
fn jittered(period: Duration) -> Duration {
    let share = uuid::Uuid::new_v4().as_u128() % 91;
    period.mul_f64(1.01 + 0.001 * share as f64)
}

#[cfg(all(test, feature = "http"))]
mod tests {
    use super::*;
    use crate::event::{Actor, CanvasId, HandlerScope, RuleKind};
    use crate::notify::LocalNotifier;
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

    /// A pass may take minutes, and be the only one: crons tick meanwhile.
    #[tokio::test]
    async fn crons_tick_however_long_a_pass_takes() {
        let timing = crate::event::Timing { probe_period: Duration::from_millis(200), ..Default::default() };
        let table = Table::with(crate::store::StoreConfig { timing, ..Default::default() }).await;
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

    /// A pass forgets what groups gave up, as long after it died as other dead events are kept; whatever canvas it is of.
    #[tokio::test]
    async fn a_pass_forgets_what_groups_gave_up_long_ago() {
        let table = Table::new().await;
        table.add_group_dead(4).await;
        let waker = Waker::new(table.store.clone(), Arc::new(LocalNotifier::new()));
        let retention = Retention { dead_events: Duration::from_secs(9_000), ..Retention::default() };
        waker.pass(Some(retention)).await.unwrap();
        let left = table.store.group_dead(&"g".parse().unwrap(), None, 10).await.unwrap();
        assert_eq!(left.items.iter().map(|dead| dead.seq).collect::<Vec<_>>(), [2, 1]);
    }

    /// However much of it there is: page after page; and a pass whose time is over leaves the rest to the next.
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
        assert!(waker.pass_within(Duration::ZERO, Some(retention)).await.unwrap().more);
        assert_eq!(table.dead_of_groups_and_tombstones().await, (15_000, 2_200));
        waker.pass_within(minute, Some(retention)).await.unwrap();
        assert_eq!(table.dead_of_groups_and_tombstones().await, (2, 2), "what is young stays");
    }

    /// A pass without time does a page, says that there is more, and lets the next go on at once.
    #[tokio::test]
    async fn a_pass_whose_time_is_over_is_carried_on_by_the_next() {
        let table = Table::new().await;
        table.add(2_500).await;
        let (scope, ada) = (HandlerScope::worker(CanvasId::DEFAULT, "other").unwrap(), Actor::user("ada"));
        table.store.add_rule(RuleKind::Pause, &scope, None, None, &ada).await.unwrap();
        table.store.lift_rule(RuleKind::Pause, &scope, &ada).await.unwrap().job.unwrap();
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
