//! Whole canvases are paused and blocked, and everything: what waits, what goes on, who may do it,
//! and that lifting wakes all of it and nothing else.

use wakeq::control::{AuditEntry, EventFilter, Quota, ResumeResult, RuleKind, RuleReach};
use wakeq::crons::{CronSchedule, NewCron};
use wakeq::machine::{CheckResult, Outcome};
use wakeq::{Actor, AdminError, CanvasId, Event, EventId, HandlerScope, Handlers, Stop};

use crate::support::{OTHER, Stage, scope};

const CANVAS: CanvasId = CanvasId::DEFAULT;

fn ada() -> Actor {
    Actor::user("ada")
}

fn ops() -> Actor {
    Actor::admin("ops")
}

fn both() -> Handlers {
    Handlers::new().on("greet", async |_| Ok(())).on("index", async |_| Ok(()))
}

/// The actions of a record, the oldest first.
fn actions(record: &[AuditEntry]) -> Vec<&str> {
    record.iter().rev().map(|line| line.action.as_str()).collect()
}

async fn emit(stage: &Stage, canvas: CanvasId, name: &str) -> EventId {
    stage.queue.emit(Event::new(name, &1).unwrap().canvas(canvas)).await.unwrap().id
}

/// Every handler of the canvas is held, what is emitted waits, and another canvas goes on. Lifting
/// the pause wakes all of it.
#[tokio::test]
async fn a_paused_canvas_holds_all_its_handlers_and_no_other_canvas() {
    let (stage, _) = Stage::memory().await;
    let stop = Stop { reason: Some("wrong prices".to_owned()), until: None };
    let paused = stage.admin.pause_canvas(CANVAS, &ada(), &stop).await.unwrap();
    assert_eq!((paused.new, paused.also, paused.rule.reach()), (true, None, RuleReach::Canvas));
    let mut worker = stage.worker(both());
    let held = [emit(&stage, CANVAS, "greet").await, emit(&stage, CANVAS, "index").await];
    worker.until_count(2, Outcome::RulePaused).await;
    for id in held {
        let live = stage.live(CANVAS, id).await;
        assert_eq!((live.state, live.notify_at), (CheckResult::Held(RuleKind::Pause), None));
        assert_eq!(live.rule.as_ref().map(|rule| rule.reach()), Some(RuleReach::Canvas));
        assert_eq!(live.next(), "is woken when its whole canvas is unpaused");
    }
    let theirs = emit(&stage, OTHER, "greet").await;
    worker.until(theirs, Outcome::Deleted).await;

    let listed = stage.admin.events(CANVAS, &EventFilter::default(), None, 10).await.unwrap().items;
    assert!(listed.iter().all(|event| event.state == CheckResult::Held(RuleKind::Pause)), "{listed:?}");
    let stats = stage.admin.handlers(CANVAS, None, 10).await.unwrap().items;
    let counted: Vec<_> =
        stats.iter().map(|of| (of.scope.name.as_str(), of.paused, of.rules.len())).collect();
    assert_eq!(counted, [("greet", 1, 1), ("index", 1, 1)]);
    assert!(stage.admin.stats(&scope("idle")).await.unwrap().is_none(), "nothing is known of it");
    assert_eq!(stage.admin.switches(CANVAS).await.unwrap(), [paused.rule]);
    assert_eq!(stage.admin.switches(OTHER).await.unwrap(), []);

    assert!(!stage.admin.unpause_canvas(OTHER, &ada()).await.unwrap().lifted);
    let lifted = stage.admin.unpause_canvas(CANVAS, &ada()).await.unwrap();
    assert_eq!(lifted, ResumeResult { lifted: true, still: None, under: None, woken: 2, waking: false });
    worker.until_count(2, Outcome::Deleted).await;
    worker.stop().await;
}

/// The rules of handlers stand beneath the switch, are lifted beneath it, and stay when it goes.
#[tokio::test]
async fn rules_of_handlers_stand_beneath_the_switch() {
    let (stage, _) = Stage::memory().await;
    let mut worker = stage.worker(both());
    stage.admin.pause(&scope("greet"), &ada(), &Stop::default()).await.unwrap();
    stage.admin.pause(&scope("index"), &ada(), &Stop::default()).await.unwrap();
    stage.admin.pause_canvas(CANVAS, &ada(), &Stop::default()).await.unwrap();
    let (greet, index) = (emit(&stage, CANVAS, "greet").await, emit(&stage, CANVAS, "index").await);
    worker.until_count(2, Outcome::RulePaused).await;
    let lifted = stage.admin.unpause(&scope("index"), &ada()).await.unwrap();
    let reach = lifted.under.map(|rule| rule.reach());
    assert_eq!((lifted.woken, reach), (0, Some(RuleReach::Canvas)), "the switch holds it still");
    assert_eq!(stage.live(CANVAS, index).await.notify_at, None, "and it stays parked");
    let lifted = stage.admin.unpause_canvas(CANVAS, &ada()).await.unwrap();
    assert_eq!((lifted.woken, lifted.under), (1, None));
    worker.until(index, Outcome::Deleted).await;
    let live = stage.live(CANVAS, greet).await;
    assert_eq!(live.rule.map(|rule| rule.reach()), Some(RuleReach::Handler));
    assert_eq!(live.notify_at, None, "it was not woken");
    assert_eq!(stage.admin.unpause(&scope("greet"), &ada()).await.unwrap().woken, 1);
    worker.until(greet, Outcome::Deleted).await;
    worker.stop().await;
}

/// With everything blocked, events of all canvases wait, emits are accepted, and crons go on
/// ticking. Lifting it wakes all canvases, except one that is blocked itself.
#[tokio::test]
async fn everything_is_blocked_and_crons_go_on_ticking() {
    let (stage, _) = Stage::memory().await;
    let third = CanvasId(uuid::Uuid::from_u128(9));
    stage.admin.block_all(&ops(), &Stop::default()).await.unwrap();
    stage.admin.block_canvas(third, &ops(), &Stop::default()).await.unwrap();
    let mut worker = stage.worker(both());
    let mut held = Vec::new();
    for canvas in [CANVAS, OTHER, third] {
        let id = emit(&stage, canvas, "greet").await;
        worker.until(id, Outcome::RuleBlocked).await;
        let live = stage.live(canvas, id).await;
        assert_eq!(live.rule.as_ref().map(|rule| rule.reach()), Some(RuleReach::Everything));
        assert_eq!(live.next(), "is woken when an operator lifts the block of everything");
        held.push(id);
    }
    let cron = NewCron::new("often", CronSchedule::new("* * * * * *", "UTC").unwrap(), &1).unwrap();
    let put = stage.admin.put_cron(CANVAS, &cron, &ada()).await.unwrap();
    assert!(put.cron.ticks > 0, "crons tick");
    let lifted = stage.admin.unblock_canvas(third, &ops()).await.unwrap();
    assert_eq!(lifted.under.map(|rule| rule.reach()), Some(RuleReach::Everything));
    stage.admin.block_canvas(third, &ops(), &Stop::default()).await.unwrap();
    let lifted = stage.admin.unblock_all(&ops()).await.unwrap();
    assert!(lifted.lifted && lifted.woken >= 2, "{lifted:?}");
    worker.until_all(&held[..2], Outcome::Deleted).await;
    let live = stage.live(third, held[2]).await;
    assert_eq!((live.state, live.notify_at), (CheckResult::Held(RuleKind::Block), None));
    worker.stop().await;
}

/// Users pause their canvas; only admins block. Nothing can be named that would stop more than it
/// says.
#[tokio::test]
async fn users_pause_their_canvas_and_only_admins_block() {
    let (stage, _) = Stage::memory().await;
    let none = Stop::default();
    let only_admins = [
        stage.admin.block_canvas(CANVAS, &ada(), &none).await.map(drop),
        stage.admin.unblock_canvas(CANVAS, &ada()).await.map(drop),
        stage.admin.block_all(&ada(), &none).await.map(drop),
        stage.admin.unblock_all(&ada()).await.map(drop),
    ];
    assert!(only_admins.iter().all(|refused| matches!(refused, Err(AdminError::AdminOnly { .. }))));
    let reserved = CanvasId(uuid::Uuid::max());
    let module = "CANVAS".parse().unwrap();
    let disguised = HandlerScope { canvas: CANVAS, module, name: "_".parse().unwrap() };
    let invalid = [
        stage.admin.pause_canvas(reserved, &ops(), &none).await.map(drop),
        stage.admin.unblock_canvas(reserved, &ops()).await.map(drop),
        stage.admin.switches(reserved).await.map(drop),
        stage.admin.pause(&disguised, &ops(), &none).await.map(drop),
        stage.admin.unblock(&disguised, &ops()).await.map(drop),
    ];
    assert!(invalid.iter().all(|refused| matches!(refused, Err(AdminError::Invalid(_)))), "{invalid:?}");
    assert_eq!(stage.count("select count(*) from wakeq.scheduling_rules").await, 0);
    assert_eq!(stage.count("select count(*) from wakeq.audit_log").await, 0);
}

/// The record names the switch, also the one that no canvas has. A quota on rules keeps nobody from
/// stopping a canvas.
#[tokio::test]
async fn switches_are_recorded_and_count_towards_no_quota() {
    let (stage, _) = Stage::memory().await;
    let none = Stop::default();
    stage.admin.set_quota(CANVAS, Quota::Rules, 1, &ops()).await.unwrap();
    stage.admin.pause(&scope("greet"), &ada(), &none).await.unwrap();
    assert!(stage.admin.pause(&scope("index"), &ada(), &none).await.is_err(), "it has no room");
    stage.admin.pause_canvas(CANVAS, &ada(), &none).await.unwrap();
    stage.admin.block_canvas(CANVAS, &ops(), &none).await.unwrap();
    stage.admin.block_all(&ops(), &none).await.unwrap();
    stage.admin.unblock_all(&ops()).await.unwrap();
    stage.admin.unblock_canvas(CANVAS, &ops()).await.unwrap();
    stage.admin.unpause_canvas(CANVAS, &ada()).await.unwrap();
    // What reaches every canvas is among the lines of the default canvas, and no tenant sees it.
    let record = stage.admin.audit(CANVAS, None, 10).await.unwrap().items;
    let expected = [
        "set-quota",
        "pause",
        "pause-canvas",
        "block-canvas",
        "block-all",
        "unblock-all",
        "unblock-canvas",
        "unpause-canvas",
    ];
    assert_eq!(actions(&record), expected);
    let of_tenant = stage.admin.for_tenants().audit(CANVAS, None, 10).await.unwrap().items;
    let own = expected.into_iter().filter(|action| !action.ends_with("-all"));
    assert_eq!(actions(&of_tenant), own.collect::<Vec<_>>());
    assert_eq!(stage.admin.audit(OTHER, None, 10).await.unwrap().items, []);
    assert!(record[0].module.is_none() && record[0].name.is_none());
    let everywhere = "select count(*) from wakeq.audit_log where canvas_id is null and action in ('block-all', 'unblock-all')";
    assert_eq!(stage.count(everywhere).await, 2);
    let quotas = stage.admin.quotas(CANVAS).await.unwrap();
    assert_eq!(quotas.iter().find(|quota| quota.quota == Quota::Rules).unwrap().used, 1);
}
