//! The same for places of limits: whatever answer is late or lost, a place is free once, and is
//! taken then.

use std::sync::Arc;

use wakeq::limits::NewLimit;
use wakeq::machine::Outcome;
use wakeq::notify::{Notification, Notifier};
use wakeq::testing::MemoryNotifier;
use wakeq::{
    Actor, CanvasId, Event, EventId, HandlerError, HandlerResult, Handlers, Queue, QueueConfig, RetryPolicy,
    Route, Store, StoreConfig, Timing, WorkerConfig,
};

use super::{Answer, AnswerProxy, COMPLETION, DEATH, RETRY};
use crate::support::handlers::Door;
use crate::support::{OTHER, RunningWorker, Stage, TIMEOUT, fit, once, promised_late, quick};

const LIMITED_CLAIM: &str = "from wakeq.claim_limited(";
const ROOM_AT_LIMITS: &str = "from wakeq.wake_waiting(";

/// An event whose customer has one place, as on each canvas.
fn of_customer(name: &str, canvas: CanvasId) -> Event {
    Event::new(name, "x").unwrap().canvas(canvas).limit("customer:7").unwrap()
}

async fn one_place_per_customer(stage: &Stage) {
    let (name, limit) =
        ("customer".parse().unwrap(), NewLimit { concurrency: Some(1), ..NewLimit::default() });
    for canvas in [CanvasId::DEFAULT, OTHER] {
        stage.admin.put_limit(canvas, &name, &limit, &Actor::user("test")).await.unwrap();
    }
}

/// Who has the place of the customer, and how many wait for it.
async fn place(stage: &Stage) -> (Vec<EventId>, u64) {
    let name = "customer:7".parse().unwrap();
    let uses = stage.admin.limit_uses(CanvasId::DEFAULT, &name, None, 10).await.unwrap().items;
    (uses[0].holders.clone(), uses[0].waiting)
}

/// The first of four events has the only place, and ends like this. The place is the second one's
/// then, alone, and goes on to each of the others. Another canvas's stays taken.
async fn check_place(text: &'static str, answer: Answer, verdict: HandlerResult, outcome: Outcome) {
    // Here what nobody was told of is left to its promise, which the test does not wait for.
    let is_lost_on_the_way = [LIMITED_CLAIM, ROOM_AT_LIMITS].contains(&text);
    let timing = if is_lost_on_the_way { quick() } else { promised_late() };
    let (stage, _) = Stage::memory_with(timing.clone()).await;
    one_place_per_customer(&stage).await;
    let proxy = AnswerProxy::new(&stage, text, answer).await;
    let ((handler, mut door), (hold, mut theirs)) = (Door::new(), Door::new());
    let retry = RetryPolicy { retries: u32::from(text == RETRY), delay: TIMEOUT * 2, ..Default::default() };
    let handlers = Handlers::new().on(Route::new("greet").retry(retry), handler).on(once("hold"), hold);
    let mut worker = proxy.worker(&stage, timing, handlers).await;
    let emit = async |name: &str, canvas| stage.queue.emit(of_customer(name, canvas)).await.unwrap().id;
    let mut waiting = async |name: &str, canvas| {
        let id = emit(name, canvas).await;
        worker.until(id, Outcome::LimitFull).await;
        id
    };

    let first = emit("greet", CanvasId::DEFAULT).await;
    assert_eq!(door.arrived.next().await.id, first);
    emit("hold", OTHER).await;
    theirs.arrived.next().await;
    waiting("hold", OTHER).await;
    let mut next = vec![waiting("greet", CanvasId::DEFAULT).await, waiting("greet", CanvasId::DEFAULT).await];
    door.answer(verdict);
    assert_eq!(door.arrived.next().await.id, next[0], "the place is the next one's");
    next.push(waiting("greet", CanvasId::DEFAULT).await);
    assert_eq!(place(&stage).await, (vec![next[0]], 2), "only one has it");
    for id in &next[1..] {
        door.open(1);
        assert_eq!(door.arrived.next().await.id, *id);
    }
    door.open(1);
    worker.until(next[2], Outcome::Deleted).await;
    assert_eq!(door.most(), 1);
    assert_eq!(worker.counters.outcome(outcome), if outcome == Outcome::Deleted { 4 } else { 1 });
    assert!(theirs.arrived.rest().is_empty(), "nobody has freed the place of another canvas");
    proxy.assert_found();
    theirs.open(2);
    worker.stop().await;
}

/// A place of a limit is free once, and is taken, whichever answer is late or lost.
// Shows: LIMIT-01, LIMIT-02
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn a_place_of_a_limit_is_free_once_though_an_answer_is_late_or_lost() {
    let fails = || Err(HandlerError::operational("no"));
    for (text, answer, verdict, outcome) in [
        (COMPLETION, Answer::AfterARenewal, Ok(()), Outcome::Deleted),
        (COMPLETION, Answer::Lost, Ok(()), Outcome::Deleted),
        (COMPLETION, Answer::Never, Ok(()), Outcome::FencedOut),
        (RETRY, Answer::AfterARenewal, fails(), Outcome::RetryAllowed),
        (RETRY, Answer::Lost, fails(), Outcome::RetryAllowed),
        (DEATH, Answer::AfterARenewal, fails(), Outcome::Deleted),
        (DEATH, Answer::Lost, fails(), Outcome::Deleted),
        (LIMITED_CLAIM, Answer::Lost, Ok(()), Outcome::Deleted),
        (ROOM_AT_LIMITS, Answer::Lost, Ok(()), Outcome::Deleted),
    ] {
        println!("{text}: {answer:?}");
        check_place(text, answer, verdict, outcome).await;
    }
}

/// A worker that waits for its answers as long as a test does.
async fn patient_worker(proxy: &AnswerProxy, stage: &Stage, handlers: Handlers) -> RunningWorker {
    let (lock_timeout, statement_timeout) = (TIMEOUT, TIMEOUT);
    let config =
        StoreConfig { timing: Some(unhurried()), lock_timeout, statement_timeout, ..StoreConfig::default() };
    let store = Store::connect(&proxy.url, fit(config)).await.unwrap();
    RunningWorker::start(store, stage.notifier.clone(), handlers, WorkerConfig::default())
}

/// No lease ends by itself, and nobody looks for what was lost.
fn unhurried() -> Timing {
    Timing { lease: TIMEOUT, ..promised_late() }
}

/// A worker's last write arrives when its claim is lost, and another worker runs the event: it
/// frees the other's place as little as it ends the event.
// Shows: LIMIT-01, LIMIT-02
#[tokio::test]
async fn a_completion_after_a_lost_claim_frees_no_place() {
    let (stage, _) = Stage::memory_with(unhurried()).await;
    one_place_per_customer(&stage).await;
    let proxy = AnswerProxy::new(&stage, COMPLETION, Answer::HeldBack).await;
    let (handler, mut late_door) = Door::new();
    let mut late = patient_worker(&proxy, &stage, Handlers::new().on(once("greet"), handler)).await;
    let first = stage.queue.emit(of_customer("greet", CanvasId::DEFAULT)).await.unwrap().id;
    late_door.arrived.next().await;
    late_door.open(1);
    tokio::time::timeout(TIMEOUT, proxy.shared.held_back.notified()).await.unwrap();

    // The other one has notifications of its own, so that the first never hears of the rest.
    let others = Arc::new(MemoryNotifier::new());
    let queue = Queue::new(stage.store.clone(), others.clone(), QueueConfig::default());
    let ((handler, mut door), (hold, mut theirs)) = (Door::new(), Door::new());
    let handlers = Handlers::new().on(once("greet"), handler).on(once("hold"), hold);
    let mut worker =
        RunningWorker::start(stage.store.clone(), others.clone(), handlers, WorkerConfig::default());
    queue.emit(of_customer("hold", OTHER)).await.unwrap();
    theirs.arrived.next().await;
    let waits = queue.emit(of_customer("hold", OTHER)).await.unwrap().id;
    worker.until(waits, Outcome::LimitFull).await;
    stage
        .execute("update wakeq.events_v2 set locked_at = locked_at - interval '1 hour' where name = 'greet'")
        .await;
    others.publish(&[Notification::new(first, CanvasId::DEFAULT)]).await.unwrap();
    assert_eq!(door.arrived.next().await.id, first, "it is taken over, with its place");
    let mut next = Vec::new();
    for waiting in 1..=2 {
        let id = queue.emit(of_customer("greet", CanvasId::DEFAULT)).await.unwrap().id;
        worker.until(id, Outcome::LimitFull).await;
        next.push(id);
        if waiting == 1 {
            proxy.shared.let_through.notify_one();
            late.until(first, Outcome::FencedOut).await;
        }
        assert_eq!(place(&stage).await, (vec![first], waiting), "it still runs");
    }
    for id in next {
        door.open(1);
        assert_eq!(door.arrived.next().await.id, id);
    }
    door.open(1);
    worker.until_count(3, Outcome::Deleted).await;
    assert_eq!(door.most(), 1);
    assert!(theirs.arrived.rest().is_empty(), "nobody has freed the place of another canvas");
    theirs.open(2);
    late.stop().await;
    worker.stop().await;
}
