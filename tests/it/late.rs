//! Answers of Postgres that come late, or never, though what they tell of was done.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use wakeq::{
    CanvasId, Event, HandlerError, HandlerResult, Handlers, Outcome, RetryPolicy, Route, Store, StoreConfig,
    Timing, Verdict, WorkerConfig,
};

use crate::door::{Door, answering, telling};
use crate::queues;
use crate::support::{PATIENCE, Running, Stage, connect, fit, is_skipped, quick};

/// What becomes of the answer.
#[derive(Clone, Copy, Debug)]
enum Answer {
    /// It is handed out after that of a renewal that was asked later.
    AfterARenewal,
    /// Its connection breaks.
    Lost,
    /// It never comes, and nothing says so.
    Never,
}

/// The answers that end a statement.
const ENDS: [&[u8]; 4] = [b"SELECT ", b"DELETE ", b"UPDATE ", b"INSERT 0 "];
const RENEWAL: &[u8] = b"set locked_at = clock_timestamp()\n              where id = any";

/// Stands between a worker and Postgres. Once, the answer to the first statement with a text is treated like that.
struct Between {
    url: String,
}

/// What its connections share.
struct Shared {
    text: &'static str,
    answer: Answer,
    found: AtomicBool,
    kept: AtomicBool,
    renewed: Notify,
}

fn has(chunk: &[u8], text: &[u8]) -> bool {
    chunk.windows(text.len()).any(|window| window == text)
}

impl Between {
    async fn new(stage: &Stage, text: &'static str, answer: Answer) -> Self {
        let (server, database) = stage.database.url().rsplit_once('/').unwrap();
        let (credentials, address) = server.rsplit_once('@').unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("{credentials}@{}/{database}", listener.local_addr().unwrap());
        let (found, kept, renewed) = Default::default();
        let shared = Arc::new(Shared { text, answer, found, kept, renewed });
        let address = address.to_owned();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(&address).await.unwrap();
                tokio::spawn(carry(Arc::clone(&shared), client, server));
            }
        });
        Self { url }
    }

    async fn worker(&self, stage: &Stage, timing: Timing, handlers: Handlers) -> Running {
        let store = connect(&self.url, timing).await;
        Running::start(store, stage.notifier.clone(), handlers, WorkerConfig::default())
    }
}

async fn carry(shared: Arc<Shared>, mut client: TcpStream, mut server: TcpStream) {
    let (mut asked, mut told) = (vec![0; 65_536], vec![0; 65_536]);
    let (mut awaited, mut renews, mut renews_later) = (false, false, false);
    loop {
        tokio::select! {
            read = client.read(&mut asked) => {
                let Ok(read @ 1..) = read else { return };
                let words = &asked[..read];
                awaited |= has(words, shared.text.as_bytes()) && !shared.found.swap(true, Ordering::SeqCst);
                renews |= has(words, RENEWAL);
                renews_later = renews && shared.kept.load(Ordering::SeqCst);
                if server.write_all(words).await.is_err() { return }
            }
            read = server.read(&mut told) => {
                let Ok(read @ 1..) = read else { return };
                let words = &told[..read];
                let ends = ENDS.iter().any(|end| has(words, end));
                if ends && std::mem::take(&mut awaited) {
                    shared.kept.store(true, Ordering::SeqCst);
                    match shared.answer {
                        Answer::AfterARenewal => shared.renewed.notified().await,
                        Answer::Lost => return,
                        Answer::Never => {
                            // Until the worker has had enough of it.
                            let _ = client.read(&mut asked).await;
                            return;
                        }
                    }
                }
                if client.write_all(words).await.is_err() { return }
                if ends && std::mem::take(&mut renews_later) {
                    // Time enough for the worker to act on it.
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    shared.renewed.notify_one();
                }
            }
        }
    }
}

const COMPLETION: &str = "delete from wakeq.events_v2";
const LINK_COMPLETION: &str = "with gone as (";
const FIRSTS: &str = "select lane.position as";
const ROOMS: &str = "select asked.number as";
const RETRY: &str = "set retries = ($3";
const DEATH: &str = "insert into wakeq.dead_events";

/// Runs one event; how its run ended.
async fn check(text: &'static str, answer: Answer, retries: u32, fails: bool) -> Outcome {
    let (stage, _) = Stage::memory_with(quick()).await;
    let between = Between::new(&stage, text, answer).await;
    let (handler, _seen) =
        answering(move |_| if fails { Err(HandlerError::operational("no")) } else { Ok(()) });
    let route = Route::new("greet").retry(RetryPolicy { retries, ..RetryPolicy::default() });
    let mut worker = between.worker(&stage, quick(), Handlers::new().on(route, handler)).await;
    stage.emit("greet").await;
    let outcome = *worker.report().await.trail.last().unwrap();
    worker.stop().await;
    outcome
}

/// The deletion was committed, and a renewal finds no claim, before its answer is there.
#[tokio::test]
async fn a_completion_that_a_renewal_overtakes_is_told() {
    assert_eq!(check(COMPLETION, Answer::AfterARenewal, 2, false).await, Outcome::Deleted);
}

#[tokio::test]
async fn a_retry_that_a_renewal_overtakes_is_told() {
    assert_eq!(check(RETRY, Answer::AfterARenewal, 2, true).await, Outcome::RetryAllowed);
}

#[tokio::test]
async fn a_death_that_a_renewal_overtakes_is_told() {
    assert_eq!(check(DEATH, Answer::AfterARenewal, 0, true).await, Outcome::Deleted);
}

#[tokio::test]
async fn a_completion_whose_answer_is_lost_is_told() {
    assert_eq!(check(COMPLETION, Answer::Lost, 2, false).await, Outcome::Deleted);
}

#[tokio::test]
async fn a_death_whose_answer_is_lost_is_told() {
    assert_eq!(check(DEATH, Answer::Lost, 0, true).await, Outcome::Deleted);
}

/// What was saved is told, and counted once, though a repeat of the statement finds no claim any more.
async fn check_saved(error: fn() -> HandlerError, outcome: Outcome, retries: i32) {
    let (stage, _) = Stage::memory_with(quick()).await;
    let between = Between::new(&stage, RETRY, Answer::Lost).await;
    let (handler, _seen) = answering(move |_| Err(error()));
    let mut worker = between.worker(&stage, quick(), Handlers::new().on("greet", handler)).await;
    let id = stage.emit("greet").await;
    let report = worker.report().await;
    assert_eq!((report.trail.last(), report.notification.id), (Some(&outcome), id));
    assert!(matches!(report.verdict, Verdict::Waits(_)), "{:?}", report.verdict);
    let row = "select retries, locked_at is null, delay_until > now() from wakeq.events_v2 where id = $1";
    let row: (i32, bool, bool) = sqlx::query_as(row).bind(id.0).fetch_one(&stage.pool).await.unwrap();
    assert_eq!(row, (retries, true, true));
    worker.stop().await;
}

#[tokio::test]
async fn a_retry_whose_answer_is_lost_is_told() {
    let busy = || HandlerError::operational("busy").retry_after(Duration::from_secs(30));
    check_saved(busy, Outcome::RetryAllowed, 1).await;
}

#[tokio::test]
async fn a_postponed_event_whose_answer_is_lost_is_told() {
    check_saved(|| HandlerError::not_yet(Duration::from_secs(30)), Outcome::Postponed, 0).await;
}

/// What is left to its promise comes much later than what any test here waits for.
fn promised_late() -> Timing {
    let late = Duration::from_secs(20);
    Timing { grace: late, probe_period: late, ..quick() }
}

/// Of two events on an object the first ends like this, and nobody waits for the promise of the next: that one starts within
/// a second of what has to be waited for.
async fn check_chain(text: &'static str, answer: Answer, verdict: HandlerResult, outcome: Outcome) {
    let timing = promised_late();
    let (stage, _) = Stage::memory_with(timing.clone()).await;
    let between = Between::new(&stage, text, answer).await;
    let (handler, mut door) = Door::new();
    let route = Route::new("greet").retry(RetryPolicy { retries: 0, ..RetryPolicy::default() });
    let waits = match answer {
        Answer::AfterARenewal => timing.lease / 3,
        Answer::Lost => Duration::ZERO,
        Answer::Never => timing.lease,
    };
    let mut worker = between.worker(&stage, timing, Handlers::new().on(route, handler)).await;
    let events = (0..2).map(|at| Event::new("greet", &at).unwrap().on("lamp").unwrap()).collect();
    let emitted = stage.queue.emit_all(events).await.unwrap();
    door.arrived.next().await;
    worker.until(emitted[1].id, Outcome::EarlierLeft).await;
    let began = Instant::now();
    door.answer(verdict);
    assert_eq!(door.arrived.next().await.id, emitted[1].id);
    let waited = began.elapsed();
    assert!(waited < waits + Duration::from_secs(1), "it waited for its promise: {waited:?}");
    worker.until(emitted[0].id, outcome).await;
    door.open(1);
    worker.until(emitted[1].id, Outcome::HandedOver).await;
    worker.stop().await;
}

#[tokio::test]
async fn the_next_of_an_object_is_woken_though_a_renewal_overtakes() {
    check_chain(LINK_COMPLETION, Answer::AfterARenewal, Ok(()), Outcome::HandedOver).await;
}

#[tokio::test]
async fn the_next_of_an_object_is_woken_though_an_answer_is_lost() {
    check_chain(LINK_COMPLETION, Answer::Lost, Ok(()), Outcome::HandedOver).await;
}

#[tokio::test]
async fn the_next_of_an_object_is_woken_though_the_look_for_it_gets_no_answer() {
    check_chain(FIRSTS, Answer::Lost, Ok(()), Outcome::HandedOver).await;
}

#[tokio::test]
async fn the_next_of_an_object_is_woken_though_the_answer_to_a_death_is_lost() {
    let fails = || Err(HandlerError::operational("no"));
    check_chain(DEATH, Answer::Lost, fails(), Outcome::HandedOver).await;
    check_chain(DEATH, Answer::AfterARenewal, fails(), Outcome::HandedOver).await;
}

/// The claim runs out while the answer is awaited: the run knows nothing any more, but that the next may have its turn.
#[tokio::test]
async fn the_next_of_an_object_is_woken_though_its_run_was_fenced_out() {
    check_chain(LINK_COMPLETION, Answer::Never, Ok(()), Outcome::FencedOut).await;
}

/// Each of two canvases may have one copy of a queue in flight, and another one waits: whichever look for room gets no answer,
/// it is asked again.
#[tokio::test]
async fn the_next_of_a_facet_is_woken_though_the_look_for_it_gets_no_answer() {
    let timing = promised_late();
    let (stage, _) = Stage::memory_with(timing.clone()).await;
    queues::register(&stage, 1, Some(1)).await;
    let between = Between::new(&stage, ROOMS, Answer::Lost).await;
    let (handler, mut door) = Door::new();
    let mut worker = between.worker(&stage, timing, Handlers::new().on_queue(queues::QUEUE, handler)).await;
    let events = (0..4).map(|at| queues::email(queues::canvas(1 + u128::from(at % 2)), at)).collect();
    stage.queue.emit_all(events).await.unwrap();
    door.arrived.take(2).await;
    worker.until_count(2, Outcome::FacetHeld).await;
    let began = Instant::now();
    door.open(2);
    door.arrived.take(2).await;
    let waited = began.elapsed();
    assert!(waited < Duration::from_secs(1), "one waited for its promise: {waited:?}");
    door.open(2);
    worker.until_count(4, Outcome::Deleted).await;
    worker.stop().await;
}

/// A stranger holds a row until its claim has run out. Then the renewal that waited for the row is carried out, though the run has
/// given the event up: that is not to cost it another lease.
#[tokio::test]
async fn a_claim_that_is_revived_after_it_was_given_up_is_released() {
    if is_skipped("another session while a transaction is open") {
        return;
    }
    let timing = Timing { lease: Duration::from_secs(3), ..quick() };
    let (stage, _) = Stage::memory_with(timing.clone()).await;
    let patient = StoreConfig {
        timing: timing.clone(),
        lock_timeout: PATIENCE,
        statement_timeout: PATIENCE,
        ..StoreConfig::default()
    };
    let store = Store::connect(stage.database.url(), fit(patient)).await.unwrap();
    let (handler, mut door) = Door::new();
    let handlers = Handlers::new().on("greet", handler);
    let worker = Running::start(store, stage.notifier.clone(), handlers, WorkerConfig::default());
    let event = Event::new("greet", "x").unwrap().canvas(CanvasId(uuid::Uuid::from_u128(7)));
    let ids = [stage.emit("greet").await, stage.queue.emit(event).await.unwrap().id];
    door.arrived.take(2).await;
    let mut stranger = stage.pool.begin().await.unwrap();
    let lock = "select from wakeq.events_v2 where id = $1 for update";
    sqlx::query(lock).bind(ids[0].0).execute(&mut *stranger).await.unwrap();
    assert_eq!(door.left.take(2).await, [false, false], "both leases run out: they are renewed together");
    let released = Instant::now();
    stranger.rollback().await.unwrap();
    let again = door.arrived.take(2).await;
    let waited = released.elapsed();
    assert!(waited < timing.lease / 2, "another lease had to run out: {waited:?}");
    assert!(ids.iter().all(|id| again.iter().any(|event| event.id == *id)));
    door.open(2);
    worker.stop().await;
}

/// What the others rely on: the proxy changes nothing else.
#[tokio::test]
async fn a_worker_behind_it_works() {
    let (stage, _) = Stage::memory_with(quick()).await;
    let between = Between::new(&stage, "no statement says this", Answer::Lost).await;
    let (handler, mut seen) = telling();
    let mut worker = between.worker(&stage, quick(), Handlers::new().on("greet", handler)).await;
    stage.emit_many("greet", 20).await;
    worker.until_count(20, Outcome::Deleted).await;
    assert_eq!(seen.take(20).await.len(), 20);
    worker.stop().await;
}
