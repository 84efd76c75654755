//! What the kit offers, in memory and on Postgres.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use tokio::sync::Notify;
use wakeq::control::Explanation;
use wakeq::events::{Due, IdempotencyKey, Idempotent};
use wakeq::machine::{CheckResult, Outcome};
use wakeq::testing::{TestKit, assert_dead, assert_emitted};
use wakeq::{
    Actor, CanvasId, Event, EventId, Execution, HandlerError, HandlerResult, Handlers, Queue, RetryPolicy,
    Route, Stop,
};

use super::on_postgres;
use crate::support::{database, once, scope};

const TEN_MINUTES: Duration = Duration::from_secs(600);

fn patient() -> RetryPolicy {
    RetryPolicy { retries: 3, delay: TEN_MINUTES, ..RetryPolicy::default() }
}

/// Fails three times, then emits for `done`.
async fn stubborn(event: Execution, queue: Queue) -> HandlerResult {
    if event.attempt <= 3 {
        return Err(HandlerError::operational(format!("no, for the {}th time", event.attempt)));
    }
    queue.emit(Event::new("done", &event.attempt)?).await?;
    Ok(())
}

async fn three_retries(mut kit: TestKit) {
    let (route, queue) = (Route::new("stubborn").retry(patient()), kit.queue());
    kit.handlers(Handlers::new().on(route, move |event| stubborn(event, queue.clone()))).unwrap();
    let id = kit.emit(Event::new("stubborn", "Ada").unwrap()).await.unwrap().id;
    for attempt in 1..=3 {
        let drained = kit.drain().await.unwrap();
        assert_eq!((drained.attempts(), drained.retried, drained.waiting), (1, 1, 1), "attempt {attempt}");
        assert_eq!(kit.drain().await.unwrap().attempts(), 0, "nothing runs before its time");
        kit.advance(TEN_MINUTES - Duration::from_secs(5)).await.unwrap();
        assert_eq!(kit.drain().await.unwrap().attempts(), 0, "nor shortly before");
        kit.advance(Duration::from_secs(5)).await.unwrap();
    }
    assert_emitted!(kit, "done", count = 0);
    let drained = kit.drain().await.unwrap();
    assert_eq!((drained.completed, drained.unknown, drained.waiting), (1, 1, 1));
    let report = drained.of(id).next().unwrap();
    assert_eq!((report.attempt, report.error.as_deref()), (Some(4), None));
    assert_emitted!(kit, "done", count = 1, value = 4);
    assert_dead!(kit, "stubborn", count = 0);
}

/// The kit's clock goes on by half an hour each time, and nobody waits.
// Shows: KIT-01
#[tokio::test]
async fn three_retries_of_ten_minutes_take_milliseconds() {
    let mut took = Vec::new();
    for _ in 0..21 {
        let started = Instant::now();
        three_retries(TestKit::new()).await;
        took.push(started.elapsed());
    }
    let first = took[0];
    took.sort_unstable();
    println!("    three retries, ten minutes apart, in memory: first {first:?}, median {:?}", took[10]);
}

// Shows: KIT-01, DEV-03
#[tokio::test]
async fn three_retries_on_postgres() {
    let database = database().await;
    let started = Instant::now();
    let kit = TestKit::on_database(database.url()).await.unwrap();
    let connected = started.elapsed();
    three_retries(kit).await;
    let ran = started.elapsed() - connected;
    println!("    three retries, ten minutes apart, on Postgres: {ran:?}, after {connected:?} to connect");
}

/// One event, an hour away, fails until it is dead; another is paused, and a third is too far off.
async fn runs_to_the_end(mut kit: TestKit) {
    let failing = |_: Execution| async { Err::<(), _>(HandlerError::operational("never")) };
    let fails = Route::new("fails").retry(patient());
    kit.handlers(Handlers::new().on(fails, failing).on("fine", async |_| Ok(()))).unwrap();
    let soon = Duration::from_secs(3600);
    kit.emit(Event::new("fails", &1).unwrap().after(soon).unwrap()).await.unwrap();
    kit.admin().pause(&scope("fine"), &Actor::user("ada"), &Stop::default()).await.unwrap();
    let paused = kit.emit(Event::new("fine", &1).unwrap()).await.unwrap().id;
    kit.emit(Event::new("fine", &2).unwrap().after(30 * soon).unwrap()).await.unwrap();
    let before = kit.now().await.unwrap();
    let drained = kit.drain_for(3 * soon).await.unwrap();
    assert_eq!((drained.retried, drained.died, drained.waiting), (3, 1, 2));
    assert!(drained.parked >= 1);
    let passed = kit.now().await.unwrap() - before;
    assert!(passed <= chrono::TimeDelta::from_std(3 * soon).unwrap(), "{passed}");
    assert_dead!(kit, "fails", count = 1, error = "never");
    let Explanation::Live(live) = kit.explain(paused).await.unwrap() else { panic!("it waits") };
    assert_eq!(live.state.as_str(), "paused");
    kit.admin().unpause(&scope("fine"), &Actor::user("ada")).await.unwrap();
    assert_eq!(kit.drain_for(60 * soon).await.unwrap().completed, 2);
}

#[tokio::test]
async fn in_memory_it_runs_to_the_end_and_no_further() {
    runs_to_the_end(TestKit::new()).await;
}

#[tokio::test]
async fn on_postgres_it_runs_to_the_end_and_no_further() {
    let (_stage, kit) = on_postgres().await;
    runs_to_the_end(kit).await;
}

/// Dropping a drain half-way is the death of a worker: the fifth loss makes its event dead.
async fn loses_its_workers(mut kit: TestKit) {
    let started = Arc::new(Notify::new());
    let signal = Arc::clone(&started);
    let hangs = move |_: Execution| {
        signal.notify_one();
        std::future::pending::<HandlerResult>()
    };
    kit.handlers(Handlers::new().on("hangs", hangs)).unwrap();
    let id = kit.emit(Event::new("hangs", &1).unwrap()).await.unwrap().id;
    for loss in 1..=5 {
        tokio::select! {
            drained = kit.drain() => panic!("it hangs: {drained:?}"),
            () = started.notified() => {}
        }
        let Explanation::Live(live) = kit.explain(id).await.unwrap() else { panic!("it is there") };
        assert_eq!((live.state, live.losses), (CheckResult::Running, loss - 1), "loss {loss}");
        assert_eq!(kit.drain().await.unwrap().attempts(), 0, "its claim stands");
        kit.advance(Duration::from_secs(61)).await.unwrap();
    }
    let drained = kit.drain().await.unwrap();
    assert_eq!((drained.died, drained.waiting), (1, 0));
    assert!(drained.runs.iter().any(|run| run.trail.contains(&Outcome::Poison)));
    assert_dead!(kit, "hangs", error = "too often");
}

#[tokio::test]
async fn in_memory_a_dropped_drain_is_a_dead_worker() {
    loses_its_workers(TestKit::new()).await;
}

#[tokio::test]
async fn on_postgres_a_dropped_drain_is_a_dead_worker() {
    let (_stage, kit) = on_postgres().await;
    loses_its_workers(kit).await;
}

// Shows: DEV-03
#[tokio::test]
async fn events_of_a_transaction_count_once_it_is_committed() {
    let (stage, mut kit) = on_postgres().await;
    kit.handlers(Handlers::new().on("h", |_| async { Ok(()) })).unwrap();
    let mut transaction = stage.pool.begin().await.unwrap();
    let lost = kit.queue().emit_in(&mut transaction, Event::new("h", &1).unwrap()).await.unwrap();
    transaction.rollback().await.unwrap();
    drop(lost);
    let mut transaction = stage.pool.begin().await.unwrap();
    let receipt = kit.queue().emit_in(&mut transaction, Event::new("h", &2).unwrap()).await.unwrap();
    assert_emitted!(kit, "h", count = 0);
    transaction.commit().await.unwrap();
    receipt.notify().await;
    assert_emitted!(kit, "h", count = 1, value = 2);
    let mut transaction = stage.pool.begin().await.unwrap();
    let forgotten = kit.queue().emit_in(&mut transaction, Event::new("h", &3).unwrap()).await.unwrap();
    transaction.commit().await.unwrap();
    drop(forgotten);
    assert_eq!(kit.drain().await.unwrap().completed, 2, "a drain finds what nobody published");
}

/// One run, whatever else waits, with its whole report.
#[tokio::test]
async fn one_event_is_performed() {
    let mut kit = TestKit::new();
    let runs = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&runs);
    let handler = move |event: Execution| {
        counted.fetch_add(1, Ordering::Relaxed);
        async move {
            match event.value::<String>()?.as_str() {
                "panic" => panic!("oh"),
                "value" => Err(HandlerError::value("not today")),
                "slow" => std::future::pending().await,
                _ => Ok(()),
            }
        }
    };
    let route = Route::new("h").timeout(Duration::from_millis(20)).retry(patient());
    kit.handlers(Handlers::new().on(route, handler)).unwrap();
    kit.emit(Event::new("h", "fine").unwrap()).await.unwrap();
    let performed = async |value: &str| {
        let report = kit.perform(Event::new("h", value).unwrap()).await.unwrap();
        (report.trail.last().copied().unwrap(), report.error.unwrap_or_default())
    };
    assert_eq!(performed("fine").await, (Outcome::Deleted, String::new()));
    assert_eq!(performed("panic").await, (Outcome::RetryAllowed, "panicked: oh".into()));
    assert_eq!(performed("value").await, (Outcome::Deleted, "not today".into()));
    assert_eq!(performed("slow").await, (Outcome::RetryAllowed, "timed out after 20ms".into()));
    assert_eq!(runs.load(Ordering::Relaxed), 4, "what waited was left alone");
    assert_eq!(kit.drain().await.unwrap().completed, 1);
    let unknown = kit.perform(Event::new("nobody", &1).unwrap()).await.unwrap();
    assert_eq!((unknown.attempt, unknown.trail.last()), (None, Some(&Outcome::Deferred)));
}

#[tokio::test]
async fn handlers_may_come_later() {
    let mut kit = TestKit::new();
    kit.emit(Event::new("late", &1).unwrap()).await.unwrap();
    let drained = kit.drain().await.unwrap();
    assert_eq!((drained.unknown, drained.waiting), (1, 1));
    kit.handlers(Handlers::new().on("late", |_| async { Ok(()) })).unwrap();
    assert_eq!(kit.drain().await.unwrap().completed, 1);
    let twice = Handlers::new().on("a", |_| async { Ok(()) }).on("a", |_| async { Ok(()) });
    assert!(kit.handlers(twice).unwrap_err().to_string().contains("two handlers"));
}

// Shows: KIT-05
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn endless_emits_of_handlers_are_an_error() {
    let mut kit = TestKit::new();
    let queue = kit.queue();
    let echo = move |event: Execution| {
        let queue = queue.clone();
        async move {
            queue.emit(Event::new("echo", &event.value::<u64>()?)?).await?;
            Ok(())
        }
    };
    kit.handlers(Handlers::new().on("echo", echo)).unwrap();
    kit.emit(Event::new("echo", &1).unwrap()).await.unwrap();
    let error = kit.drain().await.unwrap_err().to_string();
    assert!(error.starts_with("10000 runs, and the drain has not ended"), "{error}");
}

/// A drain may run more than the minimum bound if there are many events.
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn many_events_that_come_to_rest_are_no_error() {
    let mut kit = TestKit::new();
    kit.handlers(Handlers::new().on("one", |_| async { Ok(()) })).unwrap();
    for _ in 0..10_001 {
        kit.emit(Event::new("one", &1).unwrap()).await.unwrap();
    }
    assert_eq!(kit.drain().await.unwrap().completed, 10_001);
}

/// A lease that ends exactly now is not over yet, and nothing waits for it forever.
// Shows: KIT-05
#[tokio::test]
async fn in_memory_a_lease_is_over_after_its_last_moment() {
    let mut kit = TestKit::new();
    let (started, lease) = (Arc::new(Notify::new()), Duration::from_secs(60));
    let (signal, runs) = (Arc::clone(&started), AtomicU32::new(0));
    let hangs_once = move |_: Execution| {
        signal.notify_one();
        let hangs = runs.fetch_add(1, Ordering::Relaxed).is_multiple_of(2);
        async move { if hangs { std::future::pending().await } else { Ok(()) } }
    };
    kit.handlers(Handlers::new().on("hangs", hangs_once).on("fine", |_| async { Ok(()) })).unwrap();
    for exactly_then in [false, true] {
        kit.emit(Event::new("hangs", &1).unwrap()).await.unwrap();
        tokio::select! {
            drained = kit.drain() => panic!("it hangs: {drained:?}"),
            () = started.notified() => {}
        }
        if exactly_then {
            kit.emit(Event::new("fine", &1).unwrap().after(lease).unwrap()).await.unwrap();
            let drained = kit.drain_for(Duration::from_secs(61)).await.unwrap();
            assert_eq!((drained.completed, drained.waiting), (2, 0), "{drained}");
        } else {
            kit.advance(lease).await.unwrap();
            let drained = kit.drain().await.unwrap();
            assert_eq!((drained.attempts(), drained.waiting), (0, 1), "{drained}");
            kit.advance(Duration::from_micros(1)).await.unwrap();
            kit.drain().await.unwrap().assert_all_fine(1);
        }
        started.notified().await;
    }
}

/// An event that is too far off comes nearer by all of the time that was given.
#[tokio::test]
async fn a_drain_for_a_time_uses_it_up() {
    let (mut kit, hour) = (TestKit::new(), Duration::from_secs(3600));
    kit.handlers(Handlers::new().on("far", |_| async { Ok(()) })).unwrap();
    kit.emit(Event::new("far", &1).unwrap().after(hour * 3 / 2).unwrap()).await.unwrap();
    let before = kit.now().await.unwrap();
    assert_eq!(kit.drain_for(hour).await.unwrap().completed, 0);
    assert_eq!(kit.now().await.unwrap() - before, chrono::TimeDelta::hours(1));
    assert_eq!(kit.drain_for(hour).await.unwrap().completed, 1);
    assert_eq!(kit.now().await.unwrap() - before, chrono::TimeDelta::minutes(90), "nothing waits any more");
}

/// A drain that nothing could wake is an error that says what to do.
// Shows: KIT-05
#[tokio::test]
async fn a_drain_with_a_paused_notifier_is_an_error() {
    let mut kit = TestKit::new();
    kit.handlers(Handlers::new().on("one", |_| async { Ok(()) })).unwrap();
    kit.emit(Event::new("one", &1).unwrap()).await.unwrap();
    kit.notifier().pause();
    let paused = kit.drain().await.unwrap_err().to_string();
    assert!(paused.contains("kit.notifier().resume()"), "{paused}");
    kit.notifier().resume();

    let breaker = kit.notifier().clone();
    let breaks = move |_: Execution| {
        breaker.break_down("no broker");
        async { Ok(()) }
    };
    kit.handlers(Handlers::new().on("one", |_| async { Ok(()) }).on("breaks", breaks)).unwrap();
    for name in ["breaks", "one"] {
        kit.emit(Event::new(name, &1).unwrap()).await.unwrap();
    }
    let broken = kit.drain().await.unwrap_err().to_string();
    assert!(broken.contains("kit.notifier().mend()"), "{broken}");
    kit.notifier().mend();
    kit.drain().await.unwrap();
    assert_eq!(kit.drain().await.unwrap().waiting, 0);
}

/// A float that was emitted compares equal to the float that a test expects, however it is written.
#[tokio::test]
async fn emitted_floats_are_found() {
    let kit = TestKit::new();
    let mut bits: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut random = || {
        bits ^= bits << 13;
        bits ^= bits >> 7;
        bits ^= bits << 17;
        f64::from_bits(bits)
    };
    kit.emit(Event::new("single", &0.1_f32).unwrap()).await.unwrap();
    assert_emitted!(kit, "single", value = 0.1_f32);
    assert_emitted!(kit, "single", like = 0.1_f32);
    for number in std::iter::repeat_with(&mut random).filter(|number| number.is_finite()).take(300) {
        let name = format!("double-{:016x}", number.to_bits());
        kit.emit(Event::new(&name, &[number]).unwrap()).await.unwrap();
        assert_emitted!(kit, name, value = [number]);
        assert_emitted!(kit, name, like = [number]);
    }
}

/// A failed assertion, also one that awaits, names the line of the test.
#[tokio::test]
async fn assertions_panic_in_the_line_of_the_test() {
    static LINES: std::sync::Mutex<Vec<(String, u32)>> = std::sync::Mutex::new(Vec::new());
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if let Some(place) = panic.location().filter(|_| panic.to_string().contains("nobody-is-named-so")) {
            LINES.lock().unwrap().push((place.file().to_owned(), place.line()));
        }
        before(panic);
    }));
    let kit = TestKit::new();
    let dead = line!() + 1;
    panic_of(async { assert_dead!(kit, "nobody-is-named-so") }).await;
    let emitted = line!() + 1;
    panic_of(async { assert_emitted!(kit, "nobody-is-named-so") }).await;
    let seen = LINES.lock().unwrap().clone();
    assert_eq!(seen, [(file!().to_owned(), dead), (file!().to_owned(), emitted)]);
}

/// The message with which a future panics.
async fn panic_of(future: impl Future<Output = ()>) -> String {
    let panic = AssertUnwindSafe(future).catch_unwind().await.expect_err("it holds");
    panic.downcast_ref::<String>().cloned().unwrap()
}

// Shows: KIT-04
#[tokio::test]
async fn failed_assertions_show_what_there_is() {
    let mut kit = TestKit::new();
    let fails = |_: Execution| async { Err::<(), _>(HandlerError::operational("no paper")) };
    kit.handlers(Handlers::new().on(once("f"), fails)).unwrap();
    let none = panic_of(async { assert_emitted!(kit, "f") }).await;
    assert_eq!(none, "expected at least 1 event emitted for f, found 0; the emitted events are:\n  none");
    kit.emit(Event::new("f", &serde_json::json!({"to": "ada", "n": 1})).unwrap()).await.unwrap();
    let later = Event::new("f", &2).unwrap().module("M").unwrap().modifier("x").unwrap();
    kit.emit(later.after(Duration::from_secs(5)).unwrap()).await.unwrap();
    assert_emitted!(kit, "f", like = serde_json::json!({"to": "ada"}));
    assert_emitted!(kit, "M/f/x", count = 1, matching = |n: u32| n == 2);
    assert_emitted!(kit, "M/f", value = 2);
    let bo = serde_json::json!({"to": "bo"});
    let other = panic_of(async { assert_emitted!(kit, "f", count = 2, like = bo) }).await;
    let listed = "the emitted events are:\n  WORKER/f/_ {\"n\":1,\"to\":\"ada\"}\n  M/f/x 2 after 5s\n";
    let expected = "expected 2 events emitted for f with a value like {\"to\":\"bo\"}, found 0; ";
    assert_eq!(other, format!("{expected}{listed}"));
    let closure = panic_of(async { assert_emitted!(kit, "M/f", matching = |n: u32| n > 2) }).await;
    let expected = "expected at least 1 event emitted for M/f with a value matching |n: u32| n > 2";
    assert!(closure.starts_with(expected), "{closure}");

    kit.drain().await.unwrap();
    let dead = panic_of(async { assert_dead!(kit, "f", count = 1, error = "ink") }).await;
    let expected = "expected 1 event dead of f with the error \"ink\", found 0; the dead events are:\n";
    let line = "  WORKER/f/_ of retries, retried 0 times; its last error: no paper\n";
    assert_eq!(dead, format!("{expected}{line}"));
    assert_dead!(kit, "f", error = "paper");
    let emitted = kit.emitted();
    assert_eq!(emitted[1].due, Due::After(Duration::from_secs(5)));
    assert_eq!(emitted[1].read::<u32>().unwrap(), 2);
}

/// A drain reports what became of each event, which shows when a test expected something else.
#[tokio::test]
async fn a_drain_reports_what_ran() {
    let mut kit = TestKit::new();
    let act = |event: Execution| async move {
        match event.value::<String>()?.as_str() {
            "value" => Err(HandlerError::value("nobody to greet")),
            "fails" => Err(HandlerError::operational("no paper")),
            _ => Ok(()),
        }
    };
    let greet = Route::new("greet").retry(patient());
    kit.handlers(Handlers::new().on(greet, act).on(once("once"), act)).unwrap();
    kit.drain().await.unwrap().assert_all_fine(0);
    kit.emit(Event::new("greet", "Ada").unwrap()).await.unwrap();
    let drained = kit.drain().await.unwrap();
    drained.assert_all_fine(1);
    let one = "completed 1, retried 0, died 0, parked 0, unknown 0, waiting 0:\n  WORKER/greet/_ attempt 1 completed";
    assert_eq!(drained.to_string(), one);
    let wrong = panic_of(async { drained.assert_all_fine(2) }).await;
    let expected = "expected 2 events to complete, at the first run and without an error";
    assert_eq!(wrong, format!("{expected}; {one}"));

    kit.admin().pause(&scope("paused"), &Actor::user("ada"), &Stop::default()).await.unwrap();
    let events = [("greet", "value"), ("greet", "fails"), ("once", "fails"), ("nobody", ""), ("paused", "")];
    for (name, value) in events {
        kit.emit(Event::new(name, value).unwrap()).await.unwrap();
    }
    let drained = kit.drain().await.unwrap();
    let lines = [
        "completed 1, retried 1, died 1, parked 1, unknown 1, waiting 3:",
        "  WORKER/greet/_ attempt 1 completed with an error value: nobody to greet",
        "  WORKER/greet/_ attempt 1 failed and is retried in 600 s: no paper",
        "  WORKER/once/_ attempt 1 died: no paper",
        "  WORKER/nobody/_ waits: the kit has no handler of this name",
        "  WORKER/paused/_ waits: its handler is paused",
    ];
    assert_eq!(drained.to_string(), lines.join("\n"));
    let wrong = panic_of(async { drained.assert_all_fine(1) }).await;
    assert!(wrong.ends_with(&lines.join("\n")), "{wrong}");
    let mut other = TestKit::new();
    other.handlers(Handlers::new().on("later", |_| async { Ok(()) })).unwrap();
    other.emit(Event::new("later", &1).unwrap().after(TEN_MINUTES).unwrap()).await.unwrap();
    let drained = other.drain().await.unwrap().to_string();
    assert!(drained.ends_with("waiting 1:\n  WORKER/later/_ waits: it is due in 600 s"), "{drained}");
}

/// A chosen id is emitted once; a repeated idempotency key returns the first answer.
#[tokio::test]
async fn ids_and_keys_are_remembered_in_memory() {
    let (kit, id) = (TestKit::new(), EventId::new());
    let event = || Event::new("h", &1).unwrap().id(id);
    assert!(!kit.emit(event()).await.unwrap().duplicate);
    assert!(kit.emit(event()).await.unwrap().duplicate);
    assert_emitted!(kit, "h", count = 1);
    let key = IdempotencyKey::new(CanvasId::DEFAULT, "tests", "order-1", b"hash").unwrap();
    let emit = async || {
        let events = vec![Event::new("once", &1).unwrap()];
        kit.queue().emit_idempotent(&key, events, |emitted| emitted[0].id.to_string()).await.unwrap()
    };
    let Idempotent::First { answer, .. } = emit().await else { panic!("it is the first") };
    assert_eq!(emit().await, Idempotent::Replayed { answer });
    assert_emitted!(kit, "once", count = 1);
    kit.advance(Duration::from_secs(25 * 3600)).await.unwrap();
    assert!(matches!(emit().await, Idempotent::First { .. }), "after a day it is forgotten");
}
