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
