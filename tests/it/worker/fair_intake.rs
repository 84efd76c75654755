//! Fair intake: among the deliveries that a worker holds, canvases take turns.

use std::collections::BTreeSet;

use wakeq::testing::MemoryNotifier;
use wakeq::{Event, EventId, Handlers, WorkerConfig};

use crate::support::handlers::Door;
use crate::support::{Stage, canvas, wait_while};

const NOISE: usize = 5_000;

async fn emit(stage: &Stage, number: u128, count: usize) -> Vec<EventId> {
    let events = (0..count).map(|at| Event::new("greet", &at).unwrap().canvas(canvas(number)));
    let emitted = stage.queue.emit_all(events.collect()).await.unwrap();
    emitted.into_iter().map(|emitted| emitted.id).collect()
}

/// Returns once the worker holds all that was published.
async fn all_held(notifier: &MemoryNotifier) {
    wait_while!(notifier.pending() > 0, "the worker takes all of it");
}

/// One canvas has flooded the worker: what others emit afterwards starts within a round over the
/// canvases, and a shutdown puts the rest back at once.
// Shows: FAIR-01
#[tokio::test]
async fn a_flood_of_one_canvas_delays_no_other_by_more_than_a_round() {
    let (stage, notifier) = Stage::memory().await;
    let (handler, mut door) = Door::new();
    emit(&stage, 1, NOISE).await;
    let config = WorkerConfig { capacity: 4, prefetch: Some(6_000), ..WorkerConfig::default() };
    let worker = stage.worker_with(Handlers::new().on("greet", handler), config);
    door.arrived.take(4).await;
    all_held(&notifier).await;

    let single = emit(&stage, 2, 1).await[0];
    all_held(&notifier).await;
    let mut next = Vec::new();
    for _ in 0..2 {
        door.open(1);
        next.push(door.arrived.next().await.id);
    }
    assert!(next.contains(&single), "two canvases wait: any two starts are one of each");

    let mut quiet = BTreeSet::new();
    for number in 3..23 {
        quiet.extend(emit(&stage, number, 2).await);
    }
    all_held(&notifier).await;
    for round in 0..2 {
        let mut canvases = BTreeSet::new();
        for _ in 0..21 {
            door.open(1);
            let started = door.arrived.next().await;
            quiet.remove(&started.id);
            canvases.insert(started.address.scope.canvas);
        }
        assert_eq!(canvases.len(), 21, "round {round}: each of the canvases once");
    }
    assert!(quiet.is_empty());
    assert_eq!(door.most(), 4);

    let ended = 2 + 2 * 21;
    door.open(4);
    worker.stop().await;
    assert_eq!(notifier.unanswered(), 0);
    let left = NOISE + 1 + 40 - ended - 4;
    assert_eq!((notifier.pending(), stage.rows().await), (left, left as i64), "the rest is given back");
}

/// A worker holds no more than its limit, whatever waits.
// Shows: EV2-19, FAIR-01
#[tokio::test]
async fn a_worker_holds_a_bounded_number_of_notifications() {
    let (stage, notifier) = Stage::memory().await;
    let (handler, mut door) = Door::new();
    emit(&stage, 1, 50).await;
    emit(&stage, 2, 1).await;
    let config = WorkerConfig { capacity: 2, prefetch: Some(10), ..WorkerConfig::default() };
    let worker = stage.worker_with(Handlers::new().on("greet", handler), config);
    for _ in 0..51 {
        door.arrived.next().await;
        assert!(notifier.unanswered() <= 12, "{} are held", notifier.unanswered());
        door.open(1);
    }
    notifier.drained().await;
    assert_eq!(door.most(), 2);
    worker.stop().await;
}

/// A canvas has emitted far more slow events than a worker holds. The first event of a canvas that
/// was never seen here starts when one of them ends, and those that it emits then at the next free
/// places; nothing is lost.
// Shows: FAIR-01
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn a_slow_backlog_of_one_canvas_delays_no_other_canvas() {
    let (stage, notifier) = Stage::memory().await;
    let (handler, mut door) = Door::new();
    emit(&stage, 1, 3_000).await;
    emit(&stage, 2, 1).await;
    let config = WorkerConfig { capacity: 4, prefetch: Some(16), ..WorkerConfig::default() };
    let worker = stage.worker_with(Handlers::new().on("greet", handler), config);
    let first = door.arrived.take(4).await;
    assert!(first.iter().all(|started| started.address.scope.canvas == canvas(1)));
    all_held(&notifier).await;
    door.open(1);
    assert_eq!(door.arrived.next().await.address.scope.canvas, canvas(2));

    emit(&stage, 2, 3).await;
    all_held(&notifier).await;
    let mut started = Vec::new();
    for _ in 0..6 {
        door.open(1);
        started.push(door.arrived.next().await.address.scope.canvas);
    }
    assert_eq!(started.iter().filter(|started| **started == canvas(2)).count(), 3, "{started:?}");
    door.open(3_004);
    stage.until_empty().await;
    worker.stop().await;
    assert_eq!(notifier.unanswered(), 0);
}

/// A lone canvas has all places, and what exceeds them stays at the broker, for any worker.
#[tokio::test]
async fn a_lone_canvas_has_all_places() {
    let (stage, notifier) = Stage::memory().await;
    let (handler, mut door) = Door::new();
    emit(&stage, 1, 100).await;
    let config = WorkerConfig { capacity: 16, prefetch: Some(4), ..WorkerConfig::default() };
    let worker = stage.worker_with(Handlers::new().on("greet", handler), config);
    door.arrived.take(16).await;
    assert_eq!((door.most(), stage.rows().await), (16, 100));
    door.open(50);
    door.arrived.take(50).await;
    wait_while!(notifier.pending() > 30, "the worker takes what it has room for");
    assert_eq!((notifier.unanswered(), notifier.pending()), (20, 30), "nobody else wants it");
    door.open(50);
    worker.stop().await;
}
