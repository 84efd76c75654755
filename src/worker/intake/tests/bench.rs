//! A test bench: made-up runs instead of the machine, on a paused clock.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard};

use tokio::sync::Semaphore;

use super::*;
use crate::notify::{LocalNotifier, NotifyError};
use crate::worker::WorkerConfig;
use crate::worker::permits::PermitKind;

/// Duration of the longest handler.
pub(super) const LONGEST: Duration = Duration::from_secs(10);
/// How long a look at an event takes, like a statement.
pub(super) const LOOK: Duration = Duration::from_micros(10);

/// What happens when an event is run.
#[derive(Clone, Debug, Default)]
pub(super) struct Plan {
    pub(super) lasts: Duration,
    /// It is not due before this long after the start.
    pub(super) due: Duration,
    /// It fails this often, and is retried after this delay.
    pub(super) retries: u32,
    pub(super) retry_delay: Duration,
    /// The limits that it needs permits of, by number: its handler's, and one that others share.
    pub(super) limit: Option<usize>,
    pub(super) share: Option<usize>,
    /// The next event of its object.
    pub(super) next: Option<Notification>,
    /// The queue whose next copy it asks for.
    pub(super) queue: Option<usize>,
    /// Its notification is urgent.
    pub(super) urgent: bool,
    /// The route of its handler is.
    pub(super) routed: bool,
}

#[derive(Debug, PartialEq)]
pub(super) struct Start {
    /// The event that runs.
    pub(super) notification: Notification,
    /// The notification that it runs for: its own, or that of another copy in its queue.
    pub(super) asker: Notification,
    /// When it was due.
    pub(super) due: Duration,
    /// When it started, and since when it could have: it was due, this worker had received it, its
    /// limits had a free permit, and the previous turn of its canvas, for any event, was over.
    pub(super) at: Duration,
    pub(super) since: Duration,
}

/// A semaphore that runs share, and when it was last full.
struct SharedLimit {
    semaphore: Arc<Semaphore>,
    size: usize,
    running: usize,
    full_until: Duration,
}

/// The copies in a queue by canvas; the first canvas has the next turn.
type Facets = VecDeque<(CanvasId, VecDeque<Notification>)>;

/// Runs plans instead of the machine.
pub(super) struct TestBench {
    began: Instant,
    plans: Mutex<HashMap<EventId, Plan>>,
    limits: Mutex<Vec<SharedLimit>>,
    queues: Mutex<Vec<Facets>>,
    /// When each canvas had its last turn.
    turns: Mutex<HashMap<CanvasId, Duration>>,
    /// When this worker last received each event, or, for one that asks for others, when it last
    /// ran one.
    pub(super) received: Arc<Mutex<HashMap<EventId, Duration>>>,
    /// All starts, in order.
    pub(super) starts: Mutex<Vec<Start>>,
    /// The canvas of each event that has not ended.
    canvases: Mutex<HashMap<EventId, CanvasId>>,
    /// How often an event was looked at.
    pub(super) looks: AtomicUsize,
    /// The events whose promises were put off.
    pub(super) put_off: Mutex<Vec<(EventId, Duration)>>,
}

impl TestBench {
    pub(super) fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
        of.lock().unwrap()
    }

    /// The next due copy: of the canvas whose turn it is, which then moves to the end.
    fn turn(&self, queue: usize) -> Option<Notification> {
        let (mut queues, plans) = (Self::lock(&self.queues), Self::lock(&self.plans));
        let facets = &mut queues[queue];
        let is_due = |copy: &Notification| plans[&copy.id].due <= self.began.elapsed();
        let of = facets.iter().position(|(_, copies)| copies.iter().any(is_due))?;
        let (canvas, mut copies) = facets.remove(of)?;
        let taken = copies.iter().position(is_due).and_then(|at| copies.remove(at));
        if !copies.is_empty() {
            facets.push_back((canvas, copies));
        }
        taken
    }

    /// Takes permits of both of its limits, the share last; the error names the missing one.
    fn acquire(&self, plan: &Plan, permits: &mut Permits) -> Result<(), RunEnd> {
        let limits = Self::lock(&self.limits);
        for (kind, number) in [(PermitKind::Handler, plan.limit), (PermitKind::Value, plan.share)] {
            if let Some(limit) = number.map(|number| &limits[number])
                && !permits.try_acquire(kind, &limit.semaphore, 1)
            {
                return Err(RunEnd::NeedsRoom(Shortage::Permits(kind, Arc::clone(&limit.semaphore), 1)));
            }
        }
        Ok(())
    }

    /// Counts a run in or out of the limits of a plan; returns since when all had a free permit.
    fn count_run(&self, plan: &Plan, begins: bool) -> Duration {
        let (mut limits, mut since) = (Self::lock(&self.limits), Duration::ZERO);
        for number in [plan.limit, plan.share].into_iter().flatten() {
            let limit = &mut limits[number];
            since = since.max(limit.full_until);
            if limit.running == limit.size {
                limit.full_until = self.began.elapsed();
            }
            limit.running = if begins { limit.running + 1 } else { limit.running - 1 };
        }
        since
    }

    async fn perform(&self, asker: Notification, permits: &mut Permits) -> (RunEnd, Notification) {
        let turn_before =
            Self::lock(&self.turns).insert(asker.canvas, self.began.elapsed()).unwrap_or_default();
        self.looks.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(LOOK).await;
        let asks = Self::lock(&self.plans)[&asker.id].clone();
        if let Some(left) = asks.due.checked_sub(self.began.elapsed()).filter(|left| !left.is_zero()) {
            return (RunEnd::Wait(When::In(left)), asker);
        }
        if let Err(end) = self.acquire(&asks, permits) {
            return (end, asker);
        }
        let ran = match asks.queue.map(|queue| self.turn(queue)) {
            None => asker,
            Some(Some(turn)) => turn,
            Some(None) => return (RunEnd::Answer(Answer::Acknowledge), asker),
        };
        let received = Self::lock(&self.received).get(&asker.id).copied().unwrap_or_default();
        let since = asks.due.max(received).max(turn_before).max(self.count_run(&asks, true));
        let (due, at) = (asks.due, self.began.elapsed());
        Self::lock(&self.starts).push(Start { notification: ran, asker, due, at, since });
        let plan = Self::lock(&self.plans)[&ran.id].clone();
        tokio::time::sleep(plan.lasts).await;
        self.count_run(&asks, false);
        if ran != asker {
            Self::lock(&self.received).insert(asker.id, self.began.elapsed());
        }
        (if plan.retries > 0 { self.fail(ran) } else { RunEnd::Answer(Answer::Acknowledge) }, ran)
    }

    /// The event is retried; in a queue it goes behind the copies that are there.
    fn fail(&self, ran: Notification) -> RunEnd {
        let mut plans = Self::lock(&self.plans);
        let known = plans.get_mut(&ran.id).unwrap();
        known.retries -= 1;
        known.due = self.began.elapsed() + known.retry_delay;
        let (queue, delay) = (known.queue, known.retry_delay);
        drop(plans);
        if let Some(queue) = queue {
            add(&mut Self::lock(&self.queues)[queue], ran);
        }
        RunEnd::Wait(When::In(delay))
    }
}

fn add(facets: &mut Facets, copy: Notification) {
    match facets.iter_mut().find(|(canvas, _)| *canvas == copy.canvas) {
        Some((_, copies)) => copies.push_back(copy),
        None => facets.push_back((copy.canvas, VecDeque::from([copy]))),
    }
}

impl NotificationRunner for TestBench {
    async fn run(&self, notification: Notification, mut permits: Permits) -> FinishedRun {
        let (end, ran) = self.perform(notification, &mut permits).await;
        let over = matches!(end, RunEnd::Answer(_));
        if over {
            Self::lock(&self.canvases).remove(&ran.id);
        }
        let next = Self::lock(&self.plans)[&ran.id].next.filter(|_| over);
        if let Some(next) = next {
            // Its turn comes now.
            Self::lock(&self.plans).get_mut(&next.id).unwrap().due = self.began.elapsed();
        }
        let report = Box::new(RunReport {
            notification: ran,
            address: None,
            queue: None,
            trail: Vec::new(),
            attempt: None,
            error: None,
            waited: None,
            took: None,
            verdict: end.verdict(),
        });
        let again = (ran != notification).then_some(notification);
        FinishedRun { end, permits, report, fault: None, next: next.into_iter().collect(), again }
    }

    async fn other_canvas(&self, canvas: CanvasId) -> Option<CanvasId> {
        let plans = Self::lock(&self.canvases);
        plans.values().copied().find(|other| *other != canvas)
    }

    async fn put_off(&self, later: Vec<(EventId, Duration)>) {
        Self::lock(&self.put_off).extend(later);
    }

    fn has_urgent_routes(&self) -> bool {
        Self::lock(&self.plans).values().any(|plan| plan.routed)
    }

    async fn of_urgent_routes(&self, mut asked: Vec<Notification>) -> Vec<Notification> {
        let plans = Self::lock(&self.plans);
        asked.retain(|notification| plans[&notification.id].routed);
        asked
    }
}

/// The published notifications, and all events that have to run as a result.
#[derive(Clone, Debug, Default)]
pub(super) struct Scene {
    /// Published at the start.
    pub(super) published: Vec<Notification>,
    /// Published later.
    pub(super) later: Vec<(Duration, Notification)>,
    pub(super) plans: HashMap<EventId, Plan>,
    pub(super) canvases: HashMap<EventId, CanvasId>,
    /// The number of permits of each limit.
    pub(super) limits: Vec<usize>,
    pub(super) queues: Vec<Facets>,
}

impl Scene {
    fn add(&mut self, canvas: u8, plan: Plan) -> Notification {
        let id = EventId(uuid::Uuid::from_u128(1 + self.plans.len() as u128));
        let canvas = CanvasId(uuid::Uuid::from_u128(u128::from(canvas)));
        let notification = Notification::new(id, canvas).urgent_if(plan.urgent);
        self.plans.insert(id, plan);
        self.canvases.insert(id, canvas);
        notification
    }

    pub(super) fn publish(&mut self, canvas: u8, plan: Plan) {
        self.publish_at(Duration::ZERO, canvas, plan);
    }

    /// From then on, a copy is also in its queue.
    pub(super) fn publish_at(&mut self, when: Duration, canvas: u8, mut plan: Plan) {
        plan.due = plan.due.max(when);
        let queue = plan.queue;
        let notification = self.add(canvas, plan);
        if let Some(queue) = queue {
            add(&mut self.queues[queue], notification);
        }
        self.say_at(when, notification);
    }

    fn say_at(&mut self, when: Duration, notification: Notification) {
        if when.is_zero() {
            self.published.push(notification);
        } else {
            self.later.push((when, notification));
        }
    }

    /// Adds a chain of `count` events on one object.
    pub(super) fn chain_at(&mut self, when: Duration, canvas: u8, count: usize, lasts: Duration) {
        let mut next = None;
        for _ in 0..count {
            next = Some(self.add(canvas, Plan { lasts, next, due: when, ..Plan::default() }));
        }
        next.into_iter().for_each(|first| self.say_at(when, first));
    }

    /// Adds a limit with `size` permits and returns its number.
    pub(super) fn limit(&mut self, size: usize) -> usize {
        self.limits.push(size);
        self.limits.len() - 1
    }

    /// Runs everything and returns all starts, in order.
    pub(super) fn play(self, capacity: usize, prefetch: impl Into<Option<usize>>) -> Vec<Start> {
        self.play_until(&config(capacity, prefetch), |_| true)
    }

    /// Like [`Scene::play`], until all of these events have run.
    pub(super) fn play_until(
        mut self,
        config: &WorkerConfig,
        awaits: impl Fn(Notification) -> bool,
    ) -> Vec<Start> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.unwrap().block_on(async move {
            let expected: usize = self.plans_of(&awaits).map(|(_, plan)| 1 + plan.retries as usize).sum();
            let mut later = std::mem::take(&mut self.later);
            later.sort_by_key(|(when, _)| *when);
            let published = std::mem::take(&mut self.published);
            let bench = self.bench();
            let local = LocalNotifier::new();
            let received = Arc::clone(&bench.received);
            let notifier: Arc<dyn Notifier> = Arc::new(Listening { local, received, began: bench.began });
            notifier.publish(&published).await.unwrap();
            let mut work = Work::start_with(bench, &notifier, config).await;
            let saying = tokio::spawn(async move {
                let began = Instant::now();
                for (when, notification) in later {
                    tokio::time::sleep_until(began + when).await;
                    notifier.publish(&[notification]).await.unwrap();
                }
            });
            let bench = Arc::clone(&work.bench);
            let started =
                || TestBench::lock(&bench.starts).iter().filter(|start| awaits(start.notification)).count();
            while started() < expected {
                let report = tokio::time::timeout(1_000 * LONGEST, work.ended.recv()).await;
                report.expect("something is left, and does not run");
            }
            saying.await.unwrap();
            work.stop.cancel();
            assert!(work.working.await.unwrap());
            std::mem::take(&mut *TestBench::lock(&work.bench.starts))
        })
    }

    /// The plans of these events.
    pub(super) fn plans_of(
        &self,
        events: impl Fn(Notification) -> bool,
    ) -> impl Iterator<Item = (EventId, &Plan)> {
        let of_them = move |id: EventId| {
            events(Notification::new(id, self.canvases[&id]).urgent_if(self.plans[&id].urgent))
        };
        self.plans.iter().map(|(id, plan)| (*id, plan)).filter(move |(id, _)| of_them(*id))
    }

    pub(super) fn bench(self) -> Arc<TestBench> {
        let limits = self.limits.into_iter().map(|size| {
            let semaphore = Arc::new(Semaphore::new(size));
            SharedLimit { semaphore, size, running: 0, full_until: Duration::ZERO }
        });
        Arc::new(TestBench {
            began: Instant::now(),
            plans: Mutex::new(self.plans),
            limits: Mutex::new(limits.collect()),
            queues: Mutex::new(self.queues),
            turns: Mutex::default(),
            received: Arc::default(),
            starts: Mutex::default(),
            canvases: Mutex::new(self.canvases),
            looks: AtomicUsize::new(0),
            put_off: Mutex::default(),
        })
    }
}

pub(super) fn config(capacity: usize, prefetch: impl Into<Option<usize>>) -> WorkerConfig {
    WorkerConfig { capacity, prefetch: prefetch.into(), ..WorkerConfig::default() }
}

/// The intake of a worker, running.
pub(super) struct Work {
    pub(super) bench: Arc<TestBench>,
    pub(super) ended: mpsc::Receiver<RunReport>,
    pub(super) stop: CancellationToken,
    pub(super) working: tokio::task::JoinHandle<bool>,
}

impl Work {
    pub(super) async fn start(
        bench: Arc<TestBench>,
        notifier: &Arc<dyn Notifier>,
        capacity: usize,
        prefetch: impl Into<Option<usize>>,
    ) -> Self {
        Self::start_with(bench, notifier, &config(capacity, prefetch)).await
    }

    pub(super) async fn start_with(
        bench: Arc<TestBench>,
        notifier: &Arc<dyn Notifier>,
        config: &WorkerConfig,
    ) -> Self {
        Self::start_setting_aside(bench, notifier, config, ASIDE_MAX).await
    }

    /// A worker that sets aside this many.
    pub(super) async fn start_setting_aside(
        bench: Arc<TestBench>,
        notifier: &Arc<dyn Notifier>,
        config: &WorkerConfig,
        aside_max: usize,
    ) -> Self {
        let subscription = notifier.subscribe(config.held_max()).await.unwrap();
        let urgent = notifier.subscribe_urgent(config.held_max()).await.unwrap();
        let (reports, ended) = mpsc::channel(1_000_000);
        let mut intake = Intake::new(
            Arc::clone(&bench),
            Arc::clone(notifier),
            config,
            Arc::new(Counters::default()),
            Some(reports),
            watch::Sender::new(None),
        );
        intake.surplus.aside_max = aside_max;
        let stop = CancellationToken::new();
        let working =
            tokio::spawn(intake.run((subscription, urgent), stop.clone(), CancellationToken::new()));
        Self { bench, ended, stop, working }
    }
}

/// Records when the worker receives each event; again, if it had left it to others.
struct Listening {
    local: LocalNotifier,
    received: Arc<Mutex<HashMap<EventId, Duration>>>,
    began: Instant,
}

struct ListeningStream {
    stream: Box<dyn Subscription>,
    received: Arc<Mutex<HashMap<EventId, Duration>>>,
    began: Instant,
}

#[async_trait::async_trait]
impl Notifier for Listening {
    async fn publish(&self, notifications: &[Notification]) -> Result<(), NotifyError> {
        self.local.publish(notifications).await
    }

    async fn subscribe(&self, max_outstanding: usize) -> Result<Box<dyn Subscription>, NotifyError> {
        Ok(self.heard(self.local.subscribe(max_outstanding).await?))
    }

    async fn subscribe_urgent(
        &self,
        max_outstanding: usize,
    ) -> Result<Option<Box<dyn Subscription>>, NotifyError> {
        Ok(self.local.subscribe_urgent(max_outstanding).await?.map(|stream| self.heard(stream)))
    }
}

impl Listening {
    fn heard(&self, stream: Box<dyn Subscription>) -> Box<dyn Subscription> {
        Box::new(ListeningStream { stream, received: Arc::clone(&self.received), began: self.began })
    }
}

#[async_trait::async_trait]
impl Subscription for ListeningStream {
    async fn next(&mut self) -> Option<Delivery> {
        let delivery = self.stream.next().await?;
        if let Ok(notification) = &delivery.notification {
            TestBench::lock(&self.received).insert(notification.id, self.began.elapsed());
        }
        Some(delivery)
    }

    fn stop(&mut self) {
        self.stream.stop();
    }

    fn trouble(&self) -> Option<String> {
        self.stream.trouble()
    }

    async fn close(self: Box<Self>, grace: Duration) {
        self.stream.close(grace).await;
    }
}
