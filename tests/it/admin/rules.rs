//! Pause and block: who may set them, what they hold, and that lifting them wakes everything once.

use std::collections::BTreeMap;

use wakeq::control::{ResumeResult, Rule, RuleKind};
use wakeq::machine::Outcome;
use wakeq::workers::Verdict;
use wakeq::{
    Actor, AdminError, CanvasId, Event, EventId, HandlerScope, Handlers, Stop, Timing, WorkerConfig,
};

use crate::support::handlers::{Door, recording};
use crate::support::{RunningWorker, Stage, patient, quick, scope};

fn ada() -> Actor {
    Actor::user("ada")
}

fn operations() -> Actor {
    Actor::admin("operations")
}

async fn put(stage: &Stage, kind: RuleKind, scope: &HandlerScope) -> bool {
    match kind {
        RuleKind::Pause => stage.admin.pause(scope, &ada(), &Stop::default()).await.unwrap().new,
        RuleKind::Block => stage.admin.block(scope, &operations(), &Stop::default()).await.unwrap().new,
    }
}

async fn lift(stage: &Stage, kind: RuleKind, scope: &HandlerScope) -> ResumeResult {
    match kind {
        RuleKind::Pause => stage.admin.unpause(scope, &ada()).await.unwrap(),
        RuleKind::Block => stage.admin.unblock(scope, &operations()).await.unwrap(),
    }
}

/// The outcome of a parked event's run.
fn parked(kind: RuleKind) -> Outcome {
    match kind {
        RuleKind::Pause => Outcome::RulePaused,
        RuleKind::Block => Outcome::RuleBlocked,
    }
}

fn assert_each_ran_once(emitted: &[EventId], ran: &[wakeq::Execution]) {
    let mut runs: BTreeMap<EventId, usize> = BTreeMap::new();
    ran.iter().for_each(|event| *runs.entry(event.id).or_default() += 1);
    let once: BTreeMap<EventId, usize> = emitted.iter().map(|id| (*id, 1)).collect();
    assert_eq!(runs, once);
}

/// Events from before and after the rule stay, not run but acknowledged; others run; lifting the
/// rule runs them all.
async fn check_holds(kind: RuleKind) {
    let (stage, notifier) = Stage::memory().await;
    let (held, mut seen) = recording();
    let (free, mut others) = recording();
    let mut emitted = stage.emit_many("greet", 3).await;
    assert!(put(&stage, kind, &scope("greet")).await);
    let published = notifier.published().len();
    assert!(!put(&stage, kind, &scope("greet")).await, "it stands already");
    assert_eq!(notifier.published().len(), published, "no message is part of a rule");
    let mut worker = stage.worker(Handlers::new().on("greet", held).on("other", free));
    emitted.extend(stage.emit_many("greet", 3).await);
    let other = stage.emit("other").await;
    let mut reports = Vec::new();
    while reports.len() < 7 {
        reports.push(worker.report().await);
    }
    let mut by_rule = reports.iter().filter(|report| report.trail.last() == Some(&parked(kind)));
    assert!(by_rule.clone().all(|report| report.verdict == Verdict::Acknowledged));
    assert_eq!(by_rule.by_ref().count(), 6);
    assert_eq!((others.next().await.id, seen.rest().len(), stage.rows().await), (other, 0, 6));
    notifier.drained().await;

    let resumed = lift(&stage, kind, &scope("greet")).await;
    assert_eq!(resumed, ResumeResult { lifted: true, still: None, under: None, woken: 6, waking: false });
    assert_each_ran_once(&emitted, &seen.take(6).await);
    worker.until_count(6, Outcome::Deleted).await;
    let again = lift(&stage, kind, &scope("greet")).await;
    assert_eq!(again, ResumeResult { lifted: false, still: None, under: None, woken: 0, waking: false });
    worker.stop().await;
}

/// See also EV2-X15.
// Shows: EV2-07, EV2-22, EV2-28, EV2-56
#[tokio::test]
async fn a_pause_holds_its_handler_only() {
    check_holds(RuleKind::Pause).await;
}

/// See also EV2-56.
// Shows: EV2-08, EV2-43
#[tokio::test]
async fn a_block_holds_its_handler_only() {
    check_holds(RuleKind::Block).await;
}

/// A rule's end must be a year that can be stored; otherwise it is refused.
#[tokio::test]
async fn an_end_that_is_too_late_is_refused() {
    let (stage, _) = Stage::memory().await;
    for until in ["9999-12-31T23:59:59-01:00", "9999-12-31T23:59:60Z"] {
        let stop = Stop { until: Some(until.parse().unwrap()), ..Stop::default() };
        let refused = stage.admin.pause(&scope("greet"), &ada(), &stop).await;
        assert!(matches!(refused, Err(AdminError::Invalid(_))), "{refused:?}");
    }
    let stop = Stop { until: Some("9999-12-31T23:59:59.999999Z".parse().unwrap()), ..Stop::default() };
    assert!(stage.admin.pause(&scope("greet"), &ada(), &stop).await.unwrap().new);
}

/// Users pause and unpause, admins do everything. A rule says which other one stands, and a page
/// may end between the two.
// Shows: EV2-08
#[tokio::test]
async fn only_admins_block_and_unblock() {
    let (stage, _) = Stage::memory().await;
    let greet = scope("greet");
    let refused = |error: AdminError| error.to_string();
    put(&stage, RuleKind::Pause, &greet).await;
    let blocked = stage.admin.block(&greet, &ada(), &Stop::default()).await.unwrap_err();
    assert_eq!(refused(blocked), "only an admin may block");
    let blocked = stage.admin.block(&greet, &operations(), &Stop::default()).await.unwrap();
    assert_eq!((blocked.new, blocked.also), (true, Some(RuleKind::Pause)));
    let unblocked = stage.admin.unblock(&greet, &ada()).await.unwrap_err();
    assert_eq!(refused(unblocked), "only an admin may unblock");
    let rules = stage.admin.rules_of(&greet).await.unwrap();
    assert_eq!(rules.len(), 2, "it stands");
    let first = stage.admin.rules(None, 1).await.unwrap();
    let second = stage.admin.rules(first.next.as_ref(), 1).await.unwrap();
    assert_eq!((&first.items[..], &second.items[..], second.next), (&rules[..1], &rules[1..], None));
    assert!(lift(&stage, RuleKind::Pause, &greet).await.lifted);
    let unblocked = lift(&stage, RuleKind::Block, &greet).await;
    assert_eq!((unblocked.lifted, unblocked.still), (true, None));
}

/// EV2-X7: lifting the pause does not lift the block, and reports it; and vice versa.
// Shows: EV2-08
#[tokio::test]
async fn a_block_outranks_a_pause_and_each_is_lifted_by_itself() {
    let (stage, notifier) = Stage::memory().await;
    let (handler, mut seen) = recording();
    let greet = scope("greet");
    put(&stage, RuleKind::Pause, &greet).await;
    put(&stage, RuleKind::Block, &greet).await;
    let kinds: Vec<_> = stage.admin.rules_of(&greet).await.unwrap().iter().map(|rule| rule.kind).collect();
    assert_eq!(kinds, [RuleKind::Block, RuleKind::Pause]);
    let mut worker = stage.worker(Handlers::new().on("greet", handler));
    let id = stage.emit("greet").await;
    worker.until(id, Outcome::RuleBlocked).await;
    let unpaused = lift(&stage, RuleKind::Pause, &greet).await;
    let lifted =
        |still| ResumeResult { lifted: true, still: Some(still), under: None, woken: 0, waking: false };
    assert_eq!(unpaused, lifted(RuleKind::Block));
    put(&stage, RuleKind::Pause, &greet).await;
    let unblocked = lift(&stage, RuleKind::Block, &greet).await;
    assert_eq!(unblocked, lifted(RuleKind::Pause));
    notifier.drained().await;
    assert!(seen.rest().is_empty());
    lift(&stage, RuleKind::Pause, &greet).await;
    worker.until(id, Outcome::Deleted).await;
    worker.stop().await;
}

/// Each event gets several messages, and runs once.
// Shows: EV2-29
#[tokio::test]
async fn quick_toggling_runs_each_event_once() {
    let (stage, notifier) = Stage::memory().await;
    let greet = scope("greet");
    put(&stage, RuleKind::Pause, &greet).await;
    let (mut worker, mut seen) = stage.recording("greet");
    let emitted = stage.emit_many("greet", 100).await;
    worker.until_count(100, Outcome::RulePaused).await;
    for _ in 0..10 {
        notifier.pause();
        assert_eq!(lift(&stage, RuleKind::Pause, &greet).await.woken, 100);
        put(&stage, RuleKind::Pause, &greet).await;
        // Every message finds the rule again: all are parked.
        notifier.resume();
        worker.until_count(100, Outcome::RulePaused).await;
    }
    notifier.pause();
    lift(&stage, RuleKind::Pause, &greet).await;
    let twice: Vec<_> = notifier.published().into_iter().rev().take(100).collect();
    stage.notifier.publish(&twice).await.unwrap();
    notifier.resume();
    let ran = seen.take(100).await;
    notifier.drained().await;
    assert_each_ran_once(&emitted, &[ran, seen.rest()].concat());
    assert_eq!(stage.rows().await, 0);
    worker.stop().await;
}

/// EV2-29: the same while the worker runs freely.
#[tokio::test]
async fn toggling_under_load_runs_each_event_once() {
    let (stage, notifier) = Stage::memory_with(patient()).await;
    let (handler, mut seen) = recording();
    let greet = scope("greet");
    let config = WorkerConfig { capacity: 4, ..WorkerConfig::default() };
    let worker = stage.worker_with(Handlers::new().on("greet", handler), config);
    put(&stage, RuleKind::Pause, &greet).await;
    let emitted = stage.emit_many("greet", 100).await;
    for _ in 0..10 {
        lift(&stage, RuleKind::Pause, &greet).await;
        put(&stage, RuleKind::Pause, &greet).await;
    }
    lift(&stage, RuleKind::Pause, &greet).await;
    let ran = seen.take(100).await;
    notifier.drained().await;
    assert_each_ran_once(&emitted, &[ran, seen.rest()].concat());
    worker.stop().await;
}

/// Pauses this many events, and lifts the rule: all are published, in pages, and run.
async fn check_pages(kind: RuleKind, count: usize) {
    let (stage, notifier) = Stage::memory().await;
    let (mut worker, _) = stage.recording("greet");
    put(&stage, kind, &scope("greet")).await;
    let emitted = stage.emit_many("greet", count).await;
    worker.until_count(count, parked(kind)).await;
    // A worker may publish what it can't start soon once more.
    worker.stop().await;
    let before = notifier.published().len();
    let lifted = ResumeResult { lifted: true, still: None, under: None, woken: count, waking: false };
    assert_eq!(lift(&stage, kind, &scope("greet")).await, lifted);
    let mut published: Vec<_> = notifier.published()[before..].iter().map(|message| message.id).collect();
    published.sort();
    assert_eq!(published, emitted, "each once");
    let (mut worker, mut seen) = stage.recording("greet");
    assert_each_ran_once(&emitted, &seen.take(count).await);
    worker.until_count(count, Outcome::Deleted).await;
    assert_eq!(stage.rows().await, 0);
    worker.stop().await;
}

/// See also EV2-X5.
// Shows: EV2-42, CARD-06
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn unpause_publishes_every_event_in_pages() {
    check_pages(RuleKind::Pause, 2500).await;
}

// Shows: EV2-43
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn unblock_publishes_every_event_in_pages() {
    check_pages(RuleKind::Block, 2500).await;
}

/// EV2-X6: nothing waits, nothing is published.
#[tokio::test]
async fn unpausing_nothing_publishes_nothing() {
    let (stage, notifier) = Stage::memory().await;
    put(&stage, RuleKind::Pause, &scope("greet")).await;
    assert_eq!(lift(&stage, RuleKind::Pause, &scope("greet")).await.woken, 0);
    assert!(notifier.published().is_empty());
}

/// A pause outlasts every message: the rows alone suffice.
// Shows: EV2-26
#[tokio::test]
async fn a_pause_outlasts_all_messages() {
    let (stage, notifier) = Stage::memory().await;
    put(&stage, RuleKind::Pause, &scope("greet")).await;
    let emitted = stage.emit_many("greet", 50).await;
    let (mut worker, mut seen) = stage.recording("greet");
    worker.until_count(50, Outcome::RulePaused).await;
    notifier.forget_everything();
    lift(&stage, RuleKind::Pause, &scope("greet")).await;
    assert_each_ran_once(&emitted, &seen.take(50).await);
    worker.stop().await;
}

/// EV2-43: unpausing while the broker is down reports what happens, and the events run once it is
/// back.
// Shows: EV2-28
#[tokio::test]
async fn lifting_a_rule_while_the_broker_is_down_loses_nothing() {
    let (stage, notifier) = Stage::memory_with(patient()).await;
    let (mut worker, mut seen) = stage.recording("greet");
    put(&stage, RuleKind::Pause, &scope("greet")).await;
    let emitted = stage.emit_many("greet", 20).await;
    worker.until_count(20, Outcome::RulePaused).await;
    notifier.break_down("the broker is away");
    let error = stage.admin.unpause(&scope("greet"), &ada()).await.unwrap_err();
    let words =
        "the change was made, but waking the events was interrupted; a worker continues within a minute";
    assert_eq!(error.to_string(), words);
    assert!(stage.admin.rules(None, 100).await.unwrap().items.is_empty());
    notifier.mend();
    assert_each_ran_once(&emitted, &seen.take(20).await);
    worker.stop().await;
}

/// A rule with an end lifts itself; one that would end in the past is refused.
#[tokio::test]
async fn a_pause_ends_by_itself() {
    let timing = Timing { probe_period: std::time::Duration::from_millis(300), ..quick() };
    let (stage, _) = Stage::memory_with(timing).await;
    let (handler, mut seen) = recording();
    let greet = scope("greet");
    let now = stage.admin.clock().await.unwrap();
    let past = Stop { until: Some(now), ..Stop::default() };
    let refused = stage.admin.pause(&greet, &ada(), &past).await.unwrap_err();
    assert_eq!(refused.to_string(), "the rule would end in the past: give a later moment");
    let until = now + std::time::Duration::from_secs(2);
    let stop = Stop { until: Some(until), ..Stop::default() };
    stage.admin.pause(&greet, &ada(), &stop).await.unwrap();
    let mut worker = stage.worker(Handlers::new().on("greet", handler));
    let id = stage.emit("greet").await;
    worker.until(id, Outcome::RulePaused).await;
    let ran = seen.next().await;
    assert!(ran.claimed_at >= until, "{} is before {until}", ran.claimed_at);
    worker.until(id, Outcome::Deleted).await;
    assert!(stage.admin.rules(None, 100).await.unwrap().items.is_empty());
    worker.stop().await;
}

/// Who set a rule, why and until when are stored; setting it again replaces them.
#[tokio::test]
async fn rules_say_who_and_why() {
    let (stage, _) = Stage::memory().await;
    let greet = scope("greet");
    let before = stage.admin.clock().await.unwrap();
    let stop = Stop { reason: Some("the provider is down".into()), until: None };
    let paused = stage.admin.pause(&greet, &ada(), &stop).await.unwrap();
    assert!(paused.new);
    let rule = stage.admin.rules_of(&greet).await.unwrap().remove(0);
    assert!(rule.created_at >= before);
    let expected = Rule {
        kind: RuleKind::Pause,
        scope: greet.clone(),
        reason: stop.reason,
        until: None,
        created_by: "ada".into(),
        created_at: rule.created_at,
    };
    assert_eq!(rule, expected);
    let until = Some(before + std::time::Duration::from_secs(3600));
    let again = stage.admin.pause(&greet, &Actor::user("bob"), &Stop { reason: None, until }).await.unwrap();
    assert!(!again.new);
    let renewed = stage.admin.rules_of(&greet).await.unwrap();
    let expected = Rule { reason: None, created_by: "bob".into(), until: renewed[0].until, ..expected };
    assert_eq!(renewed, [expected]);
    assert!(renewed[0].until.is_some());
}

/// Everything has a limit.
#[tokio::test]
async fn actors_and_reasons_are_limited() {
    let (stage, _) = Stage::memory().await;
    let refused = async |actor: &str, reason: &str| {
        let stop = Stop { reason: Some(reason.into()), until: None };
        let paused = stage.admin.pause(&scope("greet"), &Actor::user(actor), &stop).await;
        paused.err().map(|error| error.to_string())
    };
    let name = Some("the actor's name must have 1 to 200 characters, none of them NUL".to_owned());
    let words = Some("the reason must have at most 1,000 characters, none of them NUL".to_owned());
    assert_eq!(refused("", "x").await, name);
    assert_eq!(refused(&"a".repeat(201), "x").await, name);
    assert_eq!(refused("a\0", "x").await, name);
    assert_eq!(refused("a", &"ü".repeat(1001)).await, words);
    assert_eq!(refused("a", "\0").await, words);
    assert_eq!(refused(&"ü".repeat(200), &"ü".repeat(1000)).await, None);
}

/// A pause holds new events; running ones are not affected.
#[tokio::test]
async fn a_running_handler_is_not_stopped_by_a_pause() {
    let (stage, _) = Stage::memory().await;
    let (handler, mut door) = Door::new();
    let mut worker: RunningWorker = stage.worker(Handlers::new().on("greet", handler));
    let id = stage.emit("greet").await;
    door.arrived.next().await;
    put(&stage, RuleKind::Pause, &scope("greet")).await;
    door.open(1);
    worker.until(id, Outcome::Deleted).await;
    worker.stop().await;
}

/// A rule belongs to one canvas.
// Shows: EV2-05
#[tokio::test]
async fn a_rule_is_about_one_canvas() {
    let (stage, _) = Stage::memory().await;
    let canvas = CanvasId(uuid::Uuid::new_v4());
    put(&stage, RuleKind::Pause, &HandlerScope::worker(canvas, "greet").unwrap()).await;
    let (mut worker, mut seen) = stage.recording("greet");
    let held = stage.queue.emit(Event::new("greet", "x").unwrap().canvas(canvas)).await.unwrap().id;
    let free = stage.emit("greet").await;
    worker.until(held, Outcome::RulePaused).await;
    assert_eq!(seen.next().await.id, free);
    assert!(seen.rest().is_empty());
    assert!(stage.admin.stats(&scope("greet")).await.unwrap().is_none_or(|one| one.rules.is_empty()));
    worker.stop().await;
}
