//! Batch handlers: which events a call has, and what becomes of each of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use wakeq::control::DeadFilter;
use wakeq::machine::Outcome;
use wakeq::testing::TestKit;
use wakeq::workers::{Batch, Completion, Next};
use wakeq::{
    Actor, CanvasId, Event, EventId, Execution, HandlerError, HandlerResult, HandlerScope, Handlers,
    RetryPolicy, Route, Stop, WorkerConfig,
};

use crate::support::{OTHER, Stage, once, patient, quick, until, wait_while};

/// Longer than a test with this many events in a call may take: these do not wait for others.
const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(200);

/// The calls of a batch handler, in order.
#[derive(Clone, Default)]
struct Calls(Arc<Mutex<Vec<Vec<Execution>>>>);

impl Calls {
    fn add(&self, events: &[Execution]) {
        self.0.lock().unwrap().push(events.to_vec());
    }

    fn all(&self) -> Vec<Vec<Execution>> {
        self.0.lock().unwrap().clone()
    }

    /// The number of events of each call.
    fn sizes(&self) -> Vec<usize> {
        self.all().iter().map(Vec::len).collect()
    }

    /// A handler that completes.
    fn handlers(&self, route: impl Into<Route>, batch: Batch) -> Handlers {
        let handlers = Handlers::new().state(self.clone());
        let handlers = handlers.on_batch(route, batch, async |calls: Calls, events: Vec<Execution>| {
            calls.add(&events);
            Ok(())
        });
        handlers.into()
    }
}

fn batch(max: usize, wait: Duration) -> Batch {
    Batch { max, wait, ..Batch::default() }
}

/// This many events for each of two canvases, in turns.
fn events(each: i64) -> Vec<Event> {
    let of_both = |number: i64| {
        [CanvasId::DEFAULT, OTHER].map(|canvas| Event::new("row", &number).unwrap().canvas(canvas))
    };
    (0..each).flat_map(of_both).collect()
}

#[tokio::test]
async fn a_call_has_up_to_as_many_events_as_the_batch_may_have() {
    let (stage, notifier) = Stage::memory_with(patient()).await;
    let calls = Calls::default();
    let mut worker = stage.worker(calls.handlers("row", batch(5, LONG)));
    let ids = stage.emit_many("row", 20).await;
    worker.until_count(20, Outcome::Deleted).await;
    assert_eq!(calls.sizes(), [5; 4]);
    let seen: BTreeSet<EventId> = calls.all().concat().iter().map(|event| event.id).collect();
    assert_eq!(seen, ids.into_iter().collect());
    notifier.drained().await;
    assert_eq!(stage.rows().await, 0);
    worker.stop().await;
}

#[tokio::test]
async fn a_call_begins_once_its_first_event_has_waited() {
    let (stage, _) = Stage::memory_with(patient()).await;
    let calls = Calls::default();
    let mut worker = stage.worker(calls.handlers("row", batch(100, SHORT)));
    stage.emit_many("row", 3).await;
    worker.until_count(3, Outcome::Deleted).await;
    let first = calls.all().remove(0).remove(0);
    assert_eq!((first.attempt, first.losses), (1, 0));
    assert_eq!(calls.sizes().iter().sum::<usize>(), 3);
    worker.stop().await;
}

#[tokio::test]
async fn two_canvases_are_never_in_one_call() {
    let (stage, _) = Stage::memory_with(patient()).await;
    let calls = Calls::default();
    let mut worker = stage.worker(calls.handlers("row", batch(4, LONG)));
    stage.queue.emit_all(events(8)).await.unwrap();
    worker.until_count(16, Outcome::Deleted).await;
    assert_eq!(calls.sizes(), [4; 4]);
    for call in calls.all() {
        let canvases: BTreeSet<_> = call.iter().map(|event| event.address.scope.canvas).collect();
        assert_eq!(canvases.len(), 1, "{call:?}");
    }
    worker.stop().await;
}

#[tokio::test]
async fn values_have_a_limit_together() {
    let (stage, _) = Stage::memory_with(patient()).await;
    let calls = Calls::default();
    let limit = 1024;
    let small = Batch { bytes_max: limit, ..batch(100, SHORT) };
    let mut worker = stage.worker(calls.handlers("row", small));
    let value = |number: usize| "x".repeat(if number == 7 { 3 * limit } else { limit / 3 });
    let all = (0..20).map(|number| Event::new("row", &value(number)).unwrap()).collect();
    stage.queue.emit_all(all).await.unwrap();
    worker.until_count(20, Outcome::Deleted).await;
    for call in calls.all() {
        let bytes: usize = call.iter().map(|event| event.json.len()).sum();
        assert!(bytes <= limit || call.len() == 1, "{bytes} bytes of {} events", call.len());
    }
    worker.stop().await;
}

/// Only what failed is tried again, and an error value completes.
#[tokio::test]
async fn each_event_of_a_call_has_its_own_result() {
    let (stage, notifier) = Stage::memory_with(patient()).await;
    let calls = Calls::default();
    let retry = RetryPolicy { delay: Duration::ZERO, ..RetryPolicy::default() };
    let handlers = Handlers::new().state(calls.clone()).on_batch(
        Route::new("row").retry(retry),
        batch(6, SHORT),
        async |calls: Calls, events: Vec<Execution>| {
            calls.add(&events);
            let each = |event: &Execution| -> HandlerResult {
                match (event.value::<i64>()? % 3, event.attempt) {
                    (0, 1) => Err(HandlerError::operational("once more")),
                    (1, _) => Err(HandlerError::value("as it is")),
                    _ => Ok(()),
                }
            };
            Ok(events.iter().map(each).collect::<Vec<_>>())
        },
    );
    let mut worker = stage.worker(handlers.into());
    stage.queue.emit_all(events(6)).await.unwrap();
    let ended = worker.until_count(12, Outcome::Deleted).await;
    let values = ended.iter().filter(|report| report.error.as_deref() == Some("as it is")).count();
    assert_eq!((values, worker.counters.outcome(Outcome::RetryAllowed)), (4, 4));
    let mut attempts: BTreeMap<EventId, (i64, usize)> = BTreeMap::new();
    for event in calls.all().concat() {
        attempts.entry(event.id).or_insert((event.value().unwrap(), 0)).1 += 1;
    }
    assert_eq!(attempts.len(), 12);
    for (number, count) in attempts.values() {
        assert_eq!(*count, if number % 3 == 0 { 2 } else { 1 }, "{number}");
    }
    notifier.drained().await;
    assert_eq!(stage.rows().await, 0);
    worker.stop().await;
}

#[tokio::test]
async fn an_error_or_the_wrong_number_of_results_fails_all() {
    let (stage, _) = Stage::memory_with(patient()).await;
    let handlers = Handlers::new()
        .on_batch(once("fails"), batch(3, LONG), async |_events: Vec<Execution>| {
            Err::<(), _>(HandlerError::operational("no connection"))
        })
        .on_batch(once("short"), batch(3, LONG), async |events: Vec<Execution>| {
            Ok(vec![HandlerResult::Ok(()); events.len() - 1])
        });
    let mut worker = stage.worker(handlers);
    for (name, words) in [
        ("fails", "no connection"),
        ("short", "the batch handler returned 2 results for 3 events: it has to return one for each"),
    ] {
        stage.emit_many(name, 3).await;
        for report in worker.until_count(3, Outcome::Deleted).await {
            assert!(report.trail.contains(&Outcome::RetryTooMany), "{:?}", report.trail);
            let error = report.error.unwrap();
            assert!(error.starts_with(words), "{error}");
        }
    }
    let dead = stage.admin.dead(&DeadFilter::default(), None, 10).await.unwrap().items;
    assert_eq!(dead.len(), 6);
    worker.stop().await;
}

/// Before the first await, too; and layers see it as they see any panic.
#[tokio::test]
async fn a_panic_fails_all_events_of_its_call() {
    let (stage, _) = Stage::memory_with(patient()).await;
    let passed = Arc::new(Mutex::new(0));
    let counted = Arc::clone(&passed);
    let handlers = Handlers::new()
        .layer(move |execution: Execution, next: Next| -> BoxFuture<'static, HandlerResult<Completion>> {
            let counted = Arc::clone(&counted);
            Box::pin(async move {
                let result = next.run(execution).await;
                *counted.lock().unwrap() += 1;
                result
            })
        })
        .on_batch(once("at-once"), batch(2, LONG), |_events| -> std::future::Ready<HandlerResult> {
            panic!("at once")
        })
        .on_batch(once("later"), batch(2, LONG), async |events: Vec<Execution>| -> HandlerResult {
            tokio::task::yield_now().await;
            panic!("with {} events", events.len())
        });
    let mut worker = stage.worker(handlers);
    for (name, words) in [("at-once", "panicked: at once"), ("later", "panicked: with 2 events")] {
        stage.emit_many(name, 2).await;
        for report in worker.until_count(2, Outcome::Deleted).await {
            assert_eq!(report.error.as_deref(), Some(words));
        }
    }
    assert_eq!(*passed.lock().unwrap(), 0, "no layer went on");
    worker.stop().await;
}

/// A call that no event waits for any longer is dropped.
#[tokio::test]
async fn a_call_ends_when_the_time_of_all_its_events_is_over() {
    let (stage, _) = Stage::memory_with(patient()).await;
    let dropped = CancellationToken::new();
    let is_dropped = dropped.clone();
    let limit = Duration::from_secs(1);
    let handlers = Handlers::new().state(is_dropped).on_batch(
        once("row").timeout(limit),
        batch(2, SHORT),
        async |is_dropped: CancellationToken, _events: Vec<Execution>| -> HandlerResult {
            let _guard = is_dropped.drop_guard();
            std::future::pending().await
        },
    );
    let mut worker = stage.worker(handlers.into());
    stage.emit_many("row", 2).await;
    for report in worker.until_count(2, Outcome::Deleted).await {
        assert_eq!(report.error.as_deref(), Some("timed out after 1s"));
        assert!(report.took.unwrap() >= limit);
    }
    until("the call is dropped", async || dropped.is_cancelled().then_some(())).await;
    worker.stop().await;
}

#[tokio::test]
async fn an_event_that_loses_its_lease_leaves_its_batch() {
    let (stage, _) = Stage::memory_with(quick()).await;
    let (calls, door) = (Calls::default(), Arc::new(Notify::new()));
    let handlers = Handlers::new().state((calls.clone(), Arc::clone(&door))).on_batch(
        "row",
        batch(3, LONG),
        async |(calls, door): (Calls, Arc<Notify>), events: Vec<Execution>| {
            calls.add(&events);
            if events.len() == 3 {
                door.notified().await;
            }
            Ok(())
        },
    );
    let mut worker = stage.worker(handlers.into());
    let ids = stage.emit_many("row", 3).await;
    wait_while!(calls.sizes().is_empty(), "the call has begun");
    // As if another worker had taken it over, and will have it for long.
    let take =
        "update wakeq.events_v2 set claims = claims + 1, locked_at = now() + interval '1 hour' where id = $1";
    sqlx::query(take).bind(ids[0].0).execute(&stage.pool).await.unwrap();
    worker.until(ids[0], Outcome::LeaseLost).await;
    door.notify_one();
    let ended: BTreeSet<_> = worker
        .until_count(2, Outcome::Deleted)
        .await
        .into_iter()
        .map(|report| report.notification.id)
        .collect();
    assert_eq!(ended, ids[1..].iter().copied().collect());
    assert_eq!((calls.sizes(), stage.rows().await), (vec![3], 1));
    worker.stop().await;
}

#[tokio::test]
async fn events_of_one_object_are_never_in_one_call() {
    let (stage, _) = Stage::memory_with(patient()).await;
    let calls = Calls::default();
    let mut worker = stage.worker(calls.handlers("row", batch(100, Duration::from_millis(20))));
    let on_objects = events(9).into_iter().enumerate();
    let on_objects = on_objects.map(|(index, event)| event.on(&format!("object-{}", index % 3)).unwrap());
    stage.queue.emit_all(on_objects.collect()).await.unwrap();
    worker.until_count(18, Outcome::HandedOver).await;
    for call in calls.all() {
        let objects: BTreeSet<_> = call.iter().map(|event| event.place.clone().unwrap().object).collect();
        assert_eq!(objects.len(), call.len(), "{call:?}");
    }
    assert_eq!(calls.sizes().iter().sum::<usize>(), 18);
    worker.stop().await;
}

/// Nothing could join a batch whose events take all the places of the worker, or all that the route
/// lets run.
#[tokio::test]
async fn a_call_has_no_more_events_than_run_at_once() {
    let limited = Route::new("row").concurrency(3);
    for (route, capacity, expected) in [(Route::new("row"), 4, vec![4; 3]), (limited, 64, vec![3; 4])] {
        let (stage, _) = Stage::memory_with(patient()).await;
        let calls = Calls::default();
        let config = WorkerConfig { capacity, ..WorkerConfig::default() };
        let mut worker = stage.worker_with(calls.handlers(route, batch(100, LONG)), config);
        stage.emit_many("row", 12).await;
        worker.until_count(12, Outcome::Deleted).await;
        assert_eq!(calls.sizes(), expected);
        worker.stop().await;
    }
}

#[tokio::test]
async fn a_batch_that_gathers_begins_when_the_worker_stops() {
    let (stage, _) = Stage::memory_with(patient()).await;
    let calls = Calls::default();
    let worker = stage.worker(calls.handlers("row", batch(100, LONG)));
    stage.emit_many("row", 3).await;
    let claimed = "select count(*) from wakeq.events_v2 where locked_at is not null";
    wait_while!(stage.count(claimed).await < 3, "all are claimed");
    worker.stop().await;
    assert_eq!((calls.sizes().iter().sum::<usize>(), stage.rows().await), (3, 0));
}

/// An event that may end its process again must not make the others of its batch lose theirs.
#[tokio::test]
async fn a_suspect_is_in_a_call_of_its_own() {
    let (stage, _) = Stage::memory_with(patient()).await;
    let ids = stage.emit_many("row", 3).await;
    let suspect = "update wakeq.events_v2 set claims = 2, losses = 2 where id = $1";
    sqlx::query(suspect).bind(ids[1].0).execute(&stage.pool).await.unwrap();
    let calls = Calls::default();
    let mut worker = stage.worker(calls.handlers("row", batch(2, LONG)));
    worker.until_count(3, Outcome::Deleted).await;
    let alone = calls.all().into_iter().find(|call| call.len() == 1).expect("a call with one event");
    assert_eq!((alone[0].id, alone[0].losses), (ids[1], 2));
    assert_eq!(calls.all().len(), 2);
    worker.stop().await;
}

/// The kit runs one event at a time, so nothing is to be waited for.
#[tokio::test(start_paused = true)]
async fn in_the_test_kit_a_batch_begins_at_once() {
    let calls = Calls::default();
    let mut kit = TestKit::new();
    kit.handlers(calls.handlers("row", batch(100, LONG))).unwrap();
    // On the paused clock.
    let begun = Instant::now();
    for event in events(2) {
        kit.emit(event).await.unwrap();
    }
    kit.drain().await.unwrap().assert_all_fine(4);
    assert!(begun.elapsed() < SHORT, "{:?}", begun.elapsed());
    assert_eq!(calls.sizes(), [1; 4]);
}

/// A rule that was made while events gathered holds them: their call does not begin. Those of
/// another canvas are called.
#[tokio::test]
async fn a_batch_looks_at_the_rules_before_it_begins() {
    let (stage, _) = Stage::memory_with(patient()).await;
    let calls = Calls::default();
    let worker = stage.worker(calls.handlers("row", batch(100, LONG)));
    stage.queue.emit_all(events(3)).await.unwrap();
    let claimed = "select count(*) from wakeq.events_v2 where locked_at is not null";
    wait_while!(stage.count(claimed).await < 6, "all are claimed");
    let (scope, ada) = (HandlerScope::worker(CanvasId::DEFAULT, "row").unwrap(), Actor::user("ada"));
    stage.admin.pause(&scope, &ada, &Stop::default()).await.unwrap();
    // They begin now.
    worker.stop().await;
    assert_eq!((calls.sizes(), stage.rows().await), (vec![3], 3));
    let called: BTreeSet<_> = calls.all().concat().iter().map(|event| event.address.scope.canvas).collect();
    assert_eq!(called, BTreeSet::from([OTHER]));
    let unharmed =
        "select count(*) from wakeq.events_v2 where locked_at is null and retries = 0 and losses = 0";
    assert_eq!(stage.count(unharmed).await, 3);
    let mut worker = stage.worker(calls.handlers("row", batch(3, LONG)));
    worker.until_count(3, Outcome::RulePaused).await;
    stage.admin.unpause(&scope, &ada).await.unwrap();
    worker.until_count(3, Outcome::Deleted).await;
    assert_eq!(calls.sizes(), [3, 3]);
    worker.stop().await;
}
