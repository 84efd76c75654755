//! What becomes of a pushed notification, and of the promise on its event's row.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::json;
use wakeq::machine::Outcome;
use wakeq::notify::Notification;
use wakeq::testing::TestKit;
use wakeq::workers::WorkerError;
use wakeq::{
    Actor, CanvasId, Event, EventId, HandlerError, Handlers, QueueWorker, RetryPolicy, Route, Stop,
    WorkerConfig,
};

use super::{PushDeployment, notification, promise, set, timing};
use crate::support::handlers::{Door, answering, recording};
use crate::support::service::Answer;
use crate::support::{OTHER, Stage, capacity, scope};

fn delayed(by: Duration) -> Event {
    Event::new("greet", "x").unwrap().after(by).unwrap()
}

/// Completed, or gone long ago.
// Shows: PUSH-04
#[tokio::test]
async fn pushes_of_ended_events_are_acknowledged() {
    let (pushed, mut seen) = PushDeployment::recorded().await;
    let id = pushed.stage.emit("greet").await;
    assert_eq!(pushed.pushed(id).await, 204);
    assert_eq!((seen.next().await.id, pushed.stage.rows().await), (id, 0));
    assert_eq!(pushed.pushed(id).await, 204, "a second time");
    assert_eq!(pushed.pushed(EventId::new()).await, 204, "and one that never was");
    assert!(seen.rest().is_empty());
    pushed.stop().await;
}

/// A foreign message would otherwise come again and again; a wrongly configured subscription must
/// be noticed.
// Shows: PUSH-05
#[tokio::test]
async fn malformed_pushes_are_acknowledged_and_counted() {
    let pushed = PushDeployment::start(Handlers::new()).await;
    let large = vec![b'x'; 400_000];
    for (count, data) in [&b""[..], b"hello", br#"{"id":1}"#, b"\xff\xfe", &large].iter().enumerate() {
        assert_eq!(Answer::of(pushed.push_of(data)).await.status, 204);
        assert_eq!(pushed.counters.malformed(), count as u64 + 1);
    }
    for body in [
        json!({"message": {"attributes": {"a": "b"}}, "subscription": "s"}),
        json!({"message": {"data": "%%%"}, "subscription": "s"}),
    ] {
        let request = pushed.post("/v1/push", &body).bearer_auth(pushed.token());
        assert_eq!(Answer::of(request).await.status, 204, "{body}");
    }
    assert_eq!(pushed.counters.malformed(), 7);
    for body in [json!({"id": EventId::new(), "canvasID": CanvasId::DEFAULT}), json!([1]), json!("x")] {
        let answer = Answer::of(pushed.post("/v1/push", &body).bearer_auth(pushed.token())).await;
        answer.says((400, "bad-request"), "unwrapping");
    }
    pushed.stop().await;
}

/// An event that is due in a moment waits in the request; one that is due later is left to its
/// promise.
// Shows: PUSH-06
#[tokio::test]
async fn a_delay_waits_here_or_on_its_row() {
    let (pushed, mut seen) = PushDeployment::recorded().await;
    let soon = pushed.stage.queue.emit(delayed(Duration::from_secs(3))).await.unwrap().id;
    assert_eq!(pushed.pushed(soon).await, 204);
    let ran = seen.next().await;
    assert!(ran.claimed_at >= ran.due_at, "not before its time");
    assert!(pushed.counters.outcome(Outcome::DelayNotYet) >= 1, "it was not due when it came");
    let later = pushed.stage.queue.emit(delayed(Duration::from_secs(300))).await.unwrap().id;
    assert_eq!(pushed.pushed(later).await, 204);
    assert!(seen.rest().is_empty());
    let promised = promise(&pushed.stage, later).await.unwrap();
    assert!((200.0..=360.0).contains(&promised), "with its jitter: {promised}");
    pushed.stop().await;
}

/// The same for a retry.
// Shows: PUSH-06
#[tokio::test]
async fn a_retry_waits_here_or_on_its_row() {
    let failures = Arc::new(AtomicU32::new(0));
    let failing = Arc::clone(&failures);
    let (handler, mut seen) = answering(move |_| {
        let first = failing.fetch_add(1, Ordering::SeqCst) == 0;
        if first { Err(HandlerError::operational("not yet")) } else { Ok(()) }
    });
    let (refusing, mut refused) = answering(|_| Err(HandlerError::operational("no")));
    let retry = |delay| RetryPolicy { retries: 2, delay, ..RetryPolicy::default() };
    let handlers = Handlers::new()
        .on(Route::new("soon").retry(retry(Duration::from_millis(200))), handler)
        .on(Route::new("later").retry(retry(Duration::from_secs(300))), refusing);
    let pushed = PushDeployment::start(handlers).await;
    let id = pushed.stage.emit("soon").await;
    assert_eq!(pushed.pushed(id).await, 204);
    assert_eq!(seen.take(2).await.iter().map(|run| run.attempt).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(pushed.stage.rows().await, 0, "both within one push");
    let id = pushed.stage.emit("later").await;
    assert_eq!(pushed.pushed(id).await, 204);
    assert_eq!(refused.next().await.attempt, 1);
    let promised = promise(&pushed.stage, id).await.unwrap();
    assert!((200.0..=360.0).contains(&promised), "with its jitter: {promised}");
    pushed.stop().await;
}

/// A push that finds the event running brings its promise forward to the end of the lease at the
/// latest, and never postpones an earlier promise.
// Shows: PUSH-07
#[tokio::test]
async fn a_locked_event_is_looked_at_when_its_lease_ends() {
    let (pushed, mut seen) = PushDeployment::recorded().await;
    let id = pushed.stage.emit("greet").await;
    for (promised, expected) in [
        ("interval '1 hour'", 40.0..=60.0),
        ("interval '20 s'", 1.0..=20.0),
        ("interval '-5 s'", -40.0..=-5.0),
    ] {
        let change =
            format!("locked_at = clock_timestamp(), claims = 1, notify_at = clock_timestamp() + {promised}");
        set(&pushed.stage, id, &change).await;
        assert_eq!(pushed.pushed(id).await, 204);
        let found = promise(&pushed.stage, id).await.unwrap();
        assert!(expected.contains(&found), "{promised}: {found}");
    }
    assert!(seen.rest().is_empty());
    pushed.stop().await;
}

/// EV2-22: a parked event stays parked, in whatever state a push finds it.
// Shows: PUSH-07
#[tokio::test]
async fn a_push_leaves_a_parked_event_parked() {
    let (pushed, mut seen) = PushDeployment::recorded().await;
    let id = pushed.stage.emit("greet").await;
    let ada = Actor::user("ada");
    pushed.stage.admin.pause(&scope("greet"), &ada, &Stop::default()).await.unwrap();
    for _ in 0..2 {
        assert_eq!(pushed.pushed(id).await, 204);
        assert_eq!(promise(&pushed.stage, id).await, None);
    }
    set(&pushed.stage, id, "locked_at = clock_timestamp(), claims = 1").await;
    assert_eq!(pushed.pushed(id).await, 204);
    assert_eq!(promise(&pushed.stage, id).await, None, "though it was found locked");
    set(&pushed.stage, id, "locked_at = null").await;
    assert!(seen.rest().is_empty());
    let resumed = pushed.stage.admin.unpause(&scope("greet"), &ada).await.unwrap();
    assert_eq!(resumed.woken, 1);
    assert_eq!(pushed.pushed(id).await, 204);
    assert_eq!(seen.next().await.id, id);
    pushed.stop().await;
}

/// An event whose handler is unknown here is deferred, as by any worker.
// Shows: PUSH-08
#[tokio::test]
async fn an_unknown_handler_waits_for_its_registration() {
    let pushed = PushDeployment::start(Handlers::new()).await;
    let id = pushed.stage.emit("greet").await;
    assert_eq!(pushed.pushed(id).await, 204);
    assert_eq!(pushed.counters.outcome(Outcome::Deferred), 1);
    assert!(promise(&pushed.stage, id).await.unwrap() > 200.0);
    pushed.stop().await;
}

/// Without the database nothing is acknowledged.
// Shows: PUSH-09
#[tokio::test]
async fn without_the_database_the_message_has_to_come_again() {
    let (pushed, mut seen) = PushDeployment::recorded().await;
    let id = pushed.stage.emit("greet").await;
    pushed.stage.execute("alter schema wakeq rename to away").await;
    let answer = Answer::of(pushed.push(id)).await;
    assert_eq!(answer.problem(), (503, "unavailable".into()));
    assert!(answer.headers.contains_key("retry-after"));
    pushed.stage.execute("alter schema away rename to wakeq").await;
    assert_eq!(pushed.pushed(id).await, 204);
    assert_eq!(seen.next().await.attempt, 1);
    pushed.stop().await;
}

/// Up to the capacity run at a time; others wait in their requests.
// Shows: PUSH-10
#[tokio::test]
async fn a_push_beyond_the_capacity_waits_in_its_request() {
    let config = WorkerConfig { capacity: 1, ..WorkerConfig::default() };
    let (pushed, mut door) = PushDeployment::behind_a_door(config).await;
    let ids = [pushed.stage.emit("greet").await, pushed.stage.emit("greet").await];
    let first = tokio::spawn(pushed.push(ids[0]).send());
    assert_eq!(door.arrived.next().await.id, ids[0]);
    let second = tokio::spawn(pushed.push(ids[1]).send());
    door.open(2);
    assert_eq!(door.arrived.next().await.id, ids[1]);
    for answer in [first, second] {
        assert_eq!(answer.await.unwrap().unwrap().status(), 204);
    }
    assert_eq!((door.most(), pushed.stage.rows().await), (1, 0));
    pushed.stop().await;
}

/// A run that ends makes room for the canvas that has the fewest, however many pushes of another
/// were there before.
// Shows: PUSH-10
#[tokio::test(start_paused = true)]
async fn room_goes_to_the_canvas_that_has_the_least() {
    let (handler, mut door) = Door::new();
    let kit = TestKit::with_timing(timing()).unwrap();
    let (handlers, notifier) = (Handlers::new().on("greet", handler), Arc::new(kit.notifier().clone()));
    let runner = QueueWorker::new(kit.store(), notifier, handlers, capacity(2)).unwrap();
    let runner = runner.into_push_runner().await.unwrap();
    let emit = async |canvas| {
        let id = kit.emit(Event::new("greet", &1).unwrap().canvas(canvas)).await.unwrap().id;
        Notification::new(id, canvas)
    };
    let push = |notification: Notification| {
        let runner = runner.clone();
        tokio::spawn(async move { runner.run(&notification.body()).await })
    };
    let mut pushes = Vec::new();
    for _ in 0..2 {
        pushes.push(push(emit(CanvasId::DEFAULT).await));
        door.arrived.next().await;
    }
    for canvas in [CanvasId::DEFAULT; 4].into_iter().chain([OTHER; 2]) {
        pushes.push(push(emit(canvas).await));
    }
    for expected in [OTHER, CanvasId::DEFAULT, OTHER] {
        door.open(1);
        assert_eq!(door.arrived.next().await.address.scope.canvas, expected);
    }
    door.open(5);
    for push in pushes {
        push.await.unwrap().unwrap();
    }
    assert_eq!((door.most(), door.arrived.rest().len()), (2, 3));
}

/// Only a few requests wait for a handler with low concurrency, so that others get through.
// Shows: PUSH-10
#[tokio::test(start_paused = true)]
async fn a_narrow_handler_keeps_few_requests_waiting() {
    let (handler, mut door) = Door::new();
    let kit = TestKit::with_timing(timing()).unwrap();
    let handlers = Handlers::new().on(Route::new("narrow").concurrency(1), handler);
    let config = WorkerConfig { capacity: 8, ..WorkerConfig::default() };
    let notifier = Arc::new(kit.notifier().clone());
    let runner = QueueWorker::new(kit.store(), notifier, handlers, config).unwrap();
    let runner = runner.into_push_runner().await.unwrap();
    let emit = async || kit.emit(Event::new("narrow", &1).unwrap()).await.unwrap().id;
    let push = |id: EventId| {
        let (runner, began) = (runner.clone(), tokio::time::Instant::now());
        tokio::spawn(async move {
            runner.run(&notification(id).body()).await.unwrap();
            began.elapsed().as_secs()
        })
    };
    let held = push(emit().await);
    door.arrived.next().await;
    let mut waited = Vec::new();
    for pushed in [push(emit().await), push(emit().await), push(emit().await), push(emit().await)] {
        waited.push(pushed.await.unwrap());
    }
    waited.sort_unstable();
    // A quarter of the capacity waits, and the rest is left to its promises.
    assert_eq!(waited, [0, 0, 10, 10]);
    door.open(1);
    held.await.unwrap();
}

/// But for ten seconds at most, on a paused clock.
// Shows: PUSH-10
#[tokio::test(start_paused = true)]
async fn a_push_without_room_in_time_is_left_to_its_promise() {
    let (handler, mut door) = Door::new();
    let kit = TestKit::with_timing(timing()).unwrap();
    let route = Route::new("narrow").concurrency(1);
    let handlers = Handlers::new().on("greet", handler.clone()).on(route, handler);
    let config = WorkerConfig { capacity: 2, ..WorkerConfig::default() };
    let notifier = Arc::new(kit.notifier().clone());
    let runner = QueueWorker::new(kit.store(), notifier, handlers, config).unwrap();
    let runner = runner.into_push_runner().await.unwrap();
    let run = |id: EventId| {
        let runner = runner.clone();
        tokio::spawn(async move { runner.run(&notification(id).body()).await })
    };
    let emit = async |name: &str| kit.emit(Event::new(name, &1).unwrap()).await.unwrap().id;
    // First the handler is at its limit, then the whole process.
    let held = run(emit("narrow").await);
    door.arrived.next().await;
    let left = emit("narrow").await;
    let began = tokio::time::Instant::now();
    run(left).await.unwrap().unwrap();
    assert_eq!(began.elapsed().as_secs(), 10);
    let other = run(emit("greet").await);
    door.arrived.next().await;
    let began = tokio::time::Instant::now();
    run(emit("greet").await).await.unwrap().unwrap();
    assert_eq!(began.elapsed().as_secs(), 10);
    assert!(door.arrived.rest().is_empty());
    // Ten seconds later the minute's pass finds both, without waiting for the grace of an emit.
    kit.advance(Duration::from_secs(11)).await.unwrap();
    assert_eq!(kit.admin().wake(false).await.unwrap().woken, 2);
    door.open(2);
    for ended in [held, other] {
        ended.await.unwrap().unwrap();
    }
}

/// What a push deployment can't do is refused at its start.
// Shows: PUSH-11
#[tokio::test]
async fn settings_that_push_mode_cannot_have_are_rejected_at_startup() {
    let (stage, _) = Stage::memory().await;
    let start = async |stage: &Stage, handlers: Handlers| {
        let config = WorkerConfig::default();
        let worker = QueueWorker::new(stage.store.clone(), stage.notifier.clone(), handlers, config);
        match worker.unwrap().into_push_runner().await {
            Err(WorkerError::Config(words)) => words,
            Err(other) => panic!("{other}"),
            Ok(_) => "",
        }
    };
    assert!(start(&stage, Handlers::new()).await.contains("wakeq settings set --horizon 0s"));
    let (stage, _) = Stage::memory_with(timing()).await;
    let lasting = |seconds| {
        let (handler, _) = recording();
        Handlers::new().on(Route::new("h").timeout(Duration::from_secs(seconds)), handler)
    };
    assert!(start(&stage, lasting(601)).await.contains("600 s"));
    assert_eq!(start(&stage, lasting(600)).await, "");
}
