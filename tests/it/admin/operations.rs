//! What operators do to single events and to the dead: cancel, run now, purge, redrive, wake.

use std::time::Duration;

use wakeq::control::{DeadEvent, DeadFilter};
use wakeq::machine::Outcome;
use wakeq::{Actor, AdminError, CanvasId, Event, EventId, HandlerError, HandlerScope, Handlers};

use crate::support::handlers::recording;
use crate::support::{RunningWorker, Stage, once, scope};

fn ada() -> Actor {
    Actor::user("ada")
}

async fn cancel(stage: &Stage, id: EventId) -> Result<EventId, AdminError> {
    stage.admin.cancel(CanvasId::DEFAULT, id, &ada()).await
}

async fn purge(stage: &Stage, scope: &HandlerScope, dry_run: bool) -> u64 {
    stage.admin.purge(scope, &ada(), dry_run).await.unwrap().count
}

async fn redrive(stage: &Stage, filter: &DeadFilter) -> u64 {
    stage.admin.redrive(filter, &ada(), false).await.unwrap().count
}

async fn dead_of(stage: &Stage, filter: &DeadFilter, limit: u32) -> Vec<DeadEvent> {
    stage.admin.dead(filter, None, limit).await.unwrap().items
}

async fn emit_later(stage: &Stage, name: &str) -> EventId {
    let event = Event::new(name, "x").unwrap().after(Duration::from_secs(300)).unwrap();
    stage.queue.emit(event).await.unwrap().id
}

/// A worker under which this many events of the handler died.
async fn dying(stage: &Stage, name: &str, count: usize) -> (RunningWorker, Vec<EventId>) {
    let (mut worker, _seen) = stage.answering(once(name), |_| Err(HandlerError::operational("no")));
    let ids = stage.emit_many(name, count).await;
    worker.until_count(count, Outcome::Deleted).await;
    (worker, ids)
}

#[tokio::test]
async fn a_waiting_event_can_be_cancelled_and_a_running_one_not() {
    let (stage, notifier) = Stage::memory().await;
    let (mut worker, mut door) = stage.door("greet");
    let delayed = emit_later(&stage, "greet").await;
    worker.until(delayed, Outcome::DelayNotYet).await;
    cancel(&stage, delayed).await.unwrap();
    let running = stage.emit("greet").await;
    door.arrived.next().await;
    let run_now = async |id| stage.admin.run_now(CanvasId::DEFAULT, id, &ada()).await;
    for refused in [cancel(&stage, running).await, run_now(running).await] {
        assert!(matches!(refused, Err(AdminError::NotWaiting(named)) if named == running));
    }
    for id in [delayed, EventId::new()] {
        for refused in [cancel(&stage, id).await, run_now(id).await] {
            assert!(matches!(refused, Err(AdminError::NotFound(named)) if named == id));
        }
    }
    door.open(1);
    worker.until(running, Outcome::Deleted).await;
    // EV2-15: the row is gone, so the notification in the parking lot does nothing.
    let lot = [wakeq::notify::Notification { id: delayed, canvas: CanvasId::DEFAULT }];
    stage.notifier.publish(&lot).await.unwrap();
    worker.until(delayed, Outcome::EventMissing).await;
    notifier.drained().await;
    assert!(door.arrived.rest().is_empty());
    worker.stop().await;
}

#[tokio::test]
async fn a_purge_deletes_what_nobody_runs_of_one_handler() {
    let (stage, _) = Stage::memory().await;
    let (mut worker, mut door) = stage.door("greet");
    let running = stage.emit("greet").await;
    door.arrived.next().await;
    for _ in 0..3 {
        emit_later(&stage, "greet").await;
    }
    let other = emit_later(&stage, "other").await;
    let of_another_canvas = HandlerScope { canvas: CanvasId(uuid::Uuid::new_v4()), ..scope("greet") };
    assert_eq!(purge(&stage, &of_another_canvas, false).await, 0);
    assert_eq!(purge(&stage, &scope("greet"), true).await, 3);
    assert_eq!(stage.rows().await, 5, "a dry run deletes nothing");
    assert_eq!(purge(&stage, &scope("greet"), false).await, 3);
    door.open(1);
    worker.until(running, Outcome::Deleted).await;
    assert_eq!(stage.rows().await, 1);
    cancel(&stage, other).await.unwrap();
    worker.stop().await;
}

/// More than a page.
#[tokio::test]
async fn a_purge_goes_on_to_the_end() {
    let (stage, _) = Stage::memory().await;
    stage.emit_many("greet", 2100).await;
    assert_eq!(purge(&stage, &scope("greet"), false).await, 2100);
    assert_eq!(stage.rows().await, 0);
}

async fn add_dead(stage: &Stage, count: i32) {
    let dead = "insert into wakeq.dead_events (id, canvas_id, module, name, modifier, value, retries, enqueued_at, claims,
                                               losses, cause, died_at)
                select gen_random_uuid(), $1, 'WORKER', 'greet', '_', '1', 2, now(), 3, 0, 'retries',
                       now() - interval '1 h' + n * interval '1 ms'
                  from generate_series(1, $2) n";
    sqlx::query(dead).bind(CanvasId::DEFAULT.0).bind(count).execute(&stage.pool).await.unwrap();
}

/// Rows that others hold at that moment are left, and the answer says so.
#[tokio::test]
async fn what_others_hold_is_more() {
    let Some((stage, _)) = Stage::beside_others().await else { return };
    stage.emit_many("greet", 5).await;
    add_dead(&stage, 5).await;
    let mut other = stage.pool.begin().await.unwrap();
    for held in [
        "select id from wakeq.events_v2 limit 2 for update",
        "select id from wakeq.dead_events limit 2 for update",
    ] {
        sqlx::query(held).execute(&mut *other).await.unwrap();
    }
    let all = DeadFilter::default();
    let purged = stage.admin.purge(&scope("greet"), &ada(), false).await.unwrap();
    let deleted = stage.admin.delete_dead(&all, &ada(), false).await.unwrap();
    let redriven = stage.admin.redrive(&all, &ada(), false).await.unwrap();
    assert_eq!([(purged.count, purged.more), (deleted.count, deleted.more)], [(3, true); 2]);
    assert_eq!((redriven.count, redriven.more), (0, true));
    other.rollback().await.unwrap();
    let purged = stage.admin.purge(&scope("greet"), &ada(), false).await.unwrap();
    let deleted = stage.admin.delete_dead(&all, &ada(), false).await.unwrap();
    assert_eq!([(purged.count, purged.more), (deleted.count, deleted.more)], [(2, false); 2]);
}

/// An open transaction that emits the id of a dead event holds up that event, not the others behind
/// it.
#[tokio::test]
async fn a_redrive_passes_ids_that_are_being_emitted() {
    let Some((stage, _)) = Stage::beside_others().await else { return };
    add_dead(&stage, 1200).await;
    let mut other = stage.pool.begin().await.unwrap();
    let emitted = "insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value)
                   select id, canvas_id, 'WORKER', 'later', '_', '1' from (
                       (select * from wakeq.dead_events order by died_at limit 1)
                        union all
                       (select * from wakeq.dead_events order by died_at offset 40 limit 1)) as dead";
    sqlx::query(emitted).execute(&mut *other).await.unwrap();
    let all = DeadFilter::default();
    let redriven = stage.admin.redrive(&all, &ada(), false).await.unwrap();
    assert_eq!((redriven.count, redriven.more), (1198, true));
    other.commit().await.unwrap();
    let redriven = stage.admin.redrive(&all, &ada(), false).await.unwrap();
    assert_eq!((redriven.count, redriven.more), (0, false), "their ids live again");
    assert_eq!(dead_of(&stage, &all, 10).await.len(), 2, "they are kept");
}

/// A redriven event keeps its id and its fencing token, and starts over.
#[tokio::test]
async fn dead_events_are_brought_back_by_id_and_by_handler() {
    let (stage, _) = Stage::memory().await;
    let (worker, ids) = dying(&stage, "greet", 3).await;
    worker.stop().await;
    let (mut worker, mut seen) = stage.recording("greet");
    let nobody = DeadFilter { scope: Some(scope("other")), ..DeadFilter::default() };
    assert_eq!(redrive(&stage, &nobody).await, 0);
    let elsewhere = DeadFilter { canvas: CanvasId(uuid::Uuid::new_v4()), ..DeadFilter::default() };
    assert_eq!(redrive(&stage, &elsewhere).await, 0);
    assert_eq!(redrive(&stage, &DeadFilter { id: Some(ids[1]), ..DeadFilter::default() }).await, 1);
    assert_eq!(worker.until(ids[1], Outcome::Deleted).await.attempt, Some(1));
    let all = DeadFilter { scope: Some(scope("greet")), ..DeadFilter::default() };
    assert_eq!(redrive(&stage, &all).await, 2);
    worker.until_count(2, Outcome::Deleted).await;
    let mut ran: Vec<_> = seen.take(3).await.into_iter().map(|event| event.id).collect();
    ran.sort();
    assert_eq!(ran, ids);
    worker.stop().await;
}

/// A broker that is down holds up the waking, not the redrive: every page is redriven and counted.
#[tokio::test]
async fn a_redrive_reaches_its_end_without_a_broker() {
    let (stage, notifier) = Stage::memory().await;
    add_dead(&stage, 2500).await;
    notifier.break_down("away");
    let redriven = stage.admin.redrive(&DeadFilter::default(), &ada(), false).await.unwrap();
    assert_eq!((redriven.count, redriven.more), (2500, false));
    assert_eq!(stage.rows().await, 2500);
    assert_eq!(dead_of(&stage, &DeadFilter::default(), 10).await, []);
}

/// An event that dies again during the redrive stays dead, even if the filter reaches into the
/// future.
#[tokio::test]
async fn a_redrive_ends_though_its_events_die_again() {
    let (stage, _) = Stage::memory().await;
    let (mut worker, ids) = dying(&stage, "greet", 5).await;
    let future = stage.admin.clock().await.unwrap() + Duration::from_secs(3600);
    assert_eq!(redrive(&stage, &DeadFilter { before: Some(future), ..DeadFilter::default() }).await, 5);
    worker.until_count(5, Outcome::Deleted).await;
    assert_eq!(dead_of(&stage, &DeadFilter::default(), 100).await.len(), ids.len());
    let claims: Vec<i32> =
        sqlx::query_scalar("select claims from wakeq.dead_events").fetch_all(&stage.pool).await.unwrap();
    assert_eq!(claims, [2; 5], "the fencing token is never reset");
    worker.stop().await;
}

/// The list of the dead is limited, filtered by time, and starts with the latest.
#[tokio::test]
async fn dead_events_are_listed_from_the_latest() {
    let (stage, _) = Stage::memory().await;
    let (worker, _ids) = dying(&stage, "greet", 4).await;
    worker.stop().await;
    let dead = dead_of(&stage, &DeadFilter::default(), 100).await;
    assert!(dead.windows(2).all(|pair| pair[0].died_at >= pair[1].died_at));
    assert_eq!(dead_of(&stage, &DeadFilter::default(), 2).await, dead[..2]);
    let since = DeadFilter { since: Some(dead[0].died_at), ..DeadFilter::default() };
    let before = DeadFilter { before: Some(dead[0].died_at), ..DeadFilter::default() };
    let (since, before) = (dead_of(&stage, &since, 100).await, dead_of(&stage, &before, 100).await);
    assert_eq!([since, before].concat(), dead);
}

/// With every message purged, `wake --all` publishes from the rows.
// Shows: EV2-15
#[tokio::test]
async fn waking_all_replaces_every_lost_message() {
    let (stage, notifier) = Stage::memory().await;
    let ids = stage.emit_many("greet", 1200).await;
    notifier.forget_everything();
    let (handler, mut seen) = recording();
    assert_eq!(stage.admin.wake(true).await.unwrap().woken, 1200);
    let worker = stage.worker(Handlers::new().on("greet", handler));
    let mut ran: Vec<_> = seen.take(1200).await.into_iter().map(|event| event.id).collect();
    ran.sort();
    assert_eq!(ran, ids);
    notifier.drained().await;
    assert_eq!(stage.rows().await, 0);
    worker.stop().await;
}

/// A pass that the broker refuses costs the events the grace, not the back-off.
#[tokio::test]
async fn a_pass_without_a_broker_promises_again() {
    let (stage, notifier) = Stage::memory().await;
    stage.emit_many("greet", 3).await;
    notifier.break_down("away");
    stage.admin.wake(true).await.unwrap_err();
    let soon = "select count(*) from wakeq.events_v2
                 where notify_at between now() + interval '20 s' and now() + interval '30 s' and probes = 0";
    assert_eq!(stage.count(soon).await, 3);
}

/// `wake` does not wait for the minute.
#[tokio::test]
async fn waking_publishes_the_overdue_at_once() {
    let (stage, notifier) = Stage::memory().await;
    stage.admin.wake(false).await.unwrap();
    stage.emit_many("greet", 3).await;
    let published = notifier.published().len();
    assert_eq!(stage.admin.wake(false).await.unwrap().woken, 0, "their promises still stand");
    sqlx::query("update wakeq.events_v2 set notify_at = now()").execute(&stage.pool).await.unwrap();
    let pass = stage.admin.wake(false).await.unwrap();
    assert_eq!((pass.woken, notifier.published().len() - published), (3, 3));
}
