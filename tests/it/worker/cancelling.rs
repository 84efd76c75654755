//! Events that are cancelled while they run: what their handlers learn, when they are cut off, and
//! what becomes of an event whose handler never learned of it.

use std::time::Duration;

use tokio::time::Instant;
use wakeq::control::Explanation;
use wakeq::machine::Outcome;
use wakeq::workers::{CancelReason, RunReport};
use wakeq::{
    Actor, AdminError, CanvasId, Event, EventId, Execution, HandlerError, HandlerResult, Handlers,
    RetryPolicy, Route, Timing, WorkerConfig,
};

use crate::support::crash_scene::{figure, is_full, size};
use crate::support::handlers::{Door, answering};
use crate::support::{OTHER, RunningWorker, Stage, TIMEOUT, once, promised_late, quick, wait_while};

/// A test would not wait for it.
const FOREVER: Duration = Duration::from_secs(3600);
const RUNNING: &str = "select count(*) from wakeq.events_v2 where locked_at is not null";
const DEAD: &str = "select count(*) from wakeq.dead_events";
/// As another process does whose signals do not come here.
const CANCEL: &str = "update wakeq.events_v2 set cancelled_by = 'eve' where locked_at is not null";

/// Notes each renewal of a cancelled event.
const NOTE_RENEWALS: &str = "
    create table public.renewals (event uuid);
    create function public.note_renewal() returns trigger language plpgsql as $$
    begin
        insert into public.renewals values (new.id);
        return null;
    end $$;
    create trigger note_renewal after update on wakeq.events_v2 for each row
        when (old.cancelled_by is not null and new.locked_at > old.locked_at)
        execute function public.note_renewal()";
/// How long the statements may take that renew claims and delete events.
const STATEMENTS: Duration = Duration::from_secs(2);

fn ada() -> Actor {
    Actor::user("ada")
}

fn grace(cancel_grace: Duration) -> WorkerConfig {
    WorkerConfig { cancel_grace, ..WorkerConfig::default() }
}

/// A worker whose only handler waits behind a door, and stops in no way by itself.
fn ignoring(stage: &Stage, route: impl Into<Route>, cancel_grace: Duration) -> (RunningWorker, Door) {
    let (handler, door) = Door::new();
    (stage.worker_with(Handlers::new().on(route, handler), grace(cancel_grace)), door)
}

/// Waits until it should stop, and says why.
async fn heeding(event: Execution) -> HandlerResult {
    let reason = event.cancelled().await;
    Err(HandlerError::operational(format!("{reason:?}")))
}

async fn cancel(stage: &Stage, id: EventId) -> bool {
    let cancelled = stage.admin.cancel_running(CanvasId::DEFAULT, id, &ada()).await.unwrap();
    assert_eq!(cancelled.id, id);
    cancelled.running
}

/// No renewal and no minute's pass comes by itself while a test lasts.
///
/// The first pass of a worker may come at any time after its start, and would remove an event that
/// was cancelled until then.
async fn untold() -> Stage {
    let stage = Stage::memory_with(Timing { lease: TIMEOUT, ..promised_late() }).await.0;
    stage.execute("update wakeq.chores set next_at = now() + interval '10 min' where name = 'minute'").await;
    stage
}

fn end(report: &RunReport) -> &[Outcome] {
    &report.trail[report.trail.len() - 2..]
}

const GONE: [Outcome; 2] = [Outcome::Cancelled, Outcome::Deleted];

#[tokio::test]
async fn a_handler_that_heeds_it_stops_at_once() {
    let (stage, _) = Stage::memory().await;
    let mut worker = stage.worker_with(Handlers::new().on("render", heeding), grace(FOREVER));
    let ids = stage.emit_many("render", 2).await;
    wait_while!(stage.count(RUNNING).await < 2, "both run");
    assert!(cancel(&stage, ids[0]).await);
    let report = worker.until(ids[0], Outcome::Deleted).await;
    assert_eq!((end(&report), report.error.as_deref()), (&GONE[..], Some("Cancelled")));
    assert_eq!((stage.rows().await, stage.count(DEAD).await), (1, 0), "the other one runs");
    worker.stop().await;
}

/// It is dropped after its grace.
#[tokio::test]
async fn a_handler_that_ignores_it_is_cut_off() {
    let (stage, _) = Stage::memory().await;
    let (mut worker, mut door) = ignoring(&stage, "render", Duration::from_millis(50));
    let id = stage.emit("render").await;
    door.arrived.next().await;
    assert!(cancel(&stage, id).await);
    assert!(!door.left.next().await, "it was dropped");
    assert_eq!(end(&worker.until(id, Outcome::Deleted).await), GONE);
    assert_eq!((stage.rows().await, stage.count(DEAD).await), (0, 0));
    worker.stop().await;
}

#[tokio::test]
async fn a_handler_may_complete_within_its_grace() {
    let (stage, _) = Stage::memory().await;
    let (mut worker, mut door) = ignoring(&stage, "render", FOREVER);
    let id = stage.emit("render").await;
    let execution = door.arrived.next().await;
    assert!(!execution.is_cancelled());
    assert!(cancel(&stage, id).await);
    assert_eq!(execution.cancelled().await, CancelReason::Cancelled);
    door.open(1);
    let report = worker.until(id, Outcome::Deleted).await;
    assert_eq!(end(&report), [Outcome::ExecutesToCompletion, Outcome::Deleted]);
    worker.stop().await;
}

/// It is handed over as after any end, and the link is missing.
#[tokio::test]
async fn the_next_event_of_the_object_follows() {
    let (stage, _) = Stage::memory().await;
    let (mut worker, mut door) = ignoring(&stage, "render", Duration::ZERO);
    let event = |number: u32| Event::new("render", &number).unwrap().on("film:1").unwrap();
    let emitted = stage.queue.emit_all(vec![event(1), event(2)]).await.unwrap();
    door.arrived.next().await;
    assert!(cancel(&stage, emitted[0].id).await);
    let report = worker.until(emitted[0].id, Outcome::HandedOver).await;
    assert!(report.trail.contains(&Outcome::Cancelled), "{report:?}");
    assert_eq!(door.arrived.next().await.id, emitted[1].id);
    let film = "film:1".parse().unwrap();
    let missing = stage.admin.tombstones(CanvasId::DEFAULT, &film, None, 0, 10).await.unwrap();
    let missing: Vec<_> = missing.into_iter().map(|gone| (Some(gone.link), gone.cause)).collect();
    assert_eq!(missing, [(emitted[0].link, "cancelled".to_owned())]);
    door.open(1);
    worker.until(emitted[1].id, Outcome::HandedOver).await;
    worker.stop().await;
}

/// Handlers learn of a shutdown when it begins, and have its grace.
#[tokio::test]
async fn a_shutdown_is_told_when_it_begins() {
    let (stage, _) = Stage::memory().await;
    let (handler, mut door) = Door::new();
    let config = WorkerConfig { shutdown_grace: FOREVER, ..WorkerConfig::default() };
    let worker = stage.worker_with(Handlers::new().on("render", handler), config);
    stage.emit("render").await;
    let execution = door.arrived.next().await;
    assert_eq!(execution.cancel_reason(), None);
    worker.cancel();
    assert_eq!(execution.cancelled().await, CancelReason::Shutdown);
    door.open(1);
    worker.stop().await;
    assert_eq!(stage.rows().await, 0);
}

/// What a handler has started beside itself learns of a lost lease.
#[tokio::test]
async fn a_lost_lease_is_told() {
    let (stage, _) = Stage::memory_with(quick()).await;
    let (worker, mut door) = stage.door("render");
    stage.emit("render").await;
    let execution = door.arrived.next().await;
    stage.execute("update wakeq.events_v2 set claims = claims + 1").await;
    assert_eq!(execution.cancelled().await, CancelReason::LeaseLost);
    assert!(!door.left.next().await, "it was dropped");
    worker.stop().await;
}

#[tokio::test]
async fn a_handler_knows_when_it_times_out() {
    let (stage, _) = Stage::memory().await;
    let (handler, mut seen) = answering(|_| Ok(()));
    let handlers =
        Handlers::new().on(Route::new("timed").timeout(FOREVER), handler.clone()).on("free", handler);
    let worker = stage.worker(handlers);
    let before = Instant::now();
    stage.emit("timed").await;
    let deadline = seen.next().await.deadline().expect("its route has a time-out");
    assert!((before + FOREVER..=Instant::now() + FOREVER).contains(&deadline), "{deadline:?}");
    stage.emit("free").await;
    let free = seen.next().await;
    assert_eq!(free.deadline(), None);
    let by_hand = Execution::new(free.address.clone(), "1", free.claimed_at);
    assert_eq!((by_hand.deadline(), by_hand.cancel_reason()), (None, None));
    worker.stop().await;
}

/// Without a signal, the first renewal brings it. That comes within a third of the lease.
#[tokio::test]
async fn a_renewal_brings_it() {
    // So long that a busy machine has ended the run before the next renewal.
    let (stage, _) = Stage::memory_with(Timing { lease: Duration::from_secs(6), ..quick() }).await;
    stage.execute(NOTE_RENEWALS).await;
    let (mut worker, mut door) = ignoring(&stage, "render", Duration::ZERO);
    let id = stage.emit("render").await;
    door.arrived.next().await;
    stage.execute(CANCEL).await;
    assert_eq!(end(&worker.until(id, Outcome::Deleted).await), GONE);
    assert_eq!(
        stage.count("select count(*) from public.renewals").await,
        1,
        "the first one after the cancel"
    );
    worker.stop().await;
}

/// The same for many, whose handlers use up their grace. At full size lease and grace are those of
/// a deployment, and the time is measured.
#[tokio::test]
async fn a_cancelled_run_ends_within_a_third_of_the_lease_and_its_grace() {
    let (count, defaults) = (size(4, 60), WorkerConfig::default());
    let (timing, cancel_grace) = if is_full() {
        (Timing::default(), defaults.cancel_grace)
    } else {
        (quick(), Duration::from_millis(50))
    };
    let longest = timing.lease / 3 + cancel_grace;
    let (stage, _) = Stage::memory_with(timing).await;
    let (mut worker, mut door) = ignoring(&stage, "render", cancel_grace);
    stage.emit_many("render", count).await;
    for _ in 0..count {
        door.arrived.next().await;
    }
    let cancelled = Instant::now();
    stage.execute(CANCEL).await;
    worker.until_count(count, Outcome::Deleted).await;
    let took = cancelled.elapsed();
    assert_eq!((stage.rows().await, stage.count(DEAD).await), (0, 0));
    figure("runs", count);
    figure("a third of the lease and the grace", format!("{longest:.1?}"));
    figure("the last one was gone after", format!("{took:.1?}"));
    // What is promised is a time, so the chore measures it, and `cargo test` only that all end.
    assert!(!is_full() || took <= longest + STATEMENTS, "{took:?}");
    worker.stop().await;
}

/// Its handler fails before it is told: instead of the retry, the minute's pass removes it,
/// whatever holds it. An event of another tenant that waits alike stays.
#[tokio::test]
async fn an_event_that_failed_before_it_was_told_is_not_retried() {
    let stage = untold().await;
    let retry = RetryPolicy { delay: FOREVER, ..RetryPolicy::default() };
    let (mut worker, mut door) = ignoring(&stage, Route::new("render").retry(retry), FOREVER);
    let id = stage.emit("render").await;
    door.arrived.next().await;
    stage.execute(CANCEL).await;
    let theirs = stage.queue.emit(Event::new("render", &1).unwrap().canvas(OTHER)).await.unwrap().id;
    door.arrived.next().await;
    for failing in [id, theirs] {
        door.answer(Err(HandlerError::operational("no")));
        worker.until(failing, Outcome::RetryAllowed).await;
    }
    let live = stage.live(CanvasId::DEFAULT, id).await;
    assert_eq!(live.cancelled_by.as_deref(), Some("eve"));
    assert_eq!(live.next(), "was cancelled while it ran, and is deleted within a minute");
    stage.admin.wake(false).await.unwrap();
    assert_eq!(stage.admin.explain(CanvasId::DEFAULT, id).await.unwrap(), Explanation::Unknown);
    assert_eq!((stage.rows().await, stage.live(OTHER, theirs).await.retries), (1, 1));
    worker.stop().await;
}

/// Its last retry fails before it is told: it is not among the dead, and halts nothing.
#[tokio::test]
async fn an_event_that_failed_for_the_last_time_is_not_dead() {
    let stage = untold().await;
    let (mut worker, mut door) = ignoring(&stage, once("render").halt_on_death(), FOREVER);
    let event = |number: u32| Event::new("render", &number).unwrap().on("film:1").unwrap();
    let emitted = stage.queue.emit_all(vec![event(1), event(2)]).await.unwrap();
    door.arrived.next().await;
    stage.execute(CANCEL).await;
    door.answer(Err(HandlerError::operational("no")));
    worker.until(emitted[0].id, Outcome::HandedOver).await;
    assert_eq!(door.arrived.next().await.id, emitted[1].id, "nothing is halted");
    assert_eq!(stage.count(DEAD).await, 0);
    door.open(1);
    worker.until(emitted[1].id, Outcome::HandedOver).await;
    worker.stop().await;
}

/// A shutdown released it before it was told: the next worker deletes it instead of starting it.
#[tokio::test]
async fn the_next_worker_does_not_start_it() {
    let stage = untold().await;
    let (handler, mut door) = Door::new();
    let handlers = Handlers::new().on("render", handler);
    let config = WorkerConfig { shutdown_grace: Duration::ZERO, ..WorkerConfig::default() };
    let worker = stage.worker_with(handlers.clone(), config);
    let id = stage.emit("render").await;
    door.arrived.next().await;
    stage.execute(CANCEL).await;
    worker.stop().await;
    assert_eq!(stage.rows().await, 1);
    let mut heir = stage.worker(handlers);
    let report = heir.until(id, Outcome::Deleted).await;
    assert_eq!((end(&report), report.attempt), (&GONE[..], None));
    assert_eq!((stage.rows().await, door.arrived.rest().len()), (0, 0));
    heir.stop().await;
}

/// Who may, what for, and what stays in the record.
#[tokio::test]
async fn another_tenant_cancels_nothing_and_the_record_has_one_line() {
    let (stage, _) = Stage::memory().await;
    let (worker, mut door) = ignoring(&stage, "render", FOREVER);
    let id = stage.emit("render").await;
    door.arrived.next().await;
    let theirs = stage.admin.cancel_running(OTHER, id, &ada()).await;
    assert!(matches!(theirs, Err(AdminError::NotFound(_))), "{theirs:?}");
    assert_eq!(stage.live(CanvasId::DEFAULT, id).await.cancelled_by, None);
    let wrong = stage.admin.cancel_running(CanvasId::DEFAULT, id, &Actor::user("")).await;
    assert!(matches!(wrong, Err(AdminError::Invalid(_))), "{wrong:?}");
    assert!(cancel(&stage, id).await);
    assert!(cancel(&stage, id).await, "once more");
    let live = stage.live(CanvasId::DEFAULT, id).await;
    assert_eq!((live.state.as_str(), live.cancelled_by.as_deref()), ("running", Some("ada")));
    assert!(live.next().contains("told to stop"), "{}", live.next());
    let lines = stage.admin.audit(CanvasId::DEFAULT, None, 10).await.unwrap().items;
    let lines: Vec<_> =
        lines.iter().map(|line| (line.actor.as_str(), line.action.as_str(), line.event_id)).collect();
    assert_eq!(lines, [("ada", "cancel-running", Some(id))]);
    door.open(1);
    worker.stop().await;
}

/// An event that does not run is deleted as by a plain cancel.
#[tokio::test]
async fn a_waiting_event_is_deleted() {
    let (stage, _) = Stage::memory().await;
    let id = stage.emit("render").await;
    assert!(!cancel(&stage, id).await);
    let again = stage.admin.cancel_running(CanvasId::DEFAULT, id, &ada()).await;
    assert!(matches!(again, Err(AdminError::NotFound(_))), "{again:?}");
    assert_eq!(stage.rows().await, 0);
}
