//! Urgent events start first, whatever waits, and leave others their share.

use super::bench::{LONGEST, LOOK, Plan, Scene, Start, config};
use super::*;
use crate::worker::WorkerConfig;

/// A plan of this length.
fn plain(lasts: Duration) -> Plan {
    Plan { lasts, ..Plan::default() }
}

fn urgent(lasts: Duration) -> Plan {
    Plan { urgent: true, ..plain(lasts) }
}

/// A slow backlog of canvas 1, and later an urgent event of each of these canvases.
fn behind_a_backlog(later: &[u8]) -> Scene {
    let mut scene = Scene::default();
    (0..500).for_each(|_| scene.publish(1, plain(LONGEST)));
    later.iter().for_each(|canvas| scene.publish_at(LONGEST / 2, *canvas, urgent(LONGEST / 10)));
    scene
}

/// The starts of events that were published later.
fn of_later(starts: &[Start]) -> Vec<&Start> {
    starts.iter().filter(|start| !start.due.is_zero()).collect()
}

/// The broker holds far more than the worker: each urgent event has the next place that is free,
/// also that of another canvas.
// Shows: URG-01
#[test]
fn an_urgent_event_starts_next_behind_any_backlog() {
    let scene = behind_a_backlog(&[1, 2]);
    let starts = scene.play_until(&config(2, 4), |event| event.urgent);
    let started: Vec<Duration> = of_later(&starts).iter().map(|start| start.at).collect();
    assert_eq!(started.len(), 2);
    assert!(started.iter().all(|at| (LONGEST..=LONGEST + LONGEST / 10).contains(at)), "{started:?}");
}

// Shows: URG-01
#[test]
fn an_urgent_event_has_a_kept_place_at_once() {
    let scene = behind_a_backlog(&[2]);
    let kept = WorkerConfig { urgent_slots: 1, ..config(3, 4) };
    let starts = scene.play_until(&kept, |event| event.urgent);
    let started = of_later(&starts);
    assert!(started.iter().all(|start| start.at <= LONGEST / 2 + LONGEST / 10), "{started:?}");
    let before = starts.iter().filter(|start| start.at < LONGEST / 2).count();
    assert_eq!(before, 2, "the others left it free");
}

/// One canvas floods the worker with urgent events. An urgent event of another canvas waits for a
/// place or two, and every fourth start is of an event that is not urgent, whose canvases take
/// turns as ever.
// Shows: URG-02
#[test]
fn a_flood_of_urgent_events_starves_nobody() {
    let mut scene = Scene::default();
    (0..400).for_each(|_| scene.publish(1, urgent(LONGEST / 10)));
    (0..100).for_each(|_| scene.publish(1, plain(LONGEST / 10)));
    (0..20).for_each(|_| scene.publish(2, plain(LONGEST / 10)));
    scene.publish_at(LONGEST, 3, urgent(LONGEST / 10));
    let starts = scene.play(4, 8);
    let third = of_later(&starts)[0];
    assert!(third.at - third.due <= LONGEST / 5, "{third:?}");
    let first = &starts[..200];
    let normal: Vec<u128> = first
        .iter()
        .filter(|start| !start.notification.urgent)
        .map(|start| start.notification.canvas.0.as_u128())
        .collect();
    assert!((45..=55).contains(&normal.len()), "{} of 200", normal.len());
    let of_second = normal.iter().filter(|canvas| **canvas == 2).count();
    assert_eq!(of_second, 20, "it has half of them until none is left: {normal:?}");
}

/// A handler has room for one at a time, and hundreds of its events wait: the urgent one is next,
/// or the one after that.
#[test]
fn an_urgent_event_does_not_queue_at_its_handler() {
    let mut scene = Scene { limits: vec![1], ..Scene::default() };
    let limited = |plan: Plan| Plan { limit: Some(0), ..plan };
    (0..200).for_each(|_| scene.publish(1, limited(plain(LONGEST))));
    scene.publish_at(LONGEST / 2, 1, limited(urgent(LONGEST)));
    let starts = scene.play_until(&config(4, 5_000), |event| event.urgent);
    let at = of_later(&starts)[0].at;
    assert!(at <= 2 * LONGEST + LONGEST / 10, "{at:?}");
}

/// The notification does not say that its event's route is urgent: the worker finds out, and the
/// event passes those that wait here.
#[test]
fn events_of_an_urgent_route_pass_those_that_wait_in_the_worker() {
    let mut scene = Scene::default();
    (0..100).for_each(|_| scene.publish(1, plain(LONGEST)));
    for canvas in [1, 2] {
        scene.publish_at(LONGEST / 2, canvas, Plan { routed: true, ..plain(LONGEST / 10) });
    }
    let routed: Vec<EventId> = scene.later.iter().map(|(_, notification)| notification.id).collect();
    let starts = scene.play_until(&config(2, 5_000), |event| routed.contains(&event.id));
    let started: Vec<Duration> = of_later(&starts).iter().map(|start| start.at).collect();
    assert!(started.iter().all(|at| *at <= LONGEST + LONGEST / 10), "{started:?}");
}

/// Like Pub/Sub, with one subscription to all notifications, or with a second one to all.
#[derive(Default)]
struct Unfiltered {
    first: LocalNotifier,
    second: Option<LocalNotifier>,
    published: AtomicUsize,
}

#[async_trait::async_trait]
impl Notifier for Unfiltered {
    async fn publish(&self, notifications: &[Notification]) -> Result<(), NotifyError> {
        self.published.fetch_add(notifications.len(), Ordering::Relaxed);
        for subscription in std::iter::once(&self.first).chain(&self.second) {
            subscription.publish(notifications).await?;
        }
        Ok(())
    }

    async fn subscribe(&self, max_outstanding: usize) -> Result<Box<dyn Subscription>, NotifyError> {
        self.first.subscribe(max_outstanding).await
    }

    async fn subscribe_urgent(
        &self,
        max_outstanding: usize,
    ) -> Result<Option<Box<dyn Subscription>>, NotifyError> {
        match &self.second {
            Some(second) => second.subscribe(max_outstanding).await.map(Some),
            None => Ok(None),
        }
    }
}

impl Unfiltered {
    /// A worker with what the scene publishes at the start.
    async fn work(
        self: &Arc<Self>,
        scene: &Scene,
        capacity: usize,
        prefetch: impl Into<Option<usize>>,
    ) -> Work {
        self.publish(&scene.published).await.unwrap();
        let notifier: Arc<dyn Notifier> = Arc::clone(self) as _;
        Work::start(scene.clone().bench(), &notifier, capacity, prefetch).await
    }
}

async fn run(work: &mut Work, count: usize) {
    for _ in 0..count {
        let report = tokio::time::timeout(10 * LONGEST, work.ended.recv()).await;
        report.expect("something is left, and does not run");
    }
}

/// Quick runs are taken ahead over the one stream there is, whatever their class. What a worker
/// receives beyond what it may hold it would publish, receive and publish again.
#[tokio::test(start_paused = true)]
async fn a_flood_over_the_only_stream_is_not_published_again() {
    const FLOOD: usize = 2_000;
    let mut scene = Scene::default();
    (0..FLOOD).for_each(|_| scene.publish(1, urgent(LONGEST / 2_000)));
    let first = scene.clone();
    (0..FLOOD).for_each(|_| scene.publish(1, urgent(LONGEST / 2_000)));
    let notifier = Arc::new(Unfiltered::default());
    let as_one = Scene { published: first.published, ..scene.clone() };
    let mut work = notifier.work(&as_one, 4, None).await;
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    notifier.publish(&scene.published[FLOOD..]).await.unwrap();
    run(&mut work, 2 * FLOOD).await;
    assert_eq!(notifier.published.load(Ordering::Relaxed), 2 * FLOOD);
    work.stop.cancel();
    assert!(work.working.await.unwrap());
}

/// One canvas has many events of both classes, and the worker holds some of each, as many together
/// as it may: another canvas's event behind them is found as ever.
#[tokio::test(start_paused = true)]
async fn another_canvas_is_found_behind_both_classes_of_one() {
    let mut scene = Scene::default();
    for _ in 0..100 {
        scene.publish(1, plain(LONGEST));
        scene.publish(1, urgent(LONGEST));
    }
    scene.publish(2, plain(LONGEST));
    let work = Arc::new(Unfiltered::default()).work(&scene, 4, 16).await;
    // In three rounds each canvas has a turn among those that are not urgent.
    tokio::time::sleep(LONGEST * 5 / 2).await;
    let canvases = super::canvases(&TestBench::lock(&work.bench.starts));
    assert_eq!((canvases.len(), canvases.contains(&2)), (12, true), "{canvases:?}");
    work.stop.cancel();
    assert!(work.working.await.unwrap());
}

/// Both subscriptions bring everything. Each event is looked at twice, and no notification is
/// published again, which would make two of it.
#[tokio::test(start_paused = true)]
async fn two_streams_of_everything_do_not_multiply() {
    let mut scene = Scene::default();
    for _ in 0..60 {
        scene.publish(1, plain(LONGEST / 100));
        scene.publish(1, urgent(LONGEST / 100));
    }
    let notifier = Arc::new(Unfiltered { second: Some(LocalNotifier::new()), ..Unfiltered::default() });
    let mut work = notifier.work(&scene, 2, 4).await;
    run(&mut work, 240).await;
    assert_eq!(notifier.published.load(Ordering::Relaxed), 120);
    work.stop.cancel();
    assert!(work.working.await.unwrap());
}

/// The stream of urgent notifications always has another one, of two canvases: what is received
/// starts meanwhile, and the other stream has its share.
#[tokio::test(start_paused = true)]
async fn a_stream_that_never_pauses_holds_up_neither_starts_nor_the_other() {
    let mut scene = Scene::default();
    for _ in 0..1_000 {
        [1, 2].into_iter().for_each(|canvas| scene.publish(canvas, urgent(LONGEST)));
    }
    (0..10).for_each(|_| scene.publish(3, plain(LONGEST)));
    let (first, others) = scene.published.split_at(2_000);
    let notifier: Arc<dyn Notifier> = Arc::new(LocalNotifier::new());
    notifier.publish(others).await.unwrap();
    notifier.publish(first).await.unwrap();
    let work = Work::start(scene.clone().bench(), &notifier, 8, 16).await;
    tokio::time::sleep(LONGEST / 100).await;
    let canvases = super::canvases(&TestBench::lock(&work.bench.starts));
    assert_eq!((canvases.len(), canvases.contains(&3)), (8, true), "{canvases:?}");
    work.stop.cancel();
    assert!(work.working.await.unwrap());
}

/// A worker that stops leaves urgent notifications to others as what they are.
#[tokio::test(start_paused = true)]
async fn a_stopping_worker_hands_urgent_events_over_as_such() {
    let mut scene = Scene::default();
    (0..4).for_each(|_| scene.publish(1, plain(LONGEST)));
    (0..6).for_each(|_| scene.publish(2, urgent(LOOK)));
    let (slow, rest) = scene.published.split_at(4);
    let notifier: Arc<dyn Notifier> = Arc::new(LocalNotifier::new());
    notifier.publish(slow).await.unwrap();
    let work = Work::start(scene.clone().bench(), &notifier, 4, 8).await;
    tokio::time::sleep(LONGEST / 10).await;
    notifier.publish(rest).await.unwrap();
    tokio::time::sleep(LONGEST / 10).await;
    work.stop.cancel();
    let mut urgent = notifier.subscribe_urgent(10).await.unwrap().unwrap();
    let mut left = BTreeSet::new();
    while left.len() < rest.len() {
        let delivery = urgent.next().await.unwrap();
        left.insert(delivery.notification.as_ref().unwrap().id);
        delivery.acknowledge();
    }
    assert_eq!(left, rest.iter().map(|notification| notification.id).collect());
    assert!(work.working.await.unwrap());
}
