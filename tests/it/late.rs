//! Answers of Postgres that come late, or never, though what they tell of was done.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use wakeq::{Event, HandlerError, Handlers, Outcome, RetryPolicy, Route, Timing, WorkerConfig};

use crate::door::{Door, answering, telling};
use crate::support::{Running, Stage, connect, quick};

/// What becomes of the answer.
#[derive(Clone, Copy, Debug)]
enum Answer {
    /// It is handed out after that of a renewal that was asked later.
    AfterARenewal,
    /// Its connection breaks.
    Lost,
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

/// Nobody waits for the promise of the next event of an object.
async fn check_chain(answer: Answer) {
    let timing = Timing { grace: Duration::from_secs(20), ..quick() };
    let (stage, _) = Stage::memory_with(timing.clone()).await;
    let between = Between::new(&stage, LINK_COMPLETION, answer).await;
    let (handler, mut door) = Door::new();
    let mut worker = between.worker(&stage, timing, Handlers::new().on("greet", handler)).await;
    let events = (0..2).map(|at| Event::new("greet", &at).unwrap().on("lamp").unwrap()).collect();
    let emitted = stage.queue.emit_all(events).await.unwrap();
    door.arrived.next().await;
    worker.until(emitted[1].id, Outcome::EarlierLeft).await;
    let began = Instant::now();
    door.open(2);
    door.arrived.next().await;
    let waited = began.elapsed();
    assert!(waited < Duration::from_secs(10), "it waited for its promise: {waited:?}");
    worker.until_count(1, Outcome::HandedOver).await;
    worker.stop().await;
}

#[tokio::test]
async fn the_next_of_an_object_is_woken_though_a_renewal_overtakes() {
    check_chain(Answer::AfterARenewal).await;
}

#[tokio::test]
async fn the_next_of_an_object_is_woken_though_an_answer_is_lost() {
    check_chain(Answer::Lost).await;
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
