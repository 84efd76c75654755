//! A worker that always has more work than capacity: it loses no claim that it holds, and no object
//! stalls.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, mpsc};
use wakeq::machine::Outcome;
use wakeq::order::ObjectKey;
use wakeq::{CanvasId, Event, Execution, Handlers, Timing};

use crate::support::brokers::Broker;
use crate::support::crash_scene::{figure, is_full, size};
use crate::support::{Stage, TIMEOUT};

const CANVASES: usize = 2;
/// The maximum number of events that are emitted but not done.
const WAITING_MAX: usize = 1_000;
/// Objects per batch of emits, and events of each of them.
const TOGETHER: usize = 20;
const EACH: usize = 10;
/// How long a handler takes.
const LASTS: Duration = Duration::from_millis(5);
/// Longest wait of an object's next event.
const STILL_MAX: Duration = Duration::from_secs(1);

/// A run of a handler.
struct HandlerRun {
    canvas: CanvasId,
    object: ObjectKey,
    link: i64,
    began: Instant,
    ended: Instant,
}

fn canvas(number: usize) -> CanvasId {
    CanvasId(uuid::Uuid::from_u128(number as u128 + 1))
}

async fn work(event: Execution, done: mpsc::Sender<HandlerRun>) -> wakeq::HandlerResult {
    let began = Instant::now();
    // Simulates the work.
    tokio::time::sleep(LASTS).await;
    let place = event.place.expect("it is on an object");
    let (canvas, ended) = (event.address.scope.canvas, Instant::now());
    Ok(done.send(HandlerRun { canvas, object: place.object, link: place.link.id, began, ended }).await?)
}

/// Emits events on each of a few objects in turn, with up to `WAITING_MAX` not done; returns when
/// each link was emitted.
async fn emit(stage: &Stage, count: usize, objects: usize, waiting: &Semaphore) -> HashMap<i64, Instant> {
    let mut emitted = HashMap::with_capacity(count);
    for page in 0..count / (TOGETHER * EACH) {
        waiting.acquire_many((TOGETHER * EACH) as u32).await.unwrap().forget();
        let event = |at: usize| {
            let object = (page * TOGETHER + at % TOGETHER) % objects;
            // Objects of the two canvases have the same names.
            let name = format!("lamp:{}", object / CANVASES);
            Event::new("greet", &page).unwrap().canvas(canvas(object % CANVASES)).on(&name).unwrap()
        };
        let receipts = stage.queue.emit_all((0..TOGETHER * EACH).map(event).collect()).await.unwrap();
        let now = Instant::now();
        emitted.extend(receipts.iter().filter_map(|receipt| Some((receipt.link?.id, now))));
    }
    emitted
}

/// For each event that was emitted before its predecessor ended: how long after that end it began.
/// Fails if an object's events ran out of order.
fn waits(mut ran: Vec<HandlerRun>, emitted: &HashMap<i64, Instant>) -> Vec<Duration> {
    ran.sort_by_key(|run| (run.canvas.0, run.object.to_string(), run.link));
    let pairs =
        ran.windows(2).filter(|pair| (pair[0].canvas, &pair[0].object) == (pair[1].canvas, &pair[1].object));
    let mut waits = Vec::new();
    for pair in pairs {
        let [before, after] = pair else { continue };
        assert!(before.ended <= after.began, "{} of {} began too early", after.link, after.object);
        if emitted[&after.link] <= before.ended {
            waits.push(after.began - before.ended);
        }
    }
    waits.sort_unstable();
    waits
}

/// A busy worker renews what it holds, learns of its completions, and hands over.
// Shows: EV2-13, ORD-05, ORD-22
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long: `cargo xtask long` runs it"]
async fn a_busy_worker_loses_no_claim_and_stalls_no_object() {
    let broker = Broker::pubsub("busy").await;
    let timing =
        Timing { lease: Duration::from_secs(3), horizon: Duration::from_secs(60), ..Timing::default() };
    let stage = Stage::with(broker.notifier.clone(), timing).await;
    let (count, objects) = (size(2_000, 100_000), size(50, 1_000));
    let (done, mut ran) = mpsc::channel(count);
    let worker = stage.worker(Handlers::new().on("greet", move |event| work(event, done.clone())));
    let began = Instant::now();
    let waiting = Semaphore::new(WAITING_MAX);
    let emitting = emit(&stage, count, objects, &waiting);
    let running = async {
        let mut runs = Vec::with_capacity(count);
        while runs.len() < count {
            runs.push(tokio::time::timeout(TIMEOUT, ran.recv()).await.expect("it goes on").unwrap());
            waiting.add_permits(1);
        }
        runs
    };
    let (emitted, runs) = tokio::join!(emitting, running);
    let took = began.elapsed();
    let waits = waits(runs, &emitted);
    let counters = std::sync::Arc::clone(&worker.counters);
    let outcome_count = |outcome| counters.outcome(outcome);
    figure("events, objects", format!("{count}, {objects} in {took:.1?}"));
    let outcomes =
        [Outcome::EarlierLeft, Outcome::EventMissing, Outcome::LockClaimFailed, Outcome::HandedOver];
    figure("outcomes", format!("{:?}", outcomes.map(|outcome| (outcome, outcome_count(outcome)))));
    let at = |percent: usize| waits[(waits.len() - 1) * percent / 100];
    figure(
        "an object's next event began after",
        format!("p50 {:.1?}, p99 {:.1?}, longest {:.1?} of {}", at(50), at(99), at(100), waits.len()),
    );
    worker.stop().await;
    assert_eq!((outcome_count(Outcome::FencedOut), outcome_count(Outcome::LeaseLost)), (0, 0));
    assert_eq!((outcome_count(Outcome::Deleted), stage.rows().await), (count as u64, 0));
    assert!(!is_full() || at(100) <= STILL_MAX, "{:?}", at(100));
}
