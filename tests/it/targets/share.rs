//! What one canvas's targets may take of a worker.

use std::collections::BTreeSet;

use wakeq::machine::Outcome;
use wakeq::queues::NewQueue;
use wakeq::workers::Verdict;
use wakeq::{Actor, CanvasId, Event, EventId, Handlers, QueueWorker, WorkerConfig};

use crate::support::handlers::{Door, recording};
use crate::support::receiver::{PendingRequest, Receiver, address, calling, target};
use crate::support::{RunningWorker, Stage};

const OTHER: CanvasId = CanvasId(uuid::Uuid::from_u128(7));

/// A worker that runs eight at a time, with these functions.
pub(crate) fn worker(stage: &Stage, handlers: Handlers, target_share: Option<usize>) -> RunningWorker {
    let config = WorkerConfig { capacity: 8, target_share, ..WorkerConfig::default() };
    calling(&stage.store, stage, handlers, config)
}

pub(crate) async fn put(stage: &Stage, canvas: CanvasId, name: &str, receiver: &Receiver) {
    let (address, target) = (address(canvas, name), target(&receiver.url));
    stage.admin.put_target(&address, &target, &Actor::user("tests")).await.unwrap();
}

async fn emit(stage: &Stage, canvas: CanvasId, name: &str) -> EventId {
    stage.queue.emit(Event::new(name, &1).unwrap().canvas(canvas)).await.unwrap().id
}

/// Receives this many requests, none of which is answered yet.
async fn unanswered(receiver: &mut Receiver, count: usize) -> Vec<PendingRequest> {
    let mut inside = Vec::new();
    while inside.len() < count {
        inside.push(receiver.next().await);
    }
    inside
}

/// A canvas whose targets do not answer leaves a quarter of the places free, over all its handlers
/// together, and nothing else waits for them.
// Shows: TARGET-12
#[tokio::test]
async fn slow_targets_keep_neither_other_canvases_nor_functions_waiting() {
    let (stage, notifier) = Stage::memory().await;
    let (mut slow, mut quick) = (Receiver::start().await, Receiver::start().await);
    let (handler, mut seen) = recording();
    let mut running = worker(&stage, Handlers::new().on("local", handler), None);
    for name in ["greet", "part"] {
        put(&stage, CanvasId::DEFAULT, name, &slow).await;
    }
    put(&stage, OTHER, "greet", &quick).await;
    stage.emit_many("greet", 10).await;
    let mut inside = unanswered(&mut slow, 4).await;
    let mut waiting = 0;
    while waiting < 6 {
        waiting += usize::from(running.report().await.verdict == Verdict::WaitsForRoom);
    }
    stage.emit_many("part", 10).await;
    inside.extend(unanswered(&mut slow, 1).await);
    while waiting < 15 {
        waiting += usize::from(running.report().await.verdict == Verdict::WaitsForRoom);
    }
    let theirs = emit(&stage, OTHER, "greet").await;
    let arrived = quick.next().await;
    assert_eq!(arrived.header("webhook-id"), theirs.to_string());
    arrived.answer("200 OK", &[]);
    let function = emit(&stage, CanvasId::DEFAULT, "local").await;
    assert_eq!(seen.next().await.id, function);

    assert!(slow.is_quiet());
    inside.into_iter().for_each(|arrived| arrived.answer("200 OK", &[]));
    for _ in 0..15 {
        slow.next().await.answer("200 OK", &[]);
    }
    running.until_count(20, Outcome::Deleted).await;
    notifier.drained().await;
    assert_eq!(stage.rows().await, 0);
    running.stop().await;
}

/// A target that does not answer leaves places to its canvas's other targets, with the defaults:
/// they are called at once.
// Shows: TARGET-12
#[tokio::test]
async fn a_hanging_target_keeps_no_other_of_its_canvas_waiting() {
    let (stage, _) = Stage::memory().await;
    let (mut hanging, mut quick) = (Receiver::start().await, Receiver::start().await);
    let mut running = worker(&stage, Handlers::new(), None);
    for (name, receiver) in [("hangs", &hanging), ("quick", &quick)] {
        put(&stage, OTHER, name, receiver).await;
    }
    let waits =
        stage.queue.emit_all((0..20).map(|at| Event::new("hangs", &at).unwrap().canvas(OTHER)).collect());
    let waits = waits.await.unwrap();
    let inside = unanswered(&mut hanging, 4).await;
    let mut waiting = 0;
    while waiting < 16 {
        waiting += usize::from(running.report().await.verdict == Verdict::WaitsForRoom);
    }
    let mut next = BTreeSet::new();
    for event in &waits {
        next.insert(stage.live(OTHER, event.id).await.next());
    }
    assert!(
        next.iter().any(|next| next.contains("its share of the workers, the target's within its canvas's")),
        "{next:?}"
    );
    for _ in 0..5 {
        let healthy = emit(&stage, OTHER, "quick").await;
        let arrived = quick.next().await;
        assert_eq!(arrived.header("webhook-id"), healthy.to_string());
        arrived.answer("200 OK", &[]);
        running.until(healthy, Outcome::Deleted).await;
    }
    assert!(hanging.is_quiet(), "it has half of the places, and nobody else wants any");
    inside.into_iter().for_each(|arrived| arrived.answer("200 OK", &[]));
    for _ in 0..16 {
        hanging.next().await.answer("200 OK", &[]);
    }
    running.until_count(16, Outcome::Deleted).await;
    running.stop().await;
}

/// Emits an event and waits until the worker has no place for it.
async fn held_back(stage: &Stage, running: &mut RunningWorker, canvas: CanvasId, name: &str) -> EventId {
    let event = emit(stage, canvas, name).await;
    loop {
        let report = running.report().await;
        if (report.notification.id, report.verdict) == (event, Verdict::WaitsForRoom) {
            return event;
        }
    }
}

/// An event that is held back is told which share it waits for, also if none of its handler runs
/// and others have taken it: two targets of its canvas hang, and so does one of another canvas.
#[tokio::test]
async fn an_event_is_told_which_share_it_waits_for() {
    let (stage, _) = Stage::memory().await;
    let (mut hanging, mut quick) = (Receiver::start().await, Receiver::start().await);
    let mut running = worker(&stage, Handlers::new(), None);
    put(&stage, OTHER, "third", &quick).await;
    let mut inside = Vec::new();
    // Of eight places, half are lent to a target, and a quarter stays free for other canvases.
    for (canvas, name, places) in [(OTHER, "first", 4), (OTHER, "second", 1), (CanvasId::DEFAULT, "first", 1)]
    {
        put(&stage, canvas, name, &hanging).await;
        for _ in 0..places {
            emit(&stage, canvas, name).await;
            inside.push(hanging.next().await);
        }
    }
    let third = held_back(&stage, &mut running, OTHER, "third").await;
    let second = held_back(&stage, &mut running, OTHER, "second").await;
    let theirs = held_back(&stage, &mut running, CanvasId::DEFAULT, "first").await;
    let of_canvas =
        "only its canvas's share of the workers, which other targets of its canvas may have taken";
    let of_target = "its share of the workers, the target's within its canvas's";
    for (canvas, event, runs, share) in [
        (OTHER, third, 0, of_canvas),
        (OTHER, second, 1, of_target),
        (CanvasId::DEFAULT, theirs, 1, of_target),
    ] {
        let live = stage.live(canvas, event).await;
        assert_eq!(live.running, runs, "{live:?}");
        assert!(live.next().contains(share), "{}", live.next());
    }

    assert!(quick.is_quiet() && hanging.is_quiet());
    inside.into_iter().for_each(|arrived| arrived.answer("200 OK", &[]));
    quick.next().await.answer("200 OK", &[]);
    for _ in 0..2 {
        hanging.next().await.answer("200 OK", &[]);
    }
    running.until_count(9, Outcome::Deleted).await;
    running.stop().await;
}

/// The same for a function: others of its handler run, or none does.
#[tokio::test]
async fn an_event_of_a_function_is_told_which_share_it_waits_for() {
    let (stage, _) = Stage::memory().await;
    let (handler, mut door) = Door::new();
    let mut running = worker(&stage, Handlers::new().on("local", handler), None);
    let mut ids = stage.emit_many("local", 8).await;
    for _ in 0..8 {
        door.arrived.next().await;
    }
    let more = emit(&stage, CanvasId::DEFAULT, "local").await;
    let theirs = emit(&stage, OTHER, "local").await;
    for (canvas, event, runs, share) in [
        (CanvasId::DEFAULT, more, 8, "its canvas's share, as each free"),
        (OTHER, theirs, 0, "its canvas's share at most, as each free"),
    ] {
        let live = stage.live(canvas, event).await;
        assert_eq!(live.running, runs, "{live:?}");
        assert!(live.next().contains(share), "{}", live.next());
    }
    ids.extend([more, theirs]);
    door.open(ids.len());
    running.until_all(&ids, Outcome::Deleted).await;
    running.stop().await;
}

// Shows: TARGET-12
#[tokio::test]
async fn an_operator_says_how_much_a_canvas_may_take() {
    let (stage, _) = Stage::memory().await;
    let config = WorkerConfig { target_share: Some(0), ..WorkerConfig::default() };
    let worker_of_none =
        QueueWorker::new(stage.store.clone(), stage.notifier.clone(), Handlers::new(), config);
    assert!(worker_of_none.err().unwrap().to_string().contains("never be called"));
    let mut receiver = Receiver::start().await;
    let mut running = worker(&stage, Handlers::new(), Some(8));
    for name in ["greet", "part"] {
        put(&stage, CanvasId::DEFAULT, name, &receiver).await;
        stage.emit_many(name, 4).await;
    }
    unanswered(&mut receiver, 8).await.into_iter().for_each(|arrived| arrived.answer("200 OK", &[]));
    running.until_count(8, Outcome::Deleted).await;
    running.stop().await;
}

/// TARGET-12: if the target of one queue does not answer, the targets of other queues do not wait
/// for it: they are on one canvas, but do not share its capacity.
#[tokio::test]
async fn the_slow_target_of_one_queue_keeps_no_other_queue_waiting() {
    let (stage, _) = Stage::memory().await;
    let (mut slow, mut quick) = (Receiver::start().await, Receiver::start().await);
    let mut running = worker(&stage, Handlers::new(), Some(1));
    for (name, receiver) in [("slow", &slow), ("quick", &quick)] {
        let target = Some(target(&receiver.url));
        let patterns = vec![format!(".*:{name}:.*").parse().unwrap()];
        let queue = NewQueue { patterns, target, ..NewQueue::default() };
        stage.admin.put_queue(&name.parse().unwrap(), &queue, &Actor::user("ada")).await.unwrap();
    }
    let copied = |module: &str, canvas| {
        let event = Event::new("part", &1).unwrap().module(module).unwrap();
        event.canvas(canvas).only_to_queues()
    };
    let slow_ones = [CanvasId::DEFAULT, OTHER].map(|canvas| [(); 3].map(|()| copied("slow", canvas)));
    stage.queue.emit_all(slow_ones.into_iter().flatten().collect()).await.unwrap();
    let inside = slow.next().await;
    let mut waiting = 0;
    while waiting < 5 {
        waiting += usize::from(running.report().await.verdict == Verdict::WaitsForRoom);
    }
    stage.queue.emit(copied("quick", OTHER)).await.unwrap();
    quick.next().await.answer("200 OK", &[]);
    running.until_count(1, Outcome::Deleted).await;
    assert!(slow.is_quiet(), "the share is for one at a time");
    inside.answer("200 OK", &[]);
    for _ in 0..5 {
        slow.next().await.answer("200 OK", &[]);
    }
    running.until_count(6, Outcome::Deleted).await;
    running.stop().await;
}
