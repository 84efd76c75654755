//! Publishes events beside the pages of a pass, for each canvas as fast as workers take its events:
//! overdue ones beyond those that their canvas may publish at once, and those of open resume jobs.
//!
//! Losing it loses nothing: a held event's promise is due shortly after its turn, and a job is a
//! row.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{Trouble, WakeError, Waker};
use crate::event::{CanvasId, EventId, Notification};

/// Maximum number of events that one pass holds, of all canvases.
const HELD_MAX: usize = 500_000;

/// Ends with its pass, or when it is dropped.
pub(super) struct Backlog {
    waker: Waker,
    canvases: HashMap<CanvasId, CanvasBacklog>,
    jobs: HashSet<i64>,
    /// Held events of all canvases.
    held: Arc<AtomicUsize>,
    woken: Arc<AtomicUsize>,
    work: JoinSet<Result<(), WakeError>>,
    /// When to begin no further page: after a period, the next pass continues.
    until: Instant,
}

/// A canvas with more overdue events than may be published at once.
struct CanvasBacklog {
    given: mpsc::Sender<Notification>,
    held: Arc<AtomicUsize>,
    /// Events that were left to a later pass.
    left: usize,
}

/// A page of overdue events, divided into those to publish now and those that wait.
#[derive(Default)]
pub(super) struct PageSplit {
    pub(super) now: Vec<Notification>,
    /// Events that wait, and how long to postpone their promises.
    pub(super) later: Vec<(EventId, Duration)>,
}

impl Backlog {
    pub(super) fn new(waker: &Waker) -> Self {
        let period = Instant::now() + waker.store.timing().probe_period;
        Self {
            waker: waker.clone(),
            canvases: HashMap::new(),
            jobs: HashSet::new(),
            held: Arc::default(),
            woken: Arc::default(),
            work: JoinSet::new(),
            until: waker.until.map_or(period, |own| own.min(period)),
        }
    }

    /// Divides a page into events that may be published at once and events that wait. Waiting
    /// events whose turn comes within this pass are held, with a promise in case this process dies;
    /// the promises of the others are moved to their turns.
    pub(super) fn split(&mut self, page: Vec<Notification>) -> PageSplit {
        let mut canvases: BTreeMap<CanvasId, Vec<Notification>> = BTreeMap::new();
        for notification in page {
            canvases.entry(notification.canvas).or_default().push(notification);
        }
        let mut split = PageSplit::default();
        for (canvas, mut events) in canvases {
            let waits = self.canvases.get(&canvas).is_some_and(|behind| behind.position() > 0);
            let taken = if waits { 0 } else { self.waker.pace.take(canvas, &events) };
            split.later.extend(self.wait(canvas, events.split_off(taken)));
            split.now.append(&mut events);
        }
        split
    }

    /// Makes events of a canvas wait; returns how long to postpone their promises.
    fn wait(&mut self, canvas: CanvasId, events: Vec<Notification>) -> Vec<(EventId, Duration)> {
        if events.is_empty() {
            return Vec::new();
        }
        let mut behind = match self.canvases.remove(&canvas) {
            Some(behind) => behind,
            None => self.begin(canvas),
        };
        let later = events.into_iter().map(|event| (event.id, self.hold(&mut behind, event))).collect();
        self.canvases.insert(canvas, behind);
        later
    }

    /// Holds an event, or leaves it to a later pass; returns how long to postpone its promise. No
    /// canvas holds more at once than its rate allows in a period. If its workers take nothing, the
    /// rest has turns of its own, and other canvases have room. Publishing makes room again, so
    /// quick workers are not held back.
    fn hold(&self, behind: &mut CanvasBacklog, event: Notification) -> Duration {
        let Waker { pace, store, .. } = &self.waker;
        let within = self.until.saturating_duration_since(Instant::now());
        let most = HELD_MAX.min(pace.events_in(event.canvas, store.timing().probe_period));
        let is_full = behind.held.load(Ordering::Relaxed) >= most;
        if within.is_zero() || is_full || self.held.load(Ordering::Relaxed) >= HELD_MAX {
            behind.left += 1;
            // Those that are held are published sooner than that where the rate allows it.
            let first = if is_full { within.min(pace.time_of(event.canvas, most)) } else { within };
            return first + pace.time_of(event.canvas, behind.left);
        }
        behind.held.fetch_add(1, Ordering::Relaxed);
        self.held.fetch_add(1, Ordering::Relaxed);
        // The publishing task may have ended because the broker is unavailable; then the promise
        // wakes the event.
        let _ = behind.given.try_send(event);
        within + store.timing().grace
    }

    /// Starts publishing the held events of a canvas.
    fn begin(&mut self, canvas: CanvasId) -> CanvasBacklog {
        let (given, mut held_events) = mpsc::channel(HELD_MAX);
        let waker = Waker { until: Some(self.until), ..self.waker.clone() };
        let (woken, most) = (Arc::clone(&self.woken), waker.pace.page_of(canvas));
        let held = Arc::new(AtomicUsize::new(0));
        let (own, all) = (Arc::clone(&held), Arc::clone(&self.held));
        self.work.spawn(async move {
            let mut page = Vec::new();
            while held_events.recv_many(&mut page, most).await > 0 {
                let Some(turn) = waker.turn(canvas, page.len()).await else { break };
                let published = waker.publish(&page).await;
                turn.took(&page);
                published?;
                woken.fetch_add(page.len(), Ordering::Relaxed);
                own.fetch_sub(page.len(), Ordering::Relaxed);
                all.fetch_sub(page.len(), Ordering::Relaxed);
                page.clear();
            }
            Ok(())
        });
        CanvasBacklog { given, held, left: 0 }
    }

    /// Continues resume jobs, for one period at most: then the next pass of any process does.
    pub(super) fn carry_on(&mut self, jobs: Vec<(CanvasId, i64)>) {
        for (canvas, job) in jobs {
            if self.waker.is_over() || !self.jobs.insert(job) {
                continue;
            }
            let waker = Waker { until: Some(self.until), ..self.waker.clone() };
            self.work.spawn(async move { waker.resume(canvas, job, &AtomicUsize::new(0)).await.map(drop) });
        }
    }

    /// Waits for all of it to end. Returns how many held events were published, and how many jobs
    /// were continued; a failing part does not hold up the others.
    pub(super) async fn end(self, trouble: &mut Trouble) -> (usize, usize) {
        let Self { canvases, jobs, woken, mut work, .. } = self;
        drop(canvases);
        while let Some(ended) = work.join_next().await {
            match ended {
                Ok(ended) => drop(trouble.look("jobs and waiting events", ended)),
                Err(error) => {
                    let error = &error as &dyn std::error::Error;
                    tracing::error!(error, "waking panicked; the next pass continues");
                }
            }
        }
        (woken.load(Ordering::Relaxed), jobs.len())
    }
}

impl CanvasBacklog {
    /// How many events are ahead of the next one.
    fn position(&self) -> usize {
        self.held.load(Ordering::Relaxed) + self.left
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::event::Timing;
    use crate::notify::{Notifier, NotifyError, Subscription};
    use crate::store::StoreConfig;
    use crate::store::tests::Table;
    use crate::store::tests::crowds::{Completion, FEW, MANY};

    /// A broker that records the published notifications in order.
    #[derive(Default)]
    pub(in crate::wake) struct Broker {
        published: Mutex<Vec<Notification>>,
        got: tokio::sync::Notify,
    }

    #[async_trait::async_trait]
    impl Notifier for Broker {
        async fn publish(&self, notifications: &[Notification]) -> Result<(), NotifyError> {
            self.published.lock().unwrap().extend(notifications);
            self.got.notify_one();
            Ok(())
        }

        async fn subscribe(&self, _: usize) -> Result<Box<dyn Subscription>, NotifyError> {
            unreachable!("nothing is received here")
        }
    }

    impl Broker {
        fn published(&self) -> Vec<Notification> {
            self.published.lock().unwrap().clone()
        }

        /// How many were published before the first one of the other canvas.
        fn before_the_few(&self) -> usize {
            self.published().iter().position(|one| one.canvas == FEW).expect("nothing of the other canvas")
        }

        pub(in crate::wake) fn events(&self) -> HashSet<EventId> {
            self.published().iter().map(|one| one.id).collect()
        }
    }

    /// A waker with a rate, and its broker.
    pub(in crate::wake) fn waker(table: &Table, rate: u32) -> (Waker, Arc<Broker>) {
        let broker = Arc::<Broker>::default();
        (Waker::new(table.store.clone(), Arc::clone(&broker) as Arc<dyn Notifier>).paced(rate), broker)
    }

    /// Of a canvas with many overdue events, only some are published ahead of another canvas's
    /// later ones. The rest waits for its turn, with promises for shortly after that.
    #[tokio::test]
    async fn overdue_events_of_one_canvas_do_not_delay_another() {
        let timing = Timing { probe_period: Duration::from_secs(20), ..Timing::default() };
        let table = Table::with(StoreConfig { timing: Some(timing), ..StoreConfig::default() }).await;
        table.crowd(2_400).await;
        let (waker, broker) = waker(&table, 20);
        let pass = waker.pass(None).await.unwrap();
        assert!(broker.before_the_few() <= 80, "{} of 2,400", broker.before_the_few());
        let published = broker.published().len();
        assert_eq!((pass.woken, broker.events().len()), (published, published), "each once");
        let most = "two seconds' worth, and a tenth of the rate in a period, as no worker takes any";
        assert!((43..=100).contains(&published), "{most}: {published}");
        assert!(table.promised_within(150).await >= 2_200, "at their turns, and none counts as lost");

        table.all_due().await;
        let (quick, later) = self::waker(&table, 1_000_000);
        quick.pass(None).await.unwrap();
        assert_eq!(broker.events().union(&later.events()).count(), 2_403, "another process keeps them all");
    }

    /// A canvas whose workers take nothing holds as many events as it may publish in a period. The
    /// rest has turns of its own, and another canvas's events are held.
    #[tokio::test]
    async fn a_canvas_holds_no_more_than_it_may_publish_in_a_period() {
        let table = Table::new().await;
        let (waker, _) = waker(&table, 20);
        let mut backlog = Backlog::new(&waker);
        let of = |canvas, count| -> Vec<Notification> {
            (0..count).map(|_| Notification::new(EventId::new(), canvas)).collect()
        };
        let many = backlog.split([of(MANY, 5_000), of(FEW, 100)].concat());
        assert_eq!((many.now.len(), many.later.len()), (2 * 40, 4_960 + 60), "two seconds' worth of each");
        let wait_s = |at: usize| many.later[at].1.as_secs();
        assert!((85..=90).contains(&wait_s(1_199)), "the grace after a period: {}", wait_s(1_199));
        assert!((59..=61).contains(&wait_s(1_200)), "the first one of a later pass: {}", wait_s(1_200));
        assert!((240..=250).contains(&wait_s(4_959)), "3,760 at 20 a second: {}", wait_s(4_959));
        assert!((85..=90).contains(&wait_s(5_019)), "of another canvas: {}", wait_s(5_019));
    }

    /// Where the rate allows more in a period than a pass holds, the rest does not wait for a whole
    /// period.
    #[tokio::test]
    async fn events_beyond_what_a_pass_holds_are_promised_for_when_it_has_room() {
        let table = Table::new().await;
        let (waker, _) = waker(&table, 50_000);
        let mut backlog = Backlog::new(&waker);
        let ids = (0..2 * 50_000 + HELD_MAX + 1).map(|number| EventId(uuid::Uuid::from_u128(number as u128)));
        let split = backlog.split(ids.map(|id| Notification::new(id, MANY)).collect());
        assert_eq!((split.now.len(), split.later.len()), (2 * 50_000, HELD_MAX + 1));
        let last = split.later[HELD_MAX].1;
        assert_eq!(last.as_secs(), 10, "500,000 at 50,000 a second");
    }

    /// A broker whose workers complete published events at once.
    struct Taken(Completion);

    #[async_trait::async_trait]
    impl Notifier for Taken {
        async fn publish(&self, notifications: &[Notification]) -> Result<(), NotifyError> {
            self.0.complete(notifications).await;
            Ok(())
        }

        async fn subscribe(&self, _: usize) -> Result<Box<dyn Subscription>, NotifyError> {
            unreachable!("nothing is received here")
        }
    }

    /// Events that workers take make room at once, so a backlog is woken as fast as they manage,
    /// whatever the rate.
    #[tokio::test]
    async fn a_backlog_is_woken_as_fast_as_workers_take_it() {
        let table = Table::new().await;
        table.crowd(2_400).await;
        let waker = Waker::new(table.store.clone(), Arc::new(Taken(table.completion()))).paced(100);
        let pass = waker.pass(None).await.unwrap();
        assert_eq!((pass.woken, table.left().await), (2_403, 0));
    }

    /// A process that dies during a long resume job has not held up other canvases, and leaves the
    /// job to the next process.
    // Shows: EV2-42
    #[tokio::test]
    async fn a_long_job_of_one_canvas_is_not_in_front_of_another() {
        let table = Table::new().await;
        table.crowd(5_000).await;
        table.lift_all().await;
        let (waker, broker) = waker(&table, 1_000);
        let dying = tokio::spawn(async move { waker.pass(None).await });
        while broker.published().iter().filter(|one| one.canvas == FEW).count() < 3 {
            broker.got.notified().await;
        }
        dying.abort();
        assert!(dying.await.is_err());
        assert!(broker.before_the_few() <= 2_000, "{} of 5,000", broker.before_the_few());

        let (quick, _) = self::waker(&table, 1_000_000);
        while table.open_jobs().await > 0 {
            table.all_due().await;
            quick.pass(None).await.unwrap();
        }
        assert_eq!(
            table.parked().await,
            0,
            "what was woken has a promise, also in the page over which it died"
        );
    }

    /// Events that a change makes due are published as far as their canvas may. The promises cover
    /// the rest.
    #[tokio::test]
    async fn many_redriven_events_have_the_pace_of_their_canvas() {
        let table = Table::new().await;
        let told = crate::store::tests::told(&table.add(10).await);
        let (waker, broker) = waker(&table, 2);
        waker.publish_share(MANY, &told).await.unwrap();
        assert_eq!(broker.published(), told[..4]);
    }
}
