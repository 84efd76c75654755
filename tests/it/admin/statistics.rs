//! Statistics: what happened to events, counted by each process, written within a minute, and read
//! for charts.

use std::sync::Arc;
use std::time::Duration;

use wakeq::control::{EventCounts, StatisticsRange};
use wakeq::machine::Outcome;
use wakeq::testing::MemoryNotifier;
use wakeq::{
    Admin, CanvasId, Event, EventId, HandlerError, HandlerScope, Handlers, Queue, QueueConfig, RetryPolicy,
    Route, Store, StoreConfig, WorkerConfig,
};

use crate::crons::ticks::{FakeClockDatabase, new, put};
use crate::support::handlers::answering;
use crate::support::{OTHER, RunningWorker, Stage, TIMEOUT, connect, fit, once, patient, scope};

/// What happened in the last day, of a handler or of the canvas.
async fn counts(admin: &Admin, canvas: CanvasId, name: Option<&str>) -> EventCounts {
    let handler = name.map(|name| HandlerScope::worker(canvas, name).unwrap());
    let day = admin.statistics(canvas, handler.as_ref(), &StatisticsRange::default()).await.unwrap();
    let mut sum = EventCounts::default();
    day.points.iter().for_each(|point| sum.add(&point.counts));
    sum
}

/// Emitted, completed, failed, retried and dead; and how many attempts waited, and ran.
fn numbers(counts: &EventCounts) -> [u64; 7] {
    let EventCounts { emitted, completed, failed, retried, dead, wait, run, .. } = counts;
    [*emitted, *completed, *failed, *retried, *dead, wait.count(), run.count()]
}

fn fails() -> HandlerError {
    HandlerError::operational("it does not work")
}

/// Of each handler, and of each canvas: another one has a handler of the same name.
#[tokio::test]
async fn each_end_of_an_event_is_counted_once() {
    let (stage, _) = Stage::memory_with(patient()).await;
    let at_once = RetryPolicy { retries: 1, delay: Duration::ZERO, ..RetryPolicy::default() };
    let (fine, _fine) = answering(|_| Ok(()));
    let (broken, _broken) = answering(|_| Err(fails()));
    let (flaky, _flaky) = answering(|event| if event.attempt == 1 { Err(fails()) } else { Ok(()) });
    let (wrong, _wrong) = answering(|_| Err(HandlerError::value("no such address")));
    let handlers = Handlers::new()
        .on("fine", fine)
        .on(once("broken"), broken)
        .on(Route::new("flaky").retry(at_once), flaky)
        .on("wrong", wrong);
    let mut worker = stage.worker(handlers);
    for (name, count) in [("fine", 3), ("broken", 2), ("flaky", 1), ("wrong", 1)] {
        stage.emit_many(name, count).await;
    }
    for name in ["fine", "flaky"] {
        stage.queue.emit(Event::new(name, &1).unwrap().canvas(OTHER)).await.unwrap();
    }
    worker.until_count(9, Outcome::Deleted).await;
    stage.store.write_statistics().await;
    for (canvas, name, expected) in [
        (CanvasId::DEFAULT, Some("fine"), [3, 3, 0, 0, 0, 3, 3]),
        (CanvasId::DEFAULT, Some("broken"), [2, 0, 2, 0, 2, 2, 2]),
        (CanvasId::DEFAULT, Some("flaky"), [1, 1, 1, 1, 0, 2, 2]),
        (CanvasId::DEFAULT, Some("wrong"), [1, 1, 0, 0, 0, 1, 1]),
        (CanvasId::DEFAULT, Some("unknown"), [0; 7]),
        (CanvasId::DEFAULT, None, [7, 5, 3, 1, 2, 8, 8]),
        (OTHER, Some("fine"), [1, 1, 0, 0, 0, 1, 1]),
        (OTHER, Some("broken"), [0; 7]),
        (OTHER, None, [2, 2, 1, 1, 0, 3, 3]),
    ] {
        let found = counts(&stage.admin, canvas, name).await;
        assert_eq!(numbers(&found), expected, "{name:?} of {canvas}");
        assert!(found.wait.sum() < TIMEOUT && found.run.sum() < TIMEOUT, "{found:?}");
    }
    let refused = stage.admin.statistics(OTHER, Some(&scope("fine")), &StatisticsRange::default()).await;
    assert_eq!(refused.unwrap_err().to_string(), "the handler belongs to another canvas");
    worker.stop().await;
}

/// A worker that ends writes what it has counted.
#[tokio::test]
async fn two_processes_add_up() {
    let (stage, _) = Stage::memory_with(patient()).await;
    let start = async || {
        let store = connect(stage.database.url(), patient()).await;
        let (handler, _seen) = answering(|_| Ok(()));
        let handlers = Handlers::new().on("greet", handler);
        RunningWorker::start(store, stage.notifier.clone(), handlers, WorkerConfig::default())
    };
    for expected in 1..=2 {
        let mut worker = start().await;
        let id = stage.emit("greet").await;
        worker.until(id, Outcome::Deleted).await;
        worker.stop().await;
        stage.store.write_statistics().await;
        let found = counts(&stage.admin, CanvasId::DEFAULT, Some("greet")).await;
        assert_eq!(numbers(&found), [expected, expected, 0, 0, 0, expected, expected]);
    }
}

/// An event waits from the moment at which it is due until an attempt begins. What plain SQL emits
/// counts from there on.
#[tokio::test]
async fn an_event_of_plain_sql_counts_once_it_is_claimed() {
    let (stage, _) = Stage::memory_with(patient()).await;
    stage.execute("select wakeq.emit('greet', '1')").await;
    stage.execute("update wakeq.events_v2 set delay_until = now() - interval '1 hour'").await;
    let (mut worker, mut seen) = stage.recording("greet");
    stage.admin.wake(true).await.unwrap();
    let id = seen.next().await.id;
    worker.until(id, Outcome::Deleted).await;
    stage.store.write_statistics().await;
    let found = counts(&stage.admin, CanvasId::DEFAULT, Some("greet")).await;
    assert_eq!(numbers(&found), [0, 1, 0, 0, 0, 1, 1]);
    let hour = Duration::from_secs(3600);
    assert!((hour..hour + TIMEOUT).contains(&found.wait.sum()), "{found:?}");
    let median = found.wait.quantile(0.5).unwrap();
    assert!((hour / 2..2 * hour).contains(&median), "{median:?}");
    worker.stop().await;
}

/// A duplicate was not emitted, nor is what was rolled back, or what only queues get. In a
/// transaction of the caller's it counts once the caller says that it was committed.
#[tokio::test]
async fn duplicates_and_rolled_back_events_are_not_counted_as_emitted() {
    let (stage, _) = Stage::memory().await;
    let greet = || Event::new("greet", &1).unwrap();
    let id = EventId::new();
    for _ in 0..2 {
        stage.queue.emit(greet().id(id)).await.unwrap();
    }
    stage.queue.emit(greet().only_to_queues()).await.unwrap();
    let emit = async || {
        let mut transaction = stage.pool.begin().await.unwrap();
        let receipt = stage.queue.emit_in(&mut transaction, greet()).await.unwrap();
        (transaction, receipt)
    };
    let (committed, receipt) = emit().await;
    committed.commit().await.unwrap();
    receipt.notify().await;
    let (rolled_back, receipt) = emit().await;
    rolled_back.rollback().await.unwrap();
    drop(receipt);
    stage.store.write_statistics().await;
    let found = counts(&stage.admin, CanvasId::DEFAULT, Some("greet")).await;
    assert_eq!(found.emitted, 2, "the first of the two, and what was committed");
}

/// A process counts for the minute in which half a minute ago was. The clock is the database's, and
/// another canvas's point is its own.
#[tokio::test]
async fn a_chart_has_a_point_for_each_step() {
    let clockwork = FakeClockDatabase::at("2030-05-20T12:00:20Z").await;
    let store = Store::connect(&clockwork.url, fit(StoreConfig::default())).await.unwrap();
    let notifier = Arc::new(MemoryNotifier::new());
    let queue = Queue::new(store.clone(), notifier.clone(), QueueConfig::default());
    let admin = Admin::new(store.clone(), notifier);
    // In the minutes that begin at 11:59, 12:00, 12:00 and 12:02.
    for (after_s, count) in [(0, 1), (20, 2), (40, 4), (100, 8)] {
        clockwork.passes(after_s).await;
        for number in 0..count {
            queue.emit(Event::new("greet", &number).unwrap()).await.unwrap();
            queue.emit(Event::new("greet", &number).unwrap().canvas(OTHER)).await.unwrap();
        }
        queue.emit(Event::new("greet", &0).unwrap().canvas(OTHER)).await.unwrap();
        store.write_statistics().await;
    }
    let range = StatisticsRange {
        from: Some("2030-05-20T11:58:30Z".parse().unwrap()),
        to: Some("2030-05-20T12:03:00Z".parse().unwrap()),
        step: None,
    };
    for (canvas, expected) in [(CanvasId::DEFAULT, [0, 1, 6, 0, 8]), (OTHER, [0, 2, 8, 0, 9])] {
        let handler = HandlerScope::worker(canvas, "greet").unwrap();
        let chart = admin.statistics(canvas, Some(&handler), &range).await.unwrap();
        assert_eq!(chart.step, Duration::from_secs(60));
        let points =
            chart.points.iter().map(|point| (point.at.format("%H:%M:%S").to_string(), &point.counts));
        let points: Vec<_> = points.map(|(at, counts)| (at, counts.emitted)).collect();
        let expected: Vec<_> = ["11:58:00", "11:59:00", "12:00:00", "12:01:00", "12:02:00"]
            .map(String::from)
            .into_iter()
            .zip(expected)
            .collect();
        assert_eq!(points, expected);
        let hours = StatisticsRange { step: Some(Duration::from_secs(3600)), ..range };
        let chart = admin.statistics(canvas, None, &hours).await.unwrap();
        let hours: Vec<_> = chart.points.iter().map(|point| point.counts.emitted).collect();
        assert_eq!(hours, if canvas == OTHER { [2, 17] } else { [1, 14] });
        assert_eq!(chart.whole().emitted, hours.iter().sum::<u64>());
    }
}

/// The ticks of a cron are emitted, whichever process has it tick.
#[tokio::test]
async fn ticks_are_counted() {
    let clockwork = FakeClockDatabase::at("2027-03-01T07:59:00Z").await;
    let store = Store::connect(&clockwork.url, fit(StoreConfig::default())).await.unwrap();
    let admin = Admin::new(store.clone(), Arc::new(MemoryNotifier::new()));
    put(&admin, &new("report", "*/5 * * * *", "UTC")).await;
    clockwork.passes(310).await;
    let ticks = admin.wake(false).await.unwrap().ticks;
    assert!(ticks > 0, "nothing has ticked");
    let emitted = clockwork.ticks().await.len() as u64;
    store.write_statistics().await;
    let report = HandlerScope {
        canvas: CanvasId::DEFAULT,
        module: "CRON".parse().unwrap(),
        name: "report".parse().unwrap(),
    };
    for handler in [Some(&report), None] {
        let chart = admin.statistics(CanvasId::DEFAULT, handler, &StatisticsRange::default()).await.unwrap();
        let sum: u64 = chart.points.iter().map(|point| point.counts.emitted).sum();
        assert_eq!(sum, emitted);
    }
}
