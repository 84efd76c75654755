//! What operators do: count, cancel, run now, purge, list dead events and redrive them, wake.

use std::time::Duration;

use wakeq::control::{DeadEvent, DeadFilter, HandlerStats, RuleKind};
use wakeq::machine::Outcome;
use wakeq::{Actor, AdminError, CanvasId, Event, EventId, HandlerError, HandlerScope, Handlers, Stop};

use crate::support::handlers::recording;
use crate::support::{RunningWorker, Stage, Statements, once, scope, wait_while};

impl Stage {
    async fn stats_of(&self, name: &str) -> HandlerStats {
        self.admin.stats(&scope(name)).await.unwrap().expect("the handler is listed")
    }

    /// Moves every event to the dead ones, like a worker that has given up.
    async fn kill_all(&self) {
        let kill = "with gone as (delete from wakeq.events_v2 returning *)
             insert into wakeq.dead_events (id, canvas_id, module, name, modifier, value, retries, enqueued_at, claims,
                                            losses, last_error, cause)
             select id, canvas_id, module, name, modifier, value, 2, enqueued_at, 3, 1, 'no', 'retries' from gone";
        self.pool.run(kill).await;
    }
}

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

/// EV2-09: none, five, five paused, five delayed; with one of them on a worker and one dead.
#[tokio::test]
async fn counts_say_what_events_wait_for() {
    let (stage, _) = Stage::memory().await;
    assert_eq!(stage.admin.stats(&scope("h")).await.unwrap(), None);
    stage.emit_many("h", 5).await;
    stage.emit_many("other", 2).await;
    let stats = stage.stats_of("h").await;
    assert_eq!((stats.waiting, stats.paused, stats.delayed, stats.running, stats.dead), (5, 0, 0, 0, 0));
    stage.admin.pause(&scope("h"), &Actor::user("ada"), &Stop::default()).await.unwrap();
    let stats = stage.stats_of("h").await;
    assert_eq!((stats.waiting, stats.paused, stats.delayed), (0, 5, 0));
    assert_eq!(stats.rules.iter().map(|rule| rule.kind).collect::<Vec<_>>(), [RuleKind::Pause]);
    stage.admin.unpause(&scope("h"), &Actor::user("ada")).await.unwrap();
    stage.pool.run("update wakeq.events_v2 set delay_until = now() + interval '1 h' where name = 'h'").await;
    let stats = stage.stats_of("h").await;
    assert_eq!((stats.waiting, stats.paused, stats.delayed, stats.oldest_due), (0, 0, 5, None));
    let claim = "update wakeq.events_v2 set delay_until = now(), locked_at = now(), claims = 1 where id in (
                     select id from wakeq.events_v2 where name = 'h' limit 1)";
    stage.pool.run(claim).await;
    let stats = stage.stats_of("h").await;
    assert_eq!((stats.waiting, stats.running, stats.delayed), (0, 1, 4));
    stage.kill_all().await;
    let stats = stage.stats_of("h").await;
    assert_eq!((stats.waiting, stats.delayed, stats.dead), (0, 0, 5));
    let names = stage.admin.handlers(CanvasId::DEFAULT, None, 100).await.unwrap().items;
    assert_eq!(names.iter().map(|stats| stats.scope.name.as_str()).collect::<Vec<_>>(), ["h", "other"]);
}

/// A canvas sees its own rules, however many others there are; a paused handler without events is
/// listed.
#[tokio::test]
async fn counts_know_the_rules_of_their_canvas() {
    let (stage, _) = Stage::memory().await;
    let own =
        "insert into wakeq.scheduling_rules (rule_type, canvas_id, handler_name, event_space, created_by)
               select 'pause', '00000000-0000-0000-0000-000000000000', 'h' || n, 'WORKER', 'ada'
                 from generate_series(1, 2) n";
    stage.pool.run(own).await;
    let others = "insert into wakeq.scheduling_rules (rule_type, canvas_id, handler_name, event_space, created_by)
                  select 'pause', lpad(to_hex(n), 32, '0')::uuid, 'h', 'WORKER', 'ada' from generate_series(1, 1500) n";
    stage.pool.run(others).await;
    assert_eq!(stage.admin.handlers(CanvasId::DEFAULT, None, 100).await.unwrap().items.len(), 2);
    let last = CanvasId(uuid::Uuid::from_u128(1500));
    stage.queue.emit(Event::new("h", "x").unwrap().canvas(last)).await.unwrap();
    let stats = stage.admin.handlers(last, None, 100).await.unwrap().items;
    assert_eq!(stats.iter().map(|stats| (stats.waiting, stats.paused)).collect::<Vec<_>>(), [(0, 1)]);
    let (mut cursor, mut seen) = (None, Vec::new());
    for _ in 0..4 {
        let page = stage.admin.rules(cursor.as_ref(), 501).await.unwrap();
        assert!(page.items.len() <= 501, "a list has a limit");
        seen.extend(page.items.into_iter().map(|rule| (rule.scope, rule.kind)));
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!((seen.len(), cursor), (1_502, None));
    assert!(seen.is_sorted_by(|one, next| one.0 < next.0), "each once, by handler");
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
    let lot = [wakeq::notify::Notification::new(delayed, CanvasId::DEFAULT)];
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

/// Cancel, run now and purge leave running events alone.
#[tokio::test]
async fn cancel_run_now_and_purge_leave_running_events_alone() {
    let (stage, notifier) = Stage::memory().await;
    let user = Actor::user("ada");
    let purge =
        async |name: &str, dry_run| stage.admin.purge(&scope(name), &user, dry_run).await.unwrap().count;
    let ids = stage.emit_many("h", 2500).await;
    let claim = "update wakeq.events_v2 set locked_at = now(), claims = 1 where id in (
                     select id from wakeq.events_v2 order by id limit 1)";
    stage.pool.run(claim).await;
    let mut sorted = ids.clone();
    sorted.sort_unstable();
    let running = sorted[0];
    let refused = stage.admin.cancel(CanvasId::DEFAULT, running, &user).await;
    assert!(matches!(refused, Err(AdminError::NotWaiting(id)) if id == running));
    let refused = stage.admin.run_now(CanvasId::DEFAULT, running, &user).await;
    assert!(matches!(refused, Err(AdminError::NotWaiting(_))));
    stage.admin.cancel(CanvasId::DEFAULT, sorted[1], &user).await.unwrap();
    let gone = stage.admin.cancel(CanvasId::DEFAULT, sorted[1], &user).await;
    assert!(matches!(gone, Err(AdminError::NotFound(id)) if id == sorted[1]));
    assert_eq!(purge("other", false).await, 0);
    assert_eq!(purge("h", true).await, 2498);
    assert_eq!(stage.rows().await, 2499, "a dry run");
    assert_eq!(purge("h", false).await, 2498);
    assert_eq!(stage.rows().await, 1);
    stage.pool.run("update wakeq.events_v2 set locked_at = now() - interval '61 s'").await;
    let published = notifier.published().len();
    stage.admin.run_now(CanvasId::DEFAULT, running, &user).await.unwrap();
    assert_eq!(notifier.published().len(), published + 1);
    assert_eq!(purge("h", false).await, 1, "its owner is gone");
}

/// EV2-34: a delayed event that is run now is due, and published.
#[tokio::test]
async fn a_delayed_event_can_be_run_now() {
    let (stage, notifier) = Stage::memory().await;
    let event = Event::new("h", "x").unwrap().after(Duration::from_secs(86_400)).unwrap();
    let id = stage.queue.emit(event).await.unwrap().id;
    assert_eq!(notifier.published().len(), 0);
    stage.admin.run_now(CanvasId::DEFAULT, id, &Actor::user("ada")).await.unwrap();
    assert_eq!(notifier.published()[0].id, id);
    let mut worker = stage.worker(Handlers::new().on("h", async |_| Ok(())));
    worker.until(id, Outcome::Deleted).await;
    worker.stop().await;
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
async fn locked_rows_are_left_and_the_answer_says_so() {
    let (stage, _) = Stage::memory().await;
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
    let (stage, _) = Stage::memory().await;
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

/// EV2-12: dead events are listed by handler, age and id, and are redriven with their claims but
/// without their retries.
#[tokio::test]
async fn dead_events_are_listed_and_brought_back() {
    let (stage, notifier) = Stage::memory().await;
    let (one, many) = (stage.emit("one").await, stage.emit_many("many", 1100).await);
    stage.kill_all().await;
    stage.pool.run("update wakeq.dead_events set died_at = now() - interval '2 h' where name = 'one'").await;
    let clock = stage.admin.clock().await.unwrap();
    let all = DeadFilter::default();
    let of = |name: &str| DeadFilter { scope: Some(scope(name)), ..DeadFilter::default() };
    let count = async |filter: &DeadFilter| stage.admin.dead(filter, None, 5000).await.unwrap().items.len();
    assert_eq!(count(&all).await, 1000, "a list has a limit");
    assert_eq!((count(&of("one")).await, count(&of("none")).await), (1, 0));
    let hour_ago = clock - Duration::from_secs(3600);
    let old = DeadFilter { before: Some(hour_ago), ..all.clone() };
    let dead = stage.admin.dead(&old, None, 10).await.unwrap().items;
    assert_eq!((dead.len(), dead[0].id, dead[0].cause.as_str(), dead[0].losses), (1, one, "retries", 1));
    assert_eq!(count(&DeadFilter { since: Some(hour_ago), ..of("one") }).await, 0);
    assert_eq!(count(&DeadFilter { canvas: CanvasId(uuid::Uuid::from_u128(7)), ..all.clone() }).await, 0);

    let before = notifier.published().len();
    let only = DeadFilter { id: Some(many[7]), ..all.clone() };
    let redrive = async |filter: &DeadFilter| {
        stage.admin.redrive(filter, &Actor::user("ada"), false).await.unwrap().count
    };
    assert_eq!(redrive(&only).await, 1);
    assert_eq!(redrive(&only).await, 0);
    assert_eq!(redrive(&of("many")).await, 1099);
    assert_eq!((stage.rows().await, notifier.published().len() - before), (1100, 1100));
    let reset = "select bool_and(retries = 0 and losses = 0 and claims = 3 and last_error = 'no' and locked_at is null)
                   from wakeq.events_v2";
    let reset: bool = stage.pool.value(reset).await;
    assert!(reset);
    assert_eq!(count(&all).await, 1);
    stage.pool.run("update wakeq.dead_events set died_at = now() - interval '31 days'").await;
    stage.admin.wake(false).await.unwrap();
    assert_eq!(count(&all).await, 1, "a wake by hand ignores how long they are kept");
    stage.pool.run("update wakeq.chores set next_at = now() where name = 'minute'").await;
    let worker = stage.worker(Handlers::new());
    wait_while!(count(&all).await > 0, "a worker keeps them for 30 days");
    worker.stop().await;
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
