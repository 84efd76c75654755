//! The order in which notifications start, on a paused clock that advances only while nothing runs,
//! with made-up runs.

mod bench;
mod fairness;
mod urgent;

use std::collections::{BTreeSet, HashMap};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bench::{LONGEST, LOOK, Plan, Scene, Start, TestBench, Work};

use super::*;
use crate::notify::{LocalNotifier, NotifyError};

/// Like Pub/Sub, it spreads messages over two streams, whichever would take them first.
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

/// Events of a handler with limited concurrency wait on the first of two workers, which can run one
/// at a time. The second worker, which starts later, gets some immediately, and the rest when the
/// first stops.
// Shows: EV2-19
#[tokio::test(start_paused = true)]
async fn events_waiting_for_a_handler_slot_are_offered_to_other_workers() {
    let mut scene = Scene { limits: vec![1], ..Scene::default() };
    let plan = Plan { lasts: LONGEST, limit: Some(0), ..Plan::default() };
    (0..40).for_each(|_| scene.publish(1, plan.clone()));
    let streams = Arc::new(Streams::default());
    let notifier: Arc<dyn Notifier> = streams.clone();
    notifier.publish(&scene.published).await.unwrap();
    let first = Work::start(scene.clone().bench(), &notifier, 4, 4).await;
    tokio::time::sleep(60 * LONGEST / 100).await;
    assert_eq!(TestBench::lock(&first.bench.starts).len(), 1);
    let mut second = Work::start(scene.bench(), &notifier, 4, 4).await;
    tokio::time::sleep(LONGEST / 4).await;
    assert_eq!(TestBench::lock(&second.bench.starts).len(), 1);
    streams.first_ends.store(true, Ordering::Relaxed);
    first.stop.cancel();
    assert!(first.working.await.unwrap());
    while TestBench::lock(&first.bench.starts).len() + TestBench::lock(&second.bench.starts).len() < 40 {
        tokio::time::timeout(2 * LONGEST, second.ended.recv()).await.expect("it goes on");
    }
}

/// One of two workers stops while notifications wait for a slot on it: the other starts all of them
/// immediately, without the retry delay.
// Shows: FAIR-01
#[tokio::test(start_paused = true)]
async fn a_stopping_worker_hands_waiting_events_over_at_once() {
    let mut scene = Scene::default();
    (0..20).for_each(|_| scene.publish(1, Plan { lasts: LOOK, ..Plan::default() }));
    (0..4).for_each(|_| scene.publish(2, Plan { lasts: LONGEST, ..Plan::default() }));
    let (quick, slow) = scene.published.split_at(20);
    let notifier: Arc<dyn Notifier> = Arc::new(LocalNotifier::new());
    notifier.publish(slow).await.unwrap();
    let first = Work::start(scene.clone().bench(), &notifier, 4, 16).await;
    // Between two of the moments at which it offers what it has set aside.
    tokio::time::sleep(LONGEST / 20).await;
    notifier.publish(quick).await.unwrap();
    tokio::time::sleep(LONGEST / 10).await;
    let second = Work::start(scene.clone().bench(), &notifier, 20, 0).await;
    tokio::time::sleep(LONGEST / 100).await;
    assert_eq!(TestBench::lock(&second.bench.starts).len(), 0, "the first one holds all");
    first.stop.cancel();
    tokio::time::sleep(LONGEST / 10).await;
    assert_eq!(TestBench::lock(&second.bench.starts).len(), 20);
    assert!(!first.working.is_finished(), "it lets its own end");
    assert!(first.working.await.unwrap());
}

/// Two events of a canvas wait for a limited handler of its own, and came after all others that
/// wait for room. Events of the canvas that has more are offered in their place, so that the second
/// event is still here when its handler has room, and not at the broker behind a flood.
#[test]
fn offers_events_of_the_canvas_that_has_the_most_waiting() {
    let mut scene = Scene { limits: vec![1, 1], ..Scene::default() };
    let plan = |limit| Plan { lasts: LONGEST, limit: Some(limit), ..Plan::default() };
    (0..40).for_each(|_| scene.publish(1, plan(0)));
    (0..2).for_each(|_| scene.publish(2, plan(1)));
    (0..100).for_each(|_| scene.publish(3, Plan { lasts: LONGEST, ..Plan::default() }));
    let starts = scene.play(4, 4);
    let of_it = starts.iter().filter(|start| start.notification.canvas.0.as_u128() == 2);
    let at: Vec<Duration> = of_it.map(|start| start.at).collect();
    assert!(at.len() == 2 && at[1] - at[0] <= 2 * LONGEST + LONGEST / 10, "{at:?}");
}

/// Publishes `flood`, then one event of another canvas; returns how many start before that one.
async fn ahead_of_another(
    scene: &Scene,
    work: &Work,
    notifier: &Arc<dyn Notifier>,
    flood: &[Notification],
) -> usize {
    let started = || TestBench::lock(&work.bench.starts).len();
    let before = started();
    notifier.publish(flood).await.unwrap();
    let other = *scene.published.last().unwrap();
    notifier.publish(&[other]).await.unwrap();
    let has_started = || TestBench::lock(&work.bench.starts).iter().any(|start| start.notification == other);
    while !has_started() {
        tokio::time::sleep(LOOK).await;
    }
    started() - before
}

/// Quick runs are taken ahead, so that a canvas does not wait for another's flood; once they are
/// slow, they are left to other workers.
#[tokio::test(start_paused = true)]
async fn a_worker_with_quick_handlers_takes_more_ahead() {
    const FLOOD: usize = 2_000;
    let mut scene = Scene::default();
    let quick = Plan { lasts: LONGEST / 2_000, ..Plan::default() };
    let slow = Plan { lasts: LONGEST, ..Plan::default() };
    (0..2 * FLOOD).for_each(|_| scene.publish(1, quick.clone()));
    (0..FLOOD).for_each(|_| scene.publish(1, slow.clone()));
    scene.publish(2, quick);
    // No look finds the other canvas before its event arrives.
    scene.canvases.retain(|_, canvas| canvas.0.as_u128() == 1);
    let (first, rest) = scene.published.split_at(FLOOD);
    let (second, slow) = rest[..rest.len() - 1].split_at(FLOOD);
    for prefetch in [None, Some(16)] {
        let notifier: Arc<dyn Notifier> = Arc::new(LocalNotifier::new());
        notifier.publish(first).await.unwrap();
        let work = Work::start(scene.clone().bench(), &notifier, 4, prefetch).await;
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        assert!(TestBench::lock(&work.bench.starts).len() >= FLOOD / 2);
        let waited_for = ahead_of_another(&scene, &work, &notifier, second).await;
        assert_eq!(waited_for <= 2 * 4, prefetch.is_none(), "{waited_for} of the flood went before it");
        tokio::time::sleep(LONGEST).await;
        assert_eq!(TestBench::lock(&work.bench.starts).len(), 2 * FLOOD + 1);
        notifier.publish(slow).await.unwrap();
        tokio::time::sleep(Duration::from_secs(2)).await;
        let other = Work::start(scene.clone().bench(), &notifier, 4, prefetch).await;
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(TestBench::lock(&other.bench.starts).len(), 4, "there is enough for it");
    }
}

/// One canvas has more events than a worker may hold and set aside: another's starts in the next
/// round over the canvases, the rest is left to its promises, and none is lost.
#[tokio::test(start_paused = true)]
async fn events_beyond_the_memory_are_left_to_their_promises() {
    let mut scene = Scene::default();
    let slow = Plan { lasts: LONGEST, ..Plan::default() };
    (0..3_000).for_each(|_| scene.publish(1, slow.clone()));
    scene.publish(2, slow);
    let notifier: Arc<dyn Notifier> = Arc::new(LocalNotifier::new());
    notifier.publish(&scene.published).await.unwrap();
    let bench = scene.clone().bench();
    let work = Work::start_setting_aside(bench, &notifier, &bench::config(4, 16), 100).await;
    tokio::time::sleep(LONGEST * 3 / 2).await;
    let started = canvases(&TestBench::lock(&work.bench.starts));
    assert_eq!((&started[..4], started[4..6].contains(&2)), (&[1; 4][..], true), "{started:?}");
    work.stop.cancel();
    assert!(work.working.await.unwrap());
    let put_off = TestBench::lock(&work.bench.put_off).clone();
    assert!(put_off.len() > 2_000, "{}", put_off.len());
    let waits = Duration::from_secs(1)..=Duration::from_secs(600);
    assert!(put_off.iter().all(|(_, wait)| waits.contains(wait)));
    let mut kept: BTreeSet<EventId> = put_off.into_iter().map(|(id, _)| id).collect();
    kept.extend(TestBench::lock(&work.bench.starts).iter().map(|start| start.notification.id));
    let mut rest = notifier.subscribe(5_000).await.unwrap();
    while let Ok(Some(delivery)) = tokio::time::timeout(LONGEST, rest.next()).await {
        kept.insert(delivery.notification.as_ref().unwrap().id);
        delivery.acknowledge();
    }
    assert_eq!(kept.len(), 3_001);
}

/// Events of a canvas were set aside, and more of them wait for a limited handler than the lot may
/// keep: those beyond it are left to their promises, and not looked at over and over.
#[tokio::test(start_paused = true)]
async fn events_beyond_the_lot_are_left_to_their_promises() {
    let mut scene = Scene { limits: vec![1], ..Scene::default() };
    (0..4).for_each(|_| scene.publish(1, Plan { lasts: LONGEST, ..Plan::default() }));
    scene.publish(2, Plan::default());
    (0..300).for_each(|_| scene.publish(1, Plan { lasts: 9 * LONGEST, limit: Some(0), ..Plan::default() }));
    let notifier: Arc<dyn Notifier> = Arc::new(LocalNotifier::new());
    notifier.publish(&scene.published).await.unwrap();
    let config = WorkerConfig { lot_max: 20, ..bench::config(4, 16) };
    let work = Work::start_with(scene.bench(), &notifier, &config).await;
    tokio::time::sleep(LONGEST * 3 / 2).await;
    assert_eq!(canvases(&TestBench::lock(&work.bench.starts)), [1, 1, 1, 1, 2, 1]);
    let looks = work.bench.looks.load(Ordering::Relaxed);
    assert!((305..2 * 305).contains(&looks), "{looks} looks at 305 events");
    let put_off: BTreeSet<EventId> = TestBench::lock(&work.bench.put_off).iter().map(|(id, _)| *id).collect();
    assert!((250..300).contains(&put_off.len()), "{}", put_off.len());
    work.stop.cancel();
    assert!(work.working.await.unwrap());
}

/// Events set aside are offered to others by notifications that may be lost. So they are promised
/// soon then, however slow this worker is.
#[tokio::test(start_paused = true)]
async fn lost_offers_are_promised_soon() {
    let mut scene = Scene::default();
    (0..2_000).for_each(|_| scene.publish(1, Plan { lasts: 9 * LONGEST, ..Plan::default() }));
    scene.publish(2, Plan::default());
    let losing = Arc::new(Losing::default());
    losing.local.publish(&scene.published).await.unwrap();
    let notifier: Arc<dyn Notifier> = Arc::clone(&losing) as _;
    let work = Work::start(scene.bench(), &notifier, 4, 16).await;
    tokio::time::sleep(LONGEST).await;
    let lost = TestBench::lock(&losing.lost).clone();
    assert!(lost.len() > 1_000, "{}", lost.len());
    let promised: HashMap<EventId, Duration> = TestBench::lock(&work.bench.put_off).iter().copied().collect();
    let soon = |id| promised.get(id).is_some_and(|wait| *wait <= Duration::from_secs(20));
    assert!(lost.iter().all(|lost| soon(&lost.id)));
    work.stop.cancel();
    assert!(work.working.await.unwrap());
}

/// Loses what is published.
#[derive(Default)]
struct Losing {
    local: LocalNotifier,
    lost: Mutex<Vec<Notification>>,
}

#[async_trait::async_trait]
impl Notifier for Losing {
    async fn publish(&self, notifications: &[Notification]) -> Result<(), NotifyError> {
        TestBench::lock(&self.lost).extend(notifications);
        Ok(())
    }

    async fn subscribe(&self, max_outstanding: usize) -> Result<Box<dyn Subscription>, NotifyError> {
        self.local.subscribe(max_outstanding).await
    }
}

fn canvases(starts: &[Start]) -> Vec<u128> {
    starts.iter().map(|start| start.notification.canvas.0.as_u128()).collect()
}

/// One canvas has more notifications waiting for their time or for room than a worker keeps. Those
/// of another canvas start when they are due or have room, as if it were alone.
#[test]
fn a_canvas_does_not_fill_the_lot_for_others() {
    let mut scene = Scene { limits: vec![1, 1], ..Scene::default() };
    let narrow = |limit| Plan { lasts: LONGEST, limit: Some(limit), ..Plan::default() };
    let later = Plan { due: 60 * LONGEST, ..Plan::default() };
    (0..100).for_each(|_| scene.publish(1, later.clone()));
    (0..100).for_each(|_| scene.publish(1, narrow(0)));
    let retried = Plan { retries: 3, retry_delay: Duration::from_secs(1), ..Plan::default() };
    scene.publish_at(LONGEST / 2, 2, retried);
    (0..3).for_each(|_| scene.publish_at(LONGEST / 2, 2, narrow(1)));
    let config = WorkerConfig { capacity: 4, prefetch: Some(5_000), lot_max: 20, ..WorkerConfig::default() };
    let starts = scene.play_until(&config, |event| event.canvas.0.as_u128() == 2);
    let of_it = starts.iter().filter(|start| start.notification.canvas.0.as_u128() == 2);
    let late: Vec<_> = of_it.filter(|start| start.at - start.since > LOOK * 1_000).collect();
    assert!(late.is_empty(), "{late:?}");
}

/// If a canvas fills the lot, events that are due soon replace those that are due later.
#[test]
fn a_full_lot_keeps_the_events_that_are_due_first() {
    let mut scene = Scene::default();
    (0..100).for_each(|_| scene.publish(1, Plan { due: 60 * LONGEST, ..Plan::default() }));
    let soon = Plan { due: LONGEST, ..Plan::default() };
    (0..20).for_each(|_| scene.publish(1, soon.clone()));
    let config = WorkerConfig { capacity: 4, prefetch: Some(5_000), lot_max: 20, ..WorkerConfig::default() };
    let starts = scene.play_until(&config, |event| event.id.0.as_u128() > 100);
    assert!(starts.iter().all(|start| start.at - start.due <= LONGEST / 10), "{starts:?}");
}

/// The next event of an object waits for its turn like any event of its canvas.
#[test]
fn a_chain_takes_turns_with_other_canvases() {
    let mut scene = Scene::default();
    scene.chain_at(Duration::ZERO, 1, 3, LONGEST);
    scene.publish(2, Plan { due: LONGEST / 2, ..Plan::default() });
    // Finding out that a notification is early takes a free slot, so this one comes first.
    scene.published.reverse();
    assert_eq!(canvases(&scene.play(1, 4)), [1, 2, 1, 1]);
}

/// Chains of one canvas and its other arrivals alternate.
#[test]
fn chains_take_turns_with_each_other_and_with_what_comes() {
    let mut scene = Scene::default();
    scene.chain_at(Duration::ZERO, 1, 3, LONGEST);
    scene.chain_at(Duration::ZERO, 1, 3, LONGEST);
    let starts = scene.play(1, 4);
    let ids: Vec<u128> = starts.iter().map(|start| start.notification.id.0.as_u128()).collect();
    assert_eq!(ids, [3, 2, 6, 1, 5, 4]);
}

/// One canvas has more chains than a worker may hold notifications: what another canvas emits does
/// not wait at the broker until a chain ends.
#[test]
fn chains_of_a_canvas_do_not_keep_what_others_emit_at_the_broker() {
    let mut scene = Scene::default();
    (0..12).for_each(|_| scene.chain_at(Duration::ZERO, 1, 50, LONGEST));
    scene.publish(2, Plan::default());
    let starts = scene.play(4, 4);
    let before = canvases(&starts).iter().position(|canvas| *canvas == 2).unwrap();
    assert!(before <= 4 * 8, "{before} of the other canvas started before it");
}

/// Objects do not stall while their canvas has many arrivals: an event that has its turn waits for
/// a slot or two, not for all earlier arrivals.
// Shows: ORD-05
#[test]
fn the_next_event_of_an_object_runs_before_new_arrivals() {
    let mut scene = Scene::default();
    scene.chain_at(Duration::ZERO, 1, 50, LONGEST);
    (0..500).for_each(|_| scene.publish(1, Plan { lasts: LONGEST, ..Plan::default() }));
    let chain: Vec<EventId> = (1..=50).map(|id| EventId(uuid::Uuid::from_u128(id))).collect();
    let starts = scene.play(4, 5_000);
    let mut waited = starts.iter().filter(|start| chain.contains(&start.notification.id));
    assert!(waited.all(|start| start.at - start.due <= LONGEST + LOOK));
}

/// There are more objects than a worker may hold notifications, a flood behind them, and a second
/// in which nothing ends: events that have their turn stay here, and wait for no more others than
/// there are objects.
#[test]
fn no_object_waits_behind_a_flood_at_the_broker() {
    const OBJECTS: u32 = 200;
    let lasts = Duration::from_millis(10);
    let mut scene = Scene::default();
    (0..4).for_each(|_| scene.publish(1, Plan { lasts: 150 * lasts, ..Plan::default() }));
    (0..OBJECTS).for_each(|_| scene.chain_at(Duration::ZERO, 1, 20, lasts));
    (0..5_000).for_each(|_| scene.publish(1, Plan { lasts, ..Plan::default() }));
    let handed_over: BTreeSet<EventId> =
        scene.plans.values().filter_map(|plan| Some(plan.next?.id)).collect();
    let starts = scene.play(4, None);
    let links = starts.iter().filter(|start| handed_over.contains(&start.notification.id));
    let longest = links.map(|start| start.at - start.due).max();
    assert!(longest <= Some(lasts * 2 * OBJECTS / 4 + 10 * lasts), "{longest:?}");
}
