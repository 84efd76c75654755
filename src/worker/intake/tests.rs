//! Whose turn it is, on a clock that stands still while anything runs: what runs is made up here.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

use proptest::prelude::*;
use tokio::sync::Semaphore;

use super::*;
use crate::notify::{LocalNotifier, NotifyError};
use crate::worker::{Counters, WorkerConfig};

/// The longest handler.
const LONGEST: Duration = Duration::from_secs(10);
/// How long a look at an event takes, as a statement would.
const LOOK: Duration = Duration::from_micros(10);
const PLACES: usize = 6;
/// More than ever waits here.
const AHEAD: usize = 5_000;

/// What an event does when it is looked at.
#[derive(Clone, Debug, Default)]
struct Plan {
    lasts: Duration,
    /// Not before this long after the start.
    due: Duration,
    /// It fails so often, and is tried again this much later.
    retries: u32,
    retry_delay: Duration,
    /// The room that it has to be in, by its number.
    room: Option<usize>,
    /// The next one of its object.
    next: Option<Notification>,
    /// The queue whose next copy it asks for.
    queue: Option<usize>,
}

#[derive(Debug, PartialEq)]
struct Start {
    notification: Notification,
    /// How long before it could have started.
    waited: Duration,
}

/// Runs plans in the place of the machine.
struct Stand {
    began: Instant,
    plans: Mutex<HashMap<EventId, Plan>>,
    rooms: Vec<Arc<Semaphore>>,
    queues: Mutex<Vec<VecDeque<Notification>>>,
    /// In their order.
    starts: Mutex<Vec<Start>>,
}

impl Stand {
    fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
        of.lock().unwrap()
    }

    async fn perform(&self, notification: Notification, room: &mut Room) -> (Halt, Notification) {
        tokio::time::sleep(LOOK).await;
        let mut ran = notification;
        let mut plan = Self::lock(&self.plans)[&notification.id].clone();
        if let Some(left) = plan.due.checked_sub(self.began.elapsed()).filter(|left| !left.is_zero()) {
            return (Halt::Wait(When::In(left)), ran);
        }
        if let Some(number) = plan.room
            && !room.enter(RoomKind::Handler, &self.rooms[number], 1)
        {
            return (Halt::Room(RoomKind::Handler, Arc::clone(&self.rooms[number]), 1), ran);
        }
        if let Some(number) = plan.queue {
            let Some(turn) = Self::lock(&self.queues)[number].pop_front() else {
                return (Halt::Answer(Answer::Acknowledge), ran);
            };
            ran = turn;
            plan = Self::lock(&self.plans)[&ran.id].clone();
        }
        let waited = self.began.elapsed().saturating_sub(plan.due);
        Self::lock(&self.starts).push(Start { notification: ran, waited });
        tokio::time::sleep(plan.lasts).await;
        if plan.retries > 0 {
            let known = &mut Self::lock(&self.plans);
            let known = known.get_mut(&ran.id).unwrap();
            known.retries -= 1;
            known.due = self.began.elapsed() + plan.retry_delay;
            return (Halt::Wait(When::In(plan.retry_delay)), ran);
        }
        (Halt::Answer(Answer::Acknowledge), ran)
    }
}

impl Runs for Stand {
    async fn run(&self, notification: Notification, mut room: Room) -> Finished {
        let (halt, ran) = self.perform(notification, &mut room).await;
        let over = matches!(halt, Halt::Answer(_));
        let next = Self::lock(&self.plans)[&ran.id].next.filter(|_| over);
        if let Some(next) = next {
            // Its turn comes now.
            Self::lock(&self.plans).get_mut(&next.id).unwrap().due = self.began.elapsed();
        }
        let report = RunReport {
            notification: ran,
            address: None,
            trail: Vec::new(),
            attempt: None,
            error: None,
            took: None,
            verdict: halt.verdict(),
        };
        let again = (ran != notification).then_some(notification);
        Finished { halt, room, report, fault: None, next: next.into_iter().collect(), again }
    }
}

/// What is published at the beginning, and everything that has to be run for it.
#[derive(Clone, Debug, Default)]
struct Scene {
    published: Vec<Notification>,
    plans: HashMap<EventId, Plan>,
    rooms: usize,
    queues: Vec<VecDeque<Notification>>,
}

impl Scene {
    fn add(&mut self, canvas: u8, plan: Plan) -> Notification {
        let id = EventId(uuid::Uuid::from_u128(1 + self.plans.len() as u128));
        self.plans.insert(id, plan);
        Notification { id, canvas: CanvasId(uuid::Uuid::from_u128(u128::from(canvas))) }
    }

    fn publish(&mut self, canvas: u8, plan: Plan) {
        let notification = self.add(canvas, plan);
        self.published.push(notification);
    }

    /// So many events of one object.
    fn chain(&mut self, canvas: u8, count: usize, lasts: Duration) {
        let mut next = None;
        for _ in 0..count {
            next = Some(self.add(canvas, Plan { lasts, next, ..Plan::default() }));
        }
        self.published.extend(next);
    }

    /// Every start, in order, once all has run.
    fn play(self, capacity: usize, prefetch: impl Into<Option<usize>>) -> Vec<Start> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.unwrap().block_on(async move {
            let notifier: Arc<dyn Notifier> = Arc::new(LocalNotifier::new());
            let expected: usize = self.plans.values().map(|plan| 1 + plan.retries as usize).sum();
            notifier.publish(&self.published).await.unwrap();
            let mut work = Work::start(self.stand(), &notifier, capacity, prefetch).await;
            while Stand::lock(&work.stand.starts).len() < expected {
                let report = tokio::time::timeout(1_000 * LONGEST, work.ended.recv()).await;
                report.expect("something is left, and does not run");
            }
            work.stop.cancel();
            assert!(work.working.await.unwrap());
            std::mem::take(&mut *Stand::lock(&work.stand.starts))
        })
    }

    fn stand(self) -> Arc<Stand> {
        Arc::new(Stand {
            began: Instant::now(),
            plans: Mutex::new(self.plans),
            rooms: (0..self.rooms).map(|_| Arc::new(Semaphore::new(1))).collect(),
            queues: Mutex::new(self.queues),
            starts: Mutex::default(),
        })
    }
}

/// A worker's intake that runs.
struct Work {
    stand: Arc<Stand>,
    ended: mpsc::Receiver<RunReport>,
    stop: CancellationToken,
    working: tokio::task::JoinHandle<bool>,
}

impl Work {
    async fn start(
        stand: Arc<Stand>,
        notifier: &Arc<dyn Notifier>,
        capacity: usize,
        prefetch: impl Into<Option<usize>>,
    ) -> Self {
        let config = WorkerConfig { capacity, prefetch: prefetch.into(), ..WorkerConfig::default() };
        let subscription = notifier.subscribe(config.held_max()).await.unwrap();
        let (reports, ended) = mpsc::channel(1_000_000);
        let intake = Intake::new(
            Arc::clone(&stand),
            Arc::clone(notifier),
            &config,
            Arc::new(Counters::default()),
            Some(reports),
            watch::Sender::new(None),
        );
        let stop = CancellationToken::new();
        let working = tokio::spawn(intake.run(subscription, stop.clone(), CancellationToken::new()));
        Self { stand, ended, stop, working }
    }
}

/// As Pub/Sub does, it sends some to each of two streams, whoever would have taken them first.
#[derive(Default)]
struct Streams {
    streams: [LocalNotifier; 2],
    opened: AtomicUsize,
    turn: AtomicUsize,
    first_ends: AtomicBool,
}

#[async_trait::async_trait]
impl Notifier for Streams {
    async fn publish(&self, notifications: &[Notification]) -> Result<(), NotifyError> {
        for notification in notifications {
            let stream = match (self.opened.load(Ordering::Relaxed), self.first_ends.load(Ordering::Relaxed))
            {
                (0 | 1, _) => 0,
                (_, true) => 1,
                (_, false) => self.turn.fetch_add(1, Ordering::Relaxed) % 2,
            };
            self.streams[stream].publish(&[*notification]).await?;
        }
        Ok(())
    }

    async fn subscribe(&self, max_outstanding: usize) -> Result<Box<dyn Subscription>, NotifyError> {
        let number = self.opened.fetch_add(1, Ordering::Relaxed);
        self.streams[number].subscribe(max_outstanding).await
    }
}

/// A narrow handler's events wait on the first of two workers, which has room for one of them at a time: the second, which
/// comes later, gets some at once, and all that is left when the first one stops.
#[tokio::test(start_paused = true)]
async fn what_waits_for_room_is_offered_to_others() {
    let mut scene = Scene { rooms: 1, ..Scene::default() };
    let plan = Plan { lasts: LONGEST, room: Some(0), ..Plan::default() };
    (0..40).for_each(|_| scene.publish(1, plan.clone()));
    let streams = Arc::new(Streams::default());
    let notifier: Arc<dyn Notifier> = streams.clone();
    notifier.publish(&scene.published).await.unwrap();
    let first = Work::start(scene.clone().stand(), &notifier, 4, 4).await;
    tokio::time::sleep(60 * LONGEST / 100).await;
    assert_eq!(Stand::lock(&first.stand.starts).len(), 1);
    let mut second = Work::start(scene.stand(), &notifier, 4, 4).await;
    tokio::time::sleep(LONGEST / 4).await;
    assert_eq!(Stand::lock(&second.stand.starts).len(), 1);
    streams.first_ends.store(true, Ordering::Relaxed);
    first.stop.cancel();
    assert!(first.working.await.unwrap());
    while Stand::lock(&first.stand.starts).len() + Stand::lock(&second.stand.starts).len() < 40 {
        tokio::time::timeout(2 * LONGEST, second.ended.recv()).await.expect("it goes on");
    }
}

/// So many more are published, and then one of another canvas; how many start before that one.
async fn ahead_of_another(
    scene: &Scene,
    work: &Work,
    notifier: &Arc<dyn Notifier>,
    flood: &[Notification],
) -> usize {
    let started = || Stand::lock(&work.stand.starts).len();
    let before = started();
    notifier.publish(flood).await.unwrap();
    let other = *scene.published.last().unwrap();
    notifier.publish(&[other]).await.unwrap();
    let has_started = || Stand::lock(&work.stand.starts).iter().any(|start| start.notification == other);
    while !has_started() {
        tokio::time::sleep(LOOK).await;
    }
    started() - before
}

/// What is quick is taken ahead, so that a canvas waits for no flood of another; once it is slow, it is left to other workers.
#[tokio::test(start_paused = true)]
async fn a_worker_with_quick_handlers_takes_more_ahead() {
    const FLOOD: usize = 2_000;
    let mut scene = Scene::default();
    let quick = Plan { lasts: LONGEST / 2_000, ..Plan::default() };
    let slow = Plan { lasts: LONGEST, ..Plan::default() };
    (0..2 * FLOOD).for_each(|_| scene.publish(1, quick.clone()));
    (0..FLOOD).for_each(|_| scene.publish(1, slow.clone()));
    scene.publish(2, quick);
    let (first, rest) = scene.published.split_at(FLOOD);
    let (second, slow) = rest[..rest.len() - 1].split_at(FLOOD);
    for prefetch in [None, Some(16)] {
        let notifier: Arc<dyn Notifier> = Arc::new(LocalNotifier::new());
        notifier.publish(first).await.unwrap();
        let work = Work::start(scene.clone().stand(), &notifier, 4, prefetch).await;
        tokio::time::sleep(Duration::from_secs(4)).await;
        assert!(Stand::lock(&work.stand.starts).len() >= FLOOD / 2);
        let waited_for = ahead_of_another(&scene, &work, &notifier, second).await;
        assert_eq!(waited_for <= 2 * 4, prefetch.is_none(), "{waited_for} of the flood went before it");
        tokio::time::sleep(LONGEST).await;
        assert_eq!(Stand::lock(&work.stand.starts).len(), 2 * FLOOD + 1);
        notifier.publish(slow).await.unwrap();
        tokio::time::sleep(Duration::from_secs(2)).await;
        let other = Work::start(scene.clone().stand(), &notifier, 4, prefetch).await;
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(Stand::lock(&other.stand.starts).len(), 4, "there is enough for it");
    }
}

fn canvases(starts: &[Start]) -> Vec<u128> {
    starts.iter().map(|start| start.notification.canvas.0.as_u128()).collect()
}

/// The next event of an object waits for its turn, as any event of its canvas.
#[test]
fn a_chain_takes_turns_with_other_canvases() {
    let mut scene = Scene::default();
    scene.chain(1, 3, LONGEST);
    scene.publish(2, Plan { due: LONGEST / 2, ..Plan::default() });
    // It is found to be early only when there is a place for a look at it; so its own is kept from the start.
    scene.published.reverse();
    assert_eq!(canvases(&scene.play(1, 4)), [1, 2, 1, 1]);
}

/// Chains of one canvas, and what comes for it, have every other turn.
#[test]
fn chains_take_turns_with_each_other_and_with_what_comes() {
    let mut scene = Scene::default();
    scene.chain(1, 3, LONGEST);
    scene.chain(1, 3, LONGEST);
    let starts = scene.play(1, 4);
    let ids: Vec<u128> = starts.iter().map(|start| start.notification.id.0.as_u128()).collect();
    assert_eq!(ids, [3, 2, 6, 1, 5, 4]);
}

/// More chains of one canvas than a worker may hold notifications: what another emits does not wait at the broker until one of them
/// comes to its end.
#[test]
fn chains_of_a_canvas_do_not_keep_what_others_emit_at_the_broker() {
    let mut scene = Scene::default();
    (0..12).for_each(|_| scene.chain(1, 50, LONGEST));
    scene.publish(2, Plan::default());
    let starts = scene.play(4, 4);
    let before = canvases(&starts).iter().position(|canvas| *canvas == 2).unwrap();
    assert!(before <= 4 * 8, "{before} of the other canvas started before it");
}

/// Objects do not stand still because much comes for their canvas: what has its turn waits for a place or two, and not for all that
/// came before.
#[test]
fn an_object_goes_on_before_all_that_came() {
    let mut scene = Scene::default();
    scene.chain(1, 50, LONGEST);
    (0..500).for_each(|_| scene.publish(1, Plan { lasts: LONGEST, ..Plan::default() }));
    let chain: Vec<EventId> = (1..=50).map(|id| EventId(uuid::Uuid::from_u128(id))).collect();
    let starts = scene.play(4, 5_000);
    let mut waited = starts.iter().filter(|start| chain.contains(&start.notification.id));
    assert!(waited.all(|start| start.waited <= LONGEST + LOOK));
}

/// More objects than a worker may hold notifications, behind a flood, and a second in which nothing ends: what has its turn stays
/// here, and waits for as many others as there are objects.
#[test]
fn no_object_waits_behind_a_flood_at_the_broker() {
    const OBJECTS: u32 = 200;
    let lasts = Duration::from_millis(10);
    let mut scene = Scene::default();
    (0..4).for_each(|_| scene.publish(1, Plan { lasts: 150 * lasts, ..Plan::default() }));
    (0..OBJECTS).for_each(|_| scene.chain(1, 20, lasts));
    (0..5_000).for_each(|_| scene.publish(1, Plan { lasts, ..Plan::default() }));
    let handed_over: BTreeSet<EventId> =
        scene.plans.values().filter_map(|plan| Some(plan.next?.id)).collect();
    let starts = scene.play(4, None);
    let links = starts.iter().filter(|start| handed_over.contains(&start.notification.id));
    let longest = links.map(|start| start.waited).max();
    assert!(longest <= Some(lasts * 2 * OBJECTS / 4 + 10 * lasts), "{longest:?}");
}

/// One of the things that other canvases do, of canvas 1 to `PLACES` - 1.
#[derive(Clone, Debug)]
enum Noise {
    Events(usize),
    Chain(usize),
    Retries(u32),
    Delays(usize),
    Narrow(usize),
    Queued(usize),
}

fn noise() -> impl Strategy<Value = (u8, Noise, u64)> {
    let kind = prop_oneof![
        (1..80_usize).prop_map(Noise::Events),
        (2..80_usize).prop_map(Noise::Chain),
        (1..5_u32).prop_map(Noise::Retries),
        (1..40_usize).prop_map(Noise::Delays),
        (2..40_usize).prop_map(Noise::Narrow),
        (2..40_usize).prop_map(Noise::Queued),
    ];
    (1..PLACES as u8, kind, 1..=LONGEST.as_secs())
}

fn scene_of(noises: &[(u8, Noise, u64)], quiet: &[u64]) -> Scene {
    let mut scene = Scene::default();
    let quiet_due = |at: usize| Duration::from_secs(quiet[..=at].iter().sum());
    for at in 0..quiet.len() {
        scene.publish(0, Plan { due: quiet_due(at), ..Plan::default() });
    }
    for (canvas, noise, lasts_s) in noises {
        let lasts = Duration::from_secs(*lasts_s);
        let plain = Plan { lasts, ..Plan::default() };
        match *noise {
            Noise::Events(count) => (0..count).for_each(|_| scene.publish(*canvas, plain.clone())),
            Noise::Chain(count) => scene.chain(*canvas, count, lasts),
            Noise::Retries(retries) => {
                scene.publish(*canvas, Plan { retries, retry_delay: lasts / 2, ..plain.clone() });
            }
            Noise::Delays(count) => (0..count as u32)
                .for_each(|at| scene.publish(*canvas, Plan { due: lasts * (at / 4), ..plain.clone() })),
            Noise::Narrow(count) => {
                let room = Some(scene.rooms);
                scene.rooms += 1;
                (0..count).for_each(|_| scene.publish(*canvas, Plan { room, ..plain.clone() }));
            }
            Noise::Queued(count) => {
                let queue = Some(scene.queues.len());
                let copies = (0..count).map(|_| scene.add(*canvas, Plan { queue, ..plain.clone() }));
                let copies: VecDeque<Notification> = copies.collect();
                scene.published.extend(copies.iter().rev());
                scene.queues.push(copies);
            }
        }
    }
    scene
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    /// Whatever as many canvases do as there are places, an event of another that is due, and the first of its canvas then, starts
    /// when the handlers that run then have ended; and everything runs as often as it should, however little may be held.
    #[test]
    fn a_due_event_waits_for_one_handler_at_most(
        noises in prop::collection::vec(noise(), 1..12),
        quiet in prop::collection::vec(1..60_u64, 1..8),
        prefetch in prop_oneof![Just(PLACES), Just(4 * PLACES), Just(AHEAD)],
    ) {
        let scene = scene_of(&noises, &quiet);
        let expected: BTreeMap<EventId, u32> =
            scene.plans.iter().map(|(id, plan)| (*id, 1 + plan.retries)).collect();
        let dues: BTreeMap<EventId, Duration> = scene.plans.iter().map(|(id, plan)| (*id, plan.due)).collect();
        let starts = scene.play(PLACES, prefetch);
        let mut turn = Duration::ZERO;
        let mut ran: BTreeMap<EventId, u32> = BTreeMap::new();
        for Start { notification, waited } in &starts {
            *ran.entry(notification.id).or_default() += 1;
            if notification.canvas.0.is_nil() {
                let due = dues[&notification.id];
                // Another of its canvas may have had the turn before.
                let since = due.max(turn);
                turn = due + *waited;
                let most = LONGEST + Duration::from_millis(100);
                // Where little is held, its canvas may have the most waiting, and then its last is left to other workers.
                let is_kept = since == due || prefetch == AHEAD;
                prop_assert!(!is_kept || turn - since <= most, "{} waited {:?}", notification.id, turn - since);
            }
        }
        prop_assert_eq!(ran, expected);
    }
}
