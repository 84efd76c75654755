//! What operators do: count, pause, cancel, run now, purge, list dead events and redrive them.

use std::time::Duration;

use wakeq::control::{DeadFilter, HandlerStats, RuleKind};
use wakeq::machine::Outcome;
use wakeq::{Actor, AdminError, CanvasId, Event, EventId, Stop};

use crate::support::{Stage, Statements, scope, wait_while};

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

/// X15, EV2-08, CARD-10: pausing again is not a second pause; blocks are for admins.
#[tokio::test]
async fn users_set_and_lift_pauses_and_only_admins_blocks() {
    let (stage, _) = Stage::memory().await;
    let (user, admin, handler) = (Actor::user("ada"), Actor::admin("ops"), scope("h"));
    assert!(stage.admin.pause(&handler, &user, &Stop::default()).await.unwrap().new);
    let reason = Stop { reason: Some("again".into()), until: None };
    assert!(!stage.admin.pause(&handler, &user, &reason).await.unwrap().new);
    assert!(matches!(stage.admin.block(&handler, &user, &reason).await, Err(AdminError::AdminOnly { .. })));
    let blocked = stage.admin.block(&handler, &admin, &reason).await.unwrap();
    assert_eq!((blocked.new, blocked.also), (true, Some(RuleKind::Pause)));
    assert!(matches!(stage.admin.unblock(&handler, &user).await, Err(AdminError::AdminOnly { .. })));
    let rules = stage.admin.rules_of(&handler).await.unwrap();
    assert_eq!(
        rules.iter().map(|rule| (rule.kind, rule.reason.as_deref())).collect::<Vec<_>>(),
        [(RuleKind::Block, Some("again")), (RuleKind::Pause, Some("again"))]
    );
    let first = stage.admin.rules(None, 1).await.unwrap();
    let second = stage.admin.rules(first.next.as_ref(), 1).await.unwrap();
    assert_eq!((&first.items[..], &second.items[..], second.next), (&rules[..1], &rules[1..], None));
    let resumed = stage.admin.unpause(&handler, &user).await.unwrap();
    assert_eq!((resumed.lifted, resumed.still, resumed.woken), (true, Some(RuleKind::Block), 0));
    assert!(!stage.admin.unpause(&handler, &user).await.unwrap().lifted);
    assert_eq!(stage.admin.unblock(&handler, &admin).await.unwrap().still, None);
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
    let mut worker = stage.worker(wakeq::Handlers::new().on("h", async |_| Ok(())));
    worker.until(id, Outcome::Deleted).await;
    worker.stop().await;
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
    let worker = stage.worker(wakeq::Handlers::new());
    wait_while!(count(&all).await > 0, "a worker keeps them for 30 days");
    worker.stop().await;
}

/// EV2-42, EV2-26: everything parked is published when the pause is lifted, in pages, although
/// Pub/Sub lost it all.
#[tokio::test]
async fn unpausing_publishes_everything_parked() {
    let (stage, notifier) = Stage::memory().await;
    stage.admin.pause(&scope("h"), &Actor::user("ada"), &Stop::default()).await.unwrap();
    let mut ids = stage.emit_many("h", 2500).await;
    let mut worker = stage.worker(wakeq::Handlers::new().on("h", async |_| Ok(())));
    worker.until_count(2500, Outcome::RulePaused).await;
    notifier.drained().await;
    notifier.forget_everything();
    assert_eq!(stage.count("select count(*) from wakeq.events_v2 where notify_at is null").await, 2500);
    assert_eq!(stage.admin.unpause(&scope("h"), &Actor::user("ada")).await.unwrap().woken, 2500);
    let done = worker.until_count(2500, Outcome::Deleted).await;
    let mut run: Vec<EventId> = done.iter().map(|report| report.notification.id).collect();
    run.sort_unstable();
    ids.sort_unstable();
    assert_eq!(run, ids);
    assert_eq!(stage.rows().await, 0);
    worker.stop().await;
}
