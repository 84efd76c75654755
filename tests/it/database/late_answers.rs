//! Answers from Postgres that come late, or never, although their statements took effect.

mod limits;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use wakeq::machine::Outcome;
use wakeq::queues::{NewQueue, PullPolicy, Release, ReleaseResult};
use wakeq::workers::Verdict;
use wakeq::{
    Actor, Admin, AdminError, CanvasId, Event, HandlerError, HandlerResult, Handlers, RetryPolicy, Route,
    Timing, WorkerConfig,
};

use crate::queues::turns;
use crate::support::handlers::{Door, answering, recording};
use crate::support::{RunningWorker, Stage, connect, once, promised_late, quick};

/// What happens to the answer.
#[derive(Clone, Copy, Debug)]
enum Answer {
    /// It is delivered after that of a later renewal.
    AfterARenewal,
    /// Its connection breaks.
    Lost,
    /// It never comes, and no error says so.
    Never,
    /// It comes late because its statement does: that is held back until the test lets it through.
    HeldBack,
}

/// The answers that end a statement.
const ENDS: [&[u8]; 4] = [b"SELECT ", b"DELETE ", b"UPDATE ", b"INSERT 0 "];
const RENEWAL: &[u8] = b"set locked_at = clock_timestamp()\n                where id = any";

/// A proxy between a worker and Postgres that interferes once: with the answer to the first
/// statement that contains a text.
struct AnswerProxy {
    url: String,
    shared: Arc<Shared>,
}

/// Shared by its connections.
struct Shared {
    text: &'static str,
    answer: Answer,
    found: AtomicBool,
    intercepted: AtomicBool,
    renewed: Notify,
    held_back: Notify,
    let_through: Notify,
}

fn has(chunk: &[u8], text: &[u8]) -> bool {
    chunk.windows(text.len()).any(|window| window == text)
}

impl AnswerProxy {
    async fn new(stage: &Stage, text: &'static str, answer: Answer) -> Self {
        let (server, database) = stage.database.url().rsplit_once('/').unwrap();
        let (credentials, address) = server.rsplit_once('@').unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("{credentials}@{}/{database}", listener.local_addr().unwrap());
        let (found, intercepted, renewed, held_back, let_through) = Default::default();
        let shared = Arc::new(Shared { text, answer, found, intercepted, renewed, held_back, let_through });
        let (address, of_all) = (address.to_owned(), Arc::clone(&shared));
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(&address).await.unwrap();
                tokio::spawn(forward(Arc::clone(&of_all), client, server));
            }
        });
        Self { url, shared }
    }

    /// Asserts that a statement had the text and its answer was treated like that.
    fn assert_found(&self) {
        assert!(self.shared.intercepted.load(Ordering::SeqCst), "no statement says {:?}", self.shared.text);
    }

    async fn worker(&self, stage: &Stage, timing: Timing, handlers: Handlers) -> RunningWorker {
        let store = connect(&self.url, timing).await;
        RunningWorker::start(store, stage.notifier.clone(), handlers, WorkerConfig::default())
    }

    async fn admin(&self, stage: &Stage, timing: Timing) -> Admin {
        Admin::new(connect(&self.url, timing).await, stage.notifier.clone())
    }
}

async fn forward(shared: Arc<Shared>, mut client: TcpStream, mut server: TcpStream) {
    let (mut request, mut response) = (vec![0; 65_536], vec![0; 65_536]);
    let (mut awaited, mut renews, mut renews_later) = (false, false, false);
    loop {
        tokio::select! {
            read = client.read(&mut request) => {
                let Ok(read @ 1..) = read else { return };
                let words = &request[..read];
                let is_meant =
                    has(words, shared.text.as_bytes()) && !shared.found.swap(true, Ordering::SeqCst);
                awaited |= is_meant;
                if is_meant && matches!(shared.answer, Answer::HeldBack) {
                    shared.held_back.notify_one();
                    shared.let_through.notified().await;
                }
                renews |= has(words, RENEWAL);
                renews_later = renews && shared.intercepted.load(Ordering::SeqCst);
                if server.write_all(words).await.is_err() { return }
            }
            read = server.read(&mut response) => {
                let Ok(read @ 1..) = read else { return };
                let words = &response[..read];
                let ends = ENDS.iter().any(|end| has(words, end));
                if ends && std::mem::take(&mut awaited) {
                    shared.intercepted.store(true, Ordering::SeqCst);
                    match shared.answer {
                        Answer::AfterARenewal => shared.renewed.notified().await,
                        Answer::HeldBack => {}
                        Answer::Lost => return,
                        Answer::Never => {
                            // Until the worker gives up.
                            let _ = client.read(&mut request).await;
                            return;
                        }
                    }
                }
                if client.write_all(words).await.is_err() { return }
                if ends && std::mem::take(&mut renews_later) {
                    // The worker acts on the renewal's answer first. Nothing shows when it has.
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
const ROOMS: &str = "select f.number as";
const RETRY: &str = "set retries = ($3";
const DEATH: &str = "insert into wakeq.dead_events";

/// Runs one event; returns its run's outcome.
async fn check(text: &'static str, answer: Answer, retries: u32, fails: bool) -> Outcome {
    let (stage, _) = Stage::memory_with(quick()).await;
    let proxy = AnswerProxy::new(&stage, text, answer).await;
    let (handler, _seen) =
        answering(move |_| if fails { Err(HandlerError::operational("no")) } else { Ok(()) });
    let route = Route::new("greet").retry(RetryPolicy { retries, ..RetryPolicy::default() });
    let mut worker = proxy.worker(&stage, quick(), Handlers::new().on(route, handler)).await;
    stage.emit("greet").await;
    let outcome = *worker.report().await.trail.last().unwrap();
    proxy.assert_found();
    worker.stop().await;
    outcome
}

/// The statement took effect, and a renewal finds no claim before its answer arrives, or the answer
/// is lost.
#[tokio::test]
async fn an_end_with_a_late_or_lost_answer_is_recognized() {
    for (text, answer, retries, fails, outcome) in [
        (COMPLETION, Answer::AfterARenewal, 2, false, Outcome::Deleted),
        (RETRY, Answer::AfterARenewal, 2, true, Outcome::RetryAllowed),
        (DEATH, Answer::AfterARenewal, 0, true, Outcome::Deleted),
        (COMPLETION, Answer::Lost, 2, false, Outcome::Deleted),
        (DEATH, Answer::Lost, 0, true, Outcome::Deleted),
    ] {
        assert_eq!(check(text, answer, retries, fails).await, outcome, "{text}: {answer:?}");
    }
}

/// The worker learns that the retry was saved, and it counts once, although a repeat of the
/// statement finds no claim.
async fn check_saved(error: fn() -> HandlerError, outcome: Outcome, retries: i32) {
    let (stage, _) = Stage::memory_with(quick()).await;
    let proxy = AnswerProxy::new(&stage, RETRY, Answer::Lost).await;
    let (handler, _seen) = answering(move |_| Err(error()));
    let soon = RetryPolicy { delay: Duration::from_secs(1), ..RetryPolicy::default() };
    let handlers = Handlers::new().on(Route::new("greet").retry(soon), handler);
    let mut worker = proxy.worker(&stage, quick(), handlers).await;
    let id = stage.emit("greet").await;
    let report = worker.report().await;
    assert_eq!((report.trail.last(), report.notification.id), (Some(&outcome), id));
    assert!(matches!(report.verdict, Verdict::Waits(_)), "{:?}", report.verdict);
    let row = "select retries, locked_at is null, delay_until > now() from wakeq.events_v2 where id = $1";
    let row: (i32, bool, bool) = sqlx::query_as(row).bind(id.0).fetch_one(&stage.pool).await.unwrap();
    assert_eq!(row, (retries, true, true));
    proxy.assert_found();
    worker.stop().await;
}

#[tokio::test]
async fn a_retry_with_a_lost_answer_is_recognized() {
    let busy = || HandlerError::operational("busy").retry_after(Duration::from_secs(30));
    check_saved(busy, Outcome::RetryAllowed, 1).await;
}

#[tokio::test]
async fn a_postponement_with_a_lost_answer_is_recognized() {
    check_saved(|| HandlerError::not_yet(Duration::from_secs(30)), Outcome::Postponed, 0).await;
}

/// The first of two events on an object ends like this, and the next does not have to wait for its
/// promise, which lies beyond the limit of a test.
async fn check_chain(text: &'static str, answer: Answer, verdict: HandlerResult, outcome: Outcome) {
    let timing = promised_late();
    let (stage, _) = Stage::memory_with(timing.clone()).await;
    let proxy = AnswerProxy::new(&stage, text, answer).await;
    let (handler, mut door) = Door::new();
    let mut worker = proxy.worker(&stage, timing, Handlers::new().on(once("greet"), handler)).await;
    let events = (0..2).map(|at| Event::new("greet", &at).unwrap().on("lamp").unwrap()).collect();
    let emitted = stage.queue.emit_all(events).await.unwrap();
    door.arrived.next().await;
    worker.until(emitted[1].id, Outcome::EarlierLeft).await;
    door.answer(verdict);
    assert_eq!(door.arrived.next().await.id, emitted[1].id);
    worker.until(emitted[0].id, outcome).await;
    door.open(1);
    worker.until(emitted[1].id, Outcome::HandedOver).await;
    proxy.assert_found();
    worker.stop().await;
}

/// In the last case the answer never comes: the claim runs out, and the run knows nothing, except
/// that the next event may have its turn.
// Shows: ORD-22
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn the_next_of_an_object_is_woken_though_an_answer_is_late_or_lost() {
    let dies = || Err(HandlerError::operational("no"));
    for (text, answer, verdict, outcome) in [
        (LINK_COMPLETION, Answer::AfterARenewal, Ok(()), Outcome::HandedOver),
        (LINK_COMPLETION, Answer::Lost, Ok(()), Outcome::HandedOver),
        (FIRSTS, Answer::Lost, Ok(()), Outcome::HandedOver),
        (DEATH, Answer::Lost, dies(), Outcome::HandedOver),
        (DEATH, Answer::AfterARenewal, dies(), Outcome::HandedOver),
        (LINK_COMPLETION, Answer::Never, Ok(()), Outcome::FencedOut),
    ] {
        println!("{text}: {answer:?}");
        check_chain(text, answer, verdict, outcome).await;
    }
}

/// Each of two canvases may have one copy of a queue in flight, and another one waits: whichever
/// look for room gets no answer is repeated.
#[tokio::test]
async fn the_next_of_a_facet_is_woken_though_the_look_for_it_gets_no_answer() {
    let timing = promised_late();
    let (stage, _) = Stage::memory_with(timing.clone()).await;
    turns::register(&stage, 1, Some(1)).await;
    let proxy = AnswerProxy::new(&stage, ROOMS, Answer::Lost).await;
    let (handler, mut door) = Door::new();
    let mut worker = proxy.worker(&stage, timing, Handlers::new().on_queue(turns::QUEUE, handler)).await;
    let events = (0..4).map(|at| turns::email(turns::canvas(1 + u128::from(at % 2)), at)).collect();
    stage.queue.emit_all(events).await.unwrap();
    door.arrived.take(2).await;
    worker.until_count(2, Outcome::FacetHeld).await;
    door.open(2);
    door.arrived.take(2).await;
    door.open(2);
    worker.until_count(4, Outcome::Deleted).await;
    proxy.assert_found();
    worker.stop().await;
}

/// What services and operators end, on two canvases, is removed although the answer is lost; and
/// the next event of its object has its turn.
async fn check_ended(text: &'static str, dies: bool) {
    let timing = promised_late();
    let (stage, _) = Stage::memory_with(timing.clone()).await;
    let (queue, operator) = (turns::QUEUE.parse().unwrap(), Actor::user("test"));
    let pulled = NewQueue {
        patterns: vec![":email_event:".parse().unwrap()],
        pull: Some(PullPolicy { retries: 0, ..PullPolicy::default() }),
        ..NewQueue::default()
    };
    stage.admin.put_queue(&queue, &pulled, &operator).await.unwrap();
    let on_object = |at: u64| turns::email(turns::canvas(u128::from(1 + at % 2)), at).on("lamp").unwrap();
    stage.queue.emit_all((0..4).map(on_object).collect()).await.unwrap();
    let lease = async |values: [&str; 2]| {
        let mut copies = stage.admin.lease_copies(&queue, 10, timing.lease, Duration::ZERO).await.unwrap();
        copies.sort_by(|one, other| one.value.cmp(&other.value));
        assert_eq!(copies.iter().map(|copy| &*copy.value).collect::<Vec<_>>(), values);
        copies
    };
    for copy in lease(["0", "1"]).await {
        let proxy = AnswerProxy::new(&stage, text, Answer::Lost).await;
        let admin = proxy.admin(&stage, timing.clone()).await;
        if dies {
            let failed = Release { error: Some("no".into()), ..Default::default() };
            let released = admin.release_copy(&queue, copy.id, &copy.lease, &failed).await.unwrap();
            assert_eq!(released, ReleaseResult::Died);
        } else {
            admin.complete_copy(&queue, copy.id, &copy.lease).await.unwrap();
        }
        proxy.assert_found();
    }
    lease(["2", "3"]).await;
}

#[tokio::test]
async fn a_copy_whose_completion_gets_no_answer_makes_room() {
    check_ended(LINK_COMPLETION, false).await;
}

#[tokio::test]
async fn a_copy_whose_death_gets_no_answer_makes_room() {
    check_ended(DEATH, true).await;
}

/// A cancel succeeds although the answer is lost, and the next event of its object is woken.
#[tokio::test]
async fn the_next_of_an_object_is_woken_though_the_answer_to_a_cancel_is_lost() {
    let timing = promised_late();
    let (stage, _) = Stage::memory_with(timing.clone()).await;
    let canvases = [1, 2].map(turns::canvas);
    let on_object = |at: usize| {
        let event = Event::new("greet", &at).unwrap().canvas(canvases[at % 2]).on("lamp").unwrap();
        if at < 2 { event.after(Duration::from_secs(3600)).unwrap() } else { event }
    };
    let emitted = stage.queue.emit_all((0..4).map(on_object).collect()).await.unwrap();
    let (handler, mut seen) = recording();
    let mut worker = stage.worker(Handlers::new().on("greet", handler));
    worker.until_count(2, Outcome::EarlierLeft).await;
    for (at, canvas) in canvases.into_iter().enumerate() {
        let proxy = AnswerProxy::new(&stage, "'cancel'", Answer::Lost).await;
        let admin = proxy.admin(&stage, timing.clone()).await;
        let (id, operator) = (emitted[at].id, Actor::user("test"));
        let elsewhere = admin.cancel(canvases[1 - at], id, &operator).await;
        assert!(matches!(elsewhere, Err(AdminError::NotFound(_))), "{elsewhere:?}");
        assert_eq!(admin.cancel(canvas, id, &operator).await.unwrap(), id);
        proxy.assert_found();
    }
    let seen = seen.take(2).await;
    assert!(emitted[2..].iter().all(|next| seen.iter().any(|event| event.id == next.id)));
    worker.stop().await;
}

/// Another session holds a row until its claim has run out. Then the renewal that waited for the
/// row takes effect, although the run has given the event up: that must not cost another lease.
#[tokio::test]
async fn a_claim_that_is_revived_after_it_was_given_up_is_released() {
    let timing = Timing { lease: Duration::from_secs(3), ..quick() };
    let (stage, _) = Stage::memory_with(timing.clone()).await;
    let store = stage.patient(timing.clone()).await;
    let (handler, mut door) = Door::new();
    let handlers = Handlers::new().on("greet", handler);
    let worker = RunningWorker::start(store, stage.notifier.clone(), handlers, WorkerConfig::default());
    let other = CanvasId(uuid::Uuid::from_u128(7));
    let event = Event::new("greet", "x").unwrap().canvas(other);
    let ids = [stage.emit("greet").await, stage.queue.emit(event).await.unwrap().id];
    door.arrived.take(2).await;
    let mut stranger = stage.pool.begin().await.unwrap();
    let lock = "select from wakeq.events_v2 where id = $1 for update";
    sqlx::query(lock).bind(ids[0].0).execute(&mut *stranger).await.unwrap();
    assert_eq!(door.left.take(2).await, [false, false], "both leases run out: they are renewed together");
    stranger.rollback().await.unwrap();
    let again = door.arrived.take(2).await;
    for (id, canvas) in ids.into_iter().zip([CanvasId::DEFAULT, other]) {
        assert!(again.iter().any(|event| event.id == id));
        assert_eq!(stage.live(canvas, id).await.losses, 0, "another lease had to run out");
    }
    door.open(2);
    worker.stop().await;
}

/// The others rely on this: the proxy changes nothing else.
#[tokio::test]
async fn the_proxy_changes_nothing_else() {
    let (stage, _) = Stage::memory_with(quick()).await;
    let proxy = AnswerProxy::new(&stage, "no statement says this", Answer::Lost).await;
    let (handler, mut seen) = recording();
    let mut worker = proxy.worker(&stage, quick(), Handlers::new().on("greet", handler)).await;
    stage.emit_many("greet", 20).await;
    worker.until_count(20, Outcome::Deleted).await;
    assert_eq!(seen.take(20).await.len(), 20);
    worker.stop().await;
}
