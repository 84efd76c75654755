//! The answers of `stats` and `explain` for an event in each of its states; whole answers.

use std::time::Duration;

use wakeq::control::{DeadFilter, Explanation, HandlerStats, LiveEvent, Rule, RuleKind};
use wakeq::events::Metadata;
use wakeq::machine::{CheckResult, Outcome};
use wakeq::{
    Actor, CanvasId, Event, EventId, HandlerAddress, HandlerError, HandlerScope, Handlers, Name, Stop,
    Timestamp, WorkerConfig,
};

use crate::support::handlers::{Door, recording};
use crate::support::{Stage, Statements, once, scope};

#[derive(Debug, sqlx::FromRow)]
struct Row {
    id: uuid::Uuid,
    traceparent: Option<String>,
    delay_until: Timestamp,
    enqueued_at: Timestamp,
    locked_at: Option<Timestamp>,
    notify_at: Option<Timestamp>,
}

async fn row(stage: &Stage, id: EventId) -> Row {
    let query = "select id, traceparent::text, delay_until, enqueued_at, locked_at, notify_at from wakeq.events_v2 where id = $1";
    sqlx::query_as(query).bind(id.0).fetch_one(&stage.pool).await.unwrap()
}

/// An answer about an event of handler `name` that is due, unclaimed, and was never attempted.
fn ready(name: &str, row: &Row, now: Timestamp) -> LiveEvent {
    LiveEvent {
        id: EventId(row.id),
        metadata: Metadata { traceparent: row.traceparent.as_deref().map(|text| text.parse().unwrap()) },
        delay_until: row.delay_until,
        address: HandlerAddress { scope: scope(name), modifier: Name::no_modifier() },
        state: CheckResult::Ready,
        since: row.delay_until,
        until: None,
        rule: None,
        limited: None,
        notify_at: row.notify_at,
        enqueued_at: row.enqueued_at,
        retries: 0,
        losses: 0,
        worker: None,
        worker_process: None,
        cancelled_by: None,
        unknown_since: None,
        target: None,
        target_gone_since: None,
        last_error: None,
        unique_key: None,
        options: None,
        copy_of: None,
        pulled: false,
        was_leased: false,
        running: 0,
        place: None,
        first: None,
        now,
    }
}

fn idle(name: &str) -> HandlerStats {
    HandlerStats {
        scope: scope(name),
        waiting: 0,
        delayed: 0,
        paused: 0,
        running: 0,
        dead: 0,
        halted: 0,
        oldest_due: None,
        rules: Vec::new(),
        unknown_since: None,
        targets: Vec::new(),
        more_targets: false,
    }
}

async fn stats(stage: &Stage, name: &str) -> HandlerStats {
    stage.admin.stats(&scope(name)).await.unwrap().expect("the handler is listed")
}

/// Waiting.
// Shows: EV2-09
#[tokio::test]
async fn waiting() {
    let (stage, _) = Stage::memory().await;
    let ids = stage.emit_many("greet", 5).await;
    let row = row(&stage, ids[0]).await;
    let answer = stage.live(CanvasId::DEFAULT, ids[0]).await;
    assert_eq!(answer, ready("greet", &row, answer.now));
    assert_eq!(answer.state.outcome(), Outcome::RuleNone);
    let next = "runs when a worker with free capacity receives its notification: none of its handler is \
                running, so it waits for its canvas's share at most, as each free place goes to the canvas \
                with the fewest";
    assert_eq!(answer.next(), next);
    let expected = HandlerStats { waiting: 5, oldest_due: Some(row.delay_until), ..idle("greet") };
    assert_eq!(stats(&stage, "greet").await, expected);
    assert_eq!(stage.admin.stats(&scope("other")).await.unwrap(), None);
}

/// Delayed.
// Shows: EV2-09
#[tokio::test]
async fn delayed() {
    let (stage, _) = Stage::memory().await;
    let event = Event::new("greet", "x").unwrap().after(Duration::from_secs(5000)).unwrap();
    let id = stage.queue.emit(event).await.unwrap().id;
    let row = row(&stage, id).await;
    let answer = stage.live(CanvasId::DEFAULT, id).await;
    let expected = LiveEvent {
        state: CheckResult::Delayed,
        since: row.enqueued_at,
        until: Some(row.delay_until),
        ..ready("greet", &row, answer.now)
    };
    assert_eq!(answer, expected);
    assert_eq!((answer.state.outcome(), answer.next()), (Outcome::DelayNotYet, "runs when it is due"));
    assert_eq!(row.notify_at, Some(row.delay_until - Duration::from_secs(600)));
    assert_eq!(stats(&stage, "greet").await, HandlerStats { delayed: 1, ..idle("greet") });
    stage.admin.pause(&scope("greet"), &Actor::user("ada"), &Stop::default()).await.unwrap();
    let answer = stage.live(CanvasId::DEFAULT, id).await;
    assert_eq!(answer.next(), "is due then, but runs only when the rule that holds it has ended");
    let rules = stage.admin.rules(None, 100).await.unwrap().items;
    assert_eq!(answer.rule.as_ref(), Some(&rules[0]));
    assert_eq!(stats(&stage, "greet").await, HandlerStats { delayed: 1, rules, ..idle("greet") });
}

async fn held(kind: RuleKind) {
    let (stage, _) = Stage::memory().await;
    let ops = Actor::admin("ops");
    let until = Some(stage.admin.clock().await.unwrap() + Duration::from_secs(3600));
    let stop = Stop { reason: Some("the provider is down".into()), until };
    match kind {
        RuleKind::Pause => stage.admin.pause(&scope("greet"), &ops, &stop).await.unwrap(),
        RuleKind::Block => stage.admin.block(&scope("greet"), &ops, &stop).await.unwrap(),
    };
    let rules: Vec<Rule> = stage.admin.rules(None, 100).await.unwrap().items;
    let mut worker = stage.worker(Handlers::new().on("greet", recording().0));
    let id = stage.emit("greet").await;
    let (outcome, next) = match kind {
        RuleKind::Pause => (Outcome::RulePaused, "is woken when the handler is unpaused"),
        RuleKind::Block => (Outcome::RuleBlocked, "is woken when an admin unblocks the handler"),
    };
    worker.until(id, outcome).await;
    let row = row(&stage, id).await;
    let answer = stage.live(CanvasId::DEFAULT, id).await;
    let expected = LiveEvent {
        state: CheckResult::Held(kind),
        since: row.enqueued_at,
        until: rules[0].until,
        rule: Some(rules[0].clone()),
        notify_at: None,
        ..ready("greet", &row, answer.now)
    };
    assert_eq!(answer, expected);
    assert_eq!((answer.state.outcome(), answer.next()), (outcome, next));
    let expected = HandlerStats { paused: 1, rules, oldest_due: Some(row.delay_until), ..idle("greet") };
    assert_eq!(stats(&stage, "greet").await, expected);
    worker.stop().await;
}

// Shows: EV2-07, EV2-09
#[tokio::test]
async fn paused() {
    held(RuleKind::Pause).await;
}

/// EV2-08.
#[tokio::test]
async fn blocked() {
    held(RuleKind::Block).await;
}

/// A rule without events is shown, too.
#[tokio::test]
async fn a_rule_alone() {
    let (stage, _) = Stage::memory().await;
    stage.admin.pause(&scope("greet"), &Actor::user("ada"), &Stop::default()).await.unwrap();
    let rules = stage.admin.rules(None, 100).await.unwrap().items;
    assert_eq!(stats(&stage, "greet").await, HandlerStats { rules, ..idle("greet") });
    // Another canvas's rules, however many, hide none of this one's.
    let other =
        "insert into wakeq.scheduling_rules (rule_type, canvas_id, handler_name, event_space, created_by)
                 select 'pause', gen_random_uuid(), 'n' || n, 'WORKER', 'x' from generate_series(1, 1500) n";
    stage.pool.run(other).await;
    let last = CanvasId(uuid::Uuid::max());
    let of_last = HandlerScope { canvas: last, ..scope("greet") };
    stage.admin.pause(&of_last, &Actor::user("ada"), &Stop::default()).await.unwrap();
    assert_eq!(stage.admin.handlers(last, None, 10).await.unwrap().items.len(), 1);
    assert_eq!(stage.admin.handlers(CanvasId::DEFAULT, None, 10).await.unwrap().items.len(), 1);
}

/// Running, since its claim.
// Shows: EV2-36
#[tokio::test]
async fn running() {
    let (stage, _) = Stage::memory().await;
    let (handler, mut door) = Door::new();
    let name: Name = "one".parse().unwrap();
    let config = WorkerConfig { name: Some(name.clone()), ..WorkerConfig::default() };
    let mut worker = stage.worker_with(Handlers::new().on("greet", handler), config);
    let id = stage.emit("greet").await;
    let claimed_at = door.arrived.next().await.claimed_at;
    let row = row(&stage, id).await;
    assert_eq!(row.locked_at, Some(claimed_at));
    let answer = stage.live(CanvasId::DEFAULT, id).await;
    let mut process = stage.admin.worker(&name, None).await.unwrap().summary;
    // The process may have been seen once more between the two answers.
    let shown = answer.worker_process.as_ref().expect("its worker has a row");
    assert!(shown.running <= 1, "{shown:?}");
    (process.seen_at, process.running) = (shown.seen_at, shown.running);
    let expected = LiveEvent {
        state: CheckResult::Running,
        since: claimed_at,
        until: Some(claimed_at + stage.store.timing().lease),
        worker: Some(name),
        worker_process: Some(process),
        ..ready("greet", &row, answer.now)
    };
    assert_eq!(answer, expected);
    assert_eq!(answer.state.outcome(), Outcome::IsLocked);
    assert_eq!(answer.next(), "ends when its handler returns, or is taken over when its lease expires");
    let expected = HandlerStats { running: 1, oldest_due: Some(row.delay_until), ..idle("greet") };
    assert_eq!(stats(&stage, "greet").await, expected);
    door.open(1);
    worker.until(id, Outcome::Deleted).await;
    assert!(stage.admin.handlers(CanvasId::DEFAULT, None, 10).await.unwrap().items.is_empty());
    worker.stop().await;
}

/// Between two attempts.
// Shows: EV2-35, EV2-45
#[tokio::test]
async fn retrying() {
    let (stage, _) = Stage::memory().await;
    let (mut worker, _seen) =
        stage.answering("greet", |_| Err(HandlerError::operational("no room on the disk")));
    let id = stage.emit("greet").await;
    worker.until(id, Outcome::RetryAllowed).await;
    let row = row(&stage, id).await;
    let answer = stage.live(CanvasId::DEFAULT, id).await;
    let expected = LiveEvent {
        state: CheckResult::Delayed,
        since: row.enqueued_at,
        until: Some(row.delay_until),
        retries: 1,
        last_error: Some("no room on the disk".into()),
        ..ready("greet", &row, answer.now)
    };
    assert_eq!(answer, expected);
    assert_eq!(stats(&stage, "greet").await, HandlerStats { delayed: 1, ..idle("greet") });
    worker.stop().await;
}

// Shows: EV2-12, EV2-61
#[tokio::test]
async fn dead() {
    let (stage, _) = Stage::memory().await;
    let (mut worker, _seen) = stage.answering(once("greet"), |_| Err(HandlerError::operational("no")));
    let id = stage.emit("greet").await;
    worker.until(id, Outcome::Deleted).await;
    let dead = stage.admin.dead(&DeadFilter::default(), None, 10).await.unwrap().items.remove(0);
    assert_eq!((dead.id, dead.cause.as_str(), dead.last_error.as_deref()), (id, "retries", Some("no")));
    assert_eq!(stage.admin.explain(CanvasId::DEFAULT, id).await.unwrap(), Explanation::Dead(Box::new(dead)));
    assert_eq!(stats(&stage, "greet").await, HandlerStats { dead: 1, ..idle("greet") });
    worker.stop().await;
}

/// An id chosen by the caller is remembered; another is not.
// Shows: EV2-23
#[tokio::test]
async fn gone_and_unknown() {
    let (stage, _) = Stage::memory().await;
    let mut worker = stage.worker(Handlers::new().on("greet", recording().0));
    let chosen = EventId::new();
    stage.queue.emit(Event::new("greet", "x").unwrap().id(chosen)).await.unwrap();
    let made = stage.emit("greet").await;
    worker.until_count(2, Outcome::Deleted).await;
    let emitted_at = stage.pool.value("select emitted_at from wakeq.emitted_ids").await;
    let gone = Explanation::Gone { id: EventId::chosen(CanvasId::DEFAULT, chosen), emitted_at };
    assert_eq!(stage.admin.explain(CanvasId::DEFAULT, chosen).await.unwrap(), gone);
    assert_eq!(stage.admin.explain(CanvasId::DEFAULT, made).await.unwrap(), Explanation::Unknown);
    worker.stop().await;
}
