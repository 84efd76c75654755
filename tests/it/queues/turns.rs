//! Queues, from the emit to the handler: turns that are fair to every canvas, whatever takes them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use tokio::sync::Semaphore;
use uuid::Uuid;
use wakeq::machine::{CheckResult, Outcome};
use wakeq::notify::Notifier;
use wakeq::order::Place;
use wakeq::queues::NewQueue;
use wakeq::{Actor, CanvasId, Event, EventId, Execution, HandlerError, Handlers, RetryPolicy, Route};

use crate::support::handlers::{Door, answering};
use crate::support::{Stage, Statements, capacity, patient, stop_all, wait_while};

pub(crate) const QUEUE: &str = "emails";

pub(crate) fn canvas(number: u128) -> CanvasId {
    CanvasId(Uuid::from_u128(number))
}

pub(crate) fn email(of: CanvasId, value: u64) -> Event {
    Event::new("opened", &value).unwrap().module("email_event").unwrap().canvas(of).only_to_queues()
}

/// Registers the queue by plain SQL, as the statement of a registration does.
pub(crate) async fn register(stage: &Stage, weight: i32, in_flight_max: Option<i32>) {
    let queue = "insert into wakeq.queues (name, weight, in_flight_max, created_by, updated_by)
                 values ($1, $2, $3, 'test', 'test')";
    sqlx::query(queue).bind(QUEUE).bind(weight).bind(in_flight_max).execute(&stage.pool).await.unwrap();
    let pattern = "insert into wakeq.queue_patterns (queue, pattern) values ($1, '.*:email_event:.*')";
    sqlx::query(pattern).bind(QUEUE).execute(&stage.pool).await.unwrap();
    stage.pool.run("update wakeq.queue_registry set version = version + 1").await;
}

/// What was run, in order: canvas and value.
#[derive(Clone, Debug, Default)]
struct Log(Arc<Mutex<Vec<(u128, u64)>>>);

impl Log {
    fn handler(&self) -> Handlers {
        let log = self.clone();
        let (handler, _) = answering(move |event| {
            log.0.lock().unwrap().push((event.address.scope.canvas.0.as_u128(), event.value()?));
            Ok(())
        });
        Handlers::new().on_queue(QUEUE, handler)
    }

    fn ran(&self) -> Vec<(u128, u64)> {
        self.0.lock().unwrap().clone()
    }
}

/// Events that match a registered queue are copied, and its workers run them, each copy once; an
/// event without a handler of its own leaves nothing else.
// Shows: DRV-21
#[tokio::test]
async fn workers_run_what_is_copied_into_their_queue() {
    let (stage, notifier) = Stage::memory_with(patient()).await;
    register(&stage, 1, None).await;
    let log = Log::default();
    let workers: Vec<_> = (0..3).map(|_| stage.worker(log.handler())).collect();
    let events = (0..200).map(|value| email(canvas(u128::from(value % 7)), value)).collect();
    let emitted = stage.queue.emit_all(events).await.unwrap();
    assert!(emitted.iter().all(|emitted| emitted.copies == 1 && emitted.notified));
    // Once more, in reverse.
    let mut again = notifier.published();
    again.reverse();
    notifier.publish(&again).await.unwrap();
    stage.until_empty().await;
    let mut ran: Vec<u64> = log.ran().into_iter().map(|(_, value)| value).collect();
    ran.sort_unstable();
    assert_eq!(ran, (0..200).collect::<Vec<_>>());
    stop_all(workers).await;
}

/// Events that others emit later overtake the waiting ones of a busy canvas, although its
/// notifications come first.
// Shows: DRV-23
#[tokio::test]
async fn a_busy_canvas_delays_the_others_by_a_round() {
    let (stage, _) = Stage::memory().await;
    register(&stage, 1, None).await;
    stage.queue.emit_all((0..500).map(|value| email(canvas(1), value)).collect()).await.unwrap();
    for number in 2..=20 {
        stage.queue.emit_all((0..5).map(|value| email(canvas(number), value)).collect()).await.unwrap();
    }
    let log = Log::default();
    let worker = stage.worker_with(log.handler(), capacity(4));
    stage.until_empty().await;
    let ran = log.ran();
    assert_eq!(ran.len(), 500 + 19 * 5);
    let last_quiet = ran.iter().rposition(|(canvas, _)| *canvas != 1).unwrap();
    assert!(last_quiet < 5 * 20 + 4, "the last event of a quiet canvas was number {last_quiet}");
    for number in 1..=20 {
        let values: Vec<u64> =
            ran.iter().filter(|(canvas, _)| *canvas == number).map(|(_, value)| *value).collect();
        assert!(values.len() >= 5);
    }
    worker.stop().await;
}

/// A retry comes back by itself, and delays no other copy meanwhile.
// Shows: DRV-21
#[tokio::test]
async fn a_copy_that_fails_is_tried_again_in_its_queue() {
    let (stage, _) = Stage::memory().await;
    register(&stage, 1, None).await;
    let attempts = Arc::new(Mutex::new(BTreeMap::<u64, u32>::new()));
    let counted = Arc::clone(&attempts);
    let retry = RetryPolicy { retries: 2, delay: std::time::Duration::ZERO, ..RetryPolicy::default() };
    let (handler, _) = answering(move |event| {
        let value: u64 = event.value()?;
        *counted.lock().unwrap().entry(value).or_default() += 1;
        match (value, event.attempt) {
            (7, _) | (8, 1) => Err(HandlerError::operational("not now")),
            _ => Ok(()),
        }
    });
    let worker = stage.worker(Handlers::new().on_queue(Route::new(QUEUE).retry(retry), handler));
    stage.queue.emit_all((0..20).map(|value| email(canvas(1), value)).collect()).await.unwrap();
    stage.until_empty().await;
    let attempts = attempts.lock().unwrap().clone();
    let more: BTreeMap<_, _> = attempts.iter().filter(|(_, count)| **count > 1).collect();
    assert_eq!(more, BTreeMap::from([(&7, &3), (&8, &2)]));
    assert_eq!(attempts.len(), 20);
    let dead: Vec<(Option<String>, String)> =
        stage.pool.table("select queue::text, cause::text from wakeq.dead_events").await;
    assert_eq!(dead, [(Some(QUEUE.to_owned()), "retries".to_owned())]);
    worker.stop().await;
}

/// Up to the limit run at a time, and every end of a run lets the next one start.
#[tokio::test]
async fn a_facet_with_a_limit_goes_on_by_itself() {
    let (stage, _) = Stage::memory().await;
    register(&stage, 1, Some(2)).await;
    let (handler, mut door) = Door::new();
    let worker = stage.worker(Handlers::new().on_queue(QUEUE, handler));
    let emitted = stage.queue.emit_all((0..10).map(|value| email(canvas(1), value)).collect()).await.unwrap();
    assert_eq!(emitted.len(), 10);
    let firsts = door.arrived.take(2).await;
    let firsts: BTreeSet<u64> = firsts.iter().map(|event| event.value().unwrap()).collect();
    assert_eq!(firsts, BTreeSet::from([0, 1]));
    for next in 2..10 {
        assert!(door.arrived.rest().is_empty(), "a third one runs");
        door.open(1);
        assert_eq!(door.arrived.next().await.value::<u64>().unwrap(), next);
    }
    door.open(2);
    stage.until_empty().await;
    worker.stop().await;
}

/// A copy for which no worker here has a handler waits, and its explanation says what for.
#[tokio::test]
async fn a_worker_without_the_queues_handler_leaves_its_copies_alone() {
    let (stage, _) = Stage::memory().await;
    register(&stage, 1, None).await;
    let mut worker = stage.worker(Handlers::new().on("other", |_: Execution| async { Ok(()) }));
    stage.queue.emit(email(canvas(1), 1)).await.unwrap();
    let copy = EventId(stage.pool.value("select id from wakeq.events_v2").await);
    worker.until(copy, Outcome::Deferred).await;
    let live = stage.live(canvas(1), copy).await;
    assert_eq!((live.state, live.copy_of.unwrap().queue.as_str()), (CheckResult::Ready, QUEUE));
    worker.stop().await;
}

/// A handler and two queues consume the events of objects side by side, on three workers: of each
/// object of each canvas they see the same, in the order of the emits, although one of them is much
/// later.
// Shows: ORD-02
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn consumers_beside_one_another_see_the_same_order() {
    type Seen = BTreeMap<(CanvasId, String), Vec<(i64, u64)>>;
    let (stage, _) = Stage::memory().await;
    register(&stage, 1, None).await;
    let audit = NewQueue { patterns: vec![".*:email_event:.*".parse().unwrap()], ..NewQueue::default() };
    stage.admin.put_queue(&"audit".parse().unwrap(), &audit, &Actor::admin("ada")).await.unwrap();
    let seen: [Arc<Mutex<Seen>>; 3] = Default::default();
    let gate = Arc::new(Semaphore::new(0));
    let consumer = |number: usize| {
        let (seen, gate) = (Arc::clone(&seen[number]), Arc::clone(&gate));
        move |event: Execution| {
            let (seen, gate) = (Arc::clone(&seen), Arc::clone(&gate));
            async move {
                if number == 2 {
                    // Until it is closed.
                    assert!(gate.acquire().await.is_err());
                }
                let Place { object, link } = event.place.clone().expect("it is on an object");
                let lane = (event.address.scope.canvas, object.to_string());
                seen.lock().unwrap().entry(lane).or_default().push((link.id, event.value()?));
                Ok(())
            }
        }
    };
    let handlers = || {
        let opened = Route::new("opened").module("email_event");
        Handlers::new().on(opened, consumer(0)).on_queue(QUEUE, consumer(1)).on_queue("audit", consumer(2))
    };
    let workers: Vec<_> = (0..3).map(|_| stage.worker(handlers())).collect();
    let mut expected = Seen::new();
    for value in 0..120 {
        let (of, object) = (canvas(u128::from(value % 2)), format!("work:{}", value % 5));
        let event = Event::new("opened", &value).unwrap().module("email_event").unwrap().canvas(of);
        let link = stage.queue.emit(event.on(&object).unwrap()).await.unwrap().link.unwrap();
        expected.entry((of, object)).or_default().push((link.id, value));
    }
    wait_while!(seen[..2].iter().any(|seen| *seen.lock().unwrap() != expected), "nobody waits for the third");
    assert!(seen[2].lock().unwrap().is_empty());
    gate.close();
    stage.until_empty().await;
    for seen in &seen {
        assert_eq!(*seen.lock().unwrap(), expected);
    }
    stop_all(workers).await;
}
