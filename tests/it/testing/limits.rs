//! Limits in the kit's tables and on Postgres: the same steps with the same answers, and how tests
//! of limits read.
//!
//! Where a clock decides, moments are far apart, so that a slow machine does not matter.

use std::time::Duration;

use wakeq::control::Explanation;
use wakeq::limits::{LimitUse, NewLimit, OnFull, Rate};
use wakeq::machine::{CheckResult, Outcome};
use wakeq::testing::{DrainReport, KitError, RunningElsewhere, TestKit};
use wakeq::{
    Actor, CanvasId, Event, EventId, Execution, HandlerError, HandlerResult, Handlers, RetryPolicy, Route,
    Stop,
};

use super::on_postgres;
use crate::support::{OTHER, scope};

pub(super) const KILO: Duration = Duration::from_secs(1000);

async fn sync(event: Execution) -> HandlerResult {
    match (event.value::<String>()?.as_str(), event.attempt) {
        ("fails", 1) => Err(HandlerError::operational("no")),
        _ => Ok(()),
    }
}

/// A kit whose handler `sync` fails once for the value `fails`, and is retried two kiloseconds
/// later.
pub(super) fn syncing(mut kit: TestKit) -> TestKit {
    let retry = RetryPolicy { retries: 1, delay: 2 * KILO, ..RetryPolicy::default() };
    kit.handlers(Handlers::new().on(Route::new("sync").retry(retry), sync)).unwrap();
    kit
}

pub(super) fn event(keys: &[&str]) -> Event {
    keys.iter().fold(Event::new("sync", "ok").unwrap(), |event, key| event.limit(key).unwrap())
}

fn places(count: u32) -> NewLimit {
    NewLimit { concurrency: Some(count), ..NewLimit::default() }
}

fn full(count: u32, on_full: OnFull) -> NewLimit {
    NewLimit { on_full, ..places(count) }
}

async fn state(kit: &TestKit, id: EventId) -> Option<CheckResult> {
    match kit.explain(id).await.unwrap() {
        Explanation::Live(live) => Some(live.state),
        Explanation::Dead(_) | Explanation::Ended(_) | Explanation::Gone { .. } | Explanation::Unknown => {
            None
        }
    }
}

async fn uses(kit: &TestKit, canvas: CanvasId, name: &str) -> Vec<(String, u32, u64)> {
    let uses = kit.admin().limit_uses(canvas, &name.parse().unwrap(), None, 100).await.unwrap().items;
    let shown = |used: LimitUse| (used.name.to_string(), used.running, used.waiting);
    uses.into_iter().map(shown).filter(|(_, running, waiting)| *running > 0 || *waiting > 0).collect()
}

/// The events whose handlers were started, in their order.
pub(super) fn ran(drained: &DrainReport) -> Vec<EventId> {
    let started = drained.runs.iter().filter(|run| run.attempt.is_some());
    started.map(|run| run.notification.id).collect()
}

async fn waits_for_its_turn(kit: TestKit) {
    let kit = syncing(kit);
    kit.limit("customer", places(2)).await.unwrap();
    let mut others = Vec::new();
    for _ in 0..2 {
        others.push(kit.start_elsewhere(event(&["customer:7"])).await.unwrap());
    }
    let first = kit.emit(event(&["customer:7"])).await.unwrap().id;
    kit.advance(KILO / 100).await.unwrap();
    let second = kit.emit(event(&["customer:7"])).await.unwrap().id;
    // Another key of the family, and another tenant's of the same name, for which nothing is set.
    let theirs = kit.emit(event(&["customer:7"]).canvas(OTHER)).await.unwrap().id;
    let eighth = kit.emit(event(&["customer:8"])).await.unwrap().id;
    let drained = kit.drain().await.unwrap();
    let mut started = ran(&drained);
    started.sort_unstable();
    assert_eq!(started, [theirs, eighth]);
    assert_eq!((drained.limited, drained.waiting), (2, 4));
    assert_eq!(drained.of(first).next().unwrap().trail.last(), Some(&Outcome::LimitFull));
    assert_eq!(state(&kit, first).await, Some(CheckResult::Limited));
    assert_eq!(uses(&kit, CanvasId::DEFAULT, "customer").await, [("customer:7".to_owned(), 2, 2)]);
    assert_eq!(uses(&kit, OTHER, "customer").await, []);

    let Explanation::Live(live) = kit.explain(second).await.unwrap() else { panic!("it waits") };
    let waits = live.limited.expect("it waits for a place");
    let mut holders: Vec<EventId> = others.iter().map(RunningElsewhere::id).collect();
    holders.sort_unstable();
    let mut found = waits.holders;
    found.sort_unstable();
    assert_eq!((waits.name.as_str(), found), ("customer:7", holders));

    others.pop().unwrap().complete().await.unwrap();
    assert_eq!(ran(&kit.drain().await.unwrap()), [first, second], "each end lets the next one start");
    others.pop().unwrap().complete().await.unwrap();
    assert_eq!(uses(&kit, CanvasId::DEFAULT, "customer").await, []);
}

#[tokio::test]
async fn an_event_waits_for_a_place_of_its_key() {
    waits_for_its_turn(TestKit::new()).await;
    let (_stage, kit) = on_postgres().await;
    waits_for_its_turn(kit).await;
}

/// However long nobody takes what was told to come, it is no limit that holds it up.
async fn is_ready_once_told(kit: TestKit) {
    let kit = syncing(kit);
    kit.limit("customer", places(1)).await.unwrap();
    let running = kit.start_elsewhere(event(&["customer:7"])).await.unwrap();
    let next = kit.emit(event(&["customer:7"])).await.unwrap().id;
    assert_eq!(kit.drain().await.unwrap().limited, 1);
    assert_eq!(state(&kit, next).await, Some(CheckResult::Limited));
    running.complete().await.unwrap();
    kit.advance(KILO / 50).await.unwrap();
    assert_eq!(state(&kit, next).await, Some(CheckResult::Ready));
    assert_eq!(ran(&kit.drain().await.unwrap()), [next]);
}

#[tokio::test]
async fn an_event_that_was_told_to_come_is_ready() {
    is_ready_once_told(TestKit::new()).await;
    let (_stage, kit) = on_postgres().await;
    is_ready_once_told(kit).await;
}

/// A worker that dies keeps its place for a lease.
async fn dies_with_a_place(kit: TestKit) {
    let kit = syncing(kit);
    kit.limit("handler:WORKER/sync", places(1)).await.unwrap();
    let died = kit.start_elsewhere(event(&[])).await.unwrap();
    let lost = died.id();
    drop(died);
    let next = kit.emit(event(&[])).await.unwrap().id;
    assert_eq!(kit.drain().await.unwrap().attempts(), 0);
    kit.advance(Duration::from_secs(20)).await.unwrap();
    assert_eq!(kit.drain().await.unwrap().attempts(), 0, "the lease stands");
    let drained = kit.drain_for(KILO).await.unwrap();
    assert_eq!((drained.completed, drained.waiting), (2, 0), "{drained}");
    assert!(ran(&drained).contains(&next) && ran(&drained).contains(&lost));
}

#[tokio::test]
async fn a_place_ends_with_the_lease_of_a_worker_that_died() {
    dies_with_a_place(TestKit::new()).await;
    let (_stage, kit) = on_postgres().await;
    dies_with_a_place(kit).await;
}

/// Two limits in either order: no event holds one while it waits for the other.
async fn takes_both_or_none(kit: TestKit) {
    let kit = syncing(kit);
    for key in ["a", "b"] {
        kit.limit(key, places(1)).await.unwrap();
    }
    let holds_b = kit.start_elsewhere(event(&["b"])).await.unwrap();
    let both = kit.emit(event(&["a", "b"])).await.unwrap().id;
    let crossed = kit.emit(event(&["b", "a"])).await.unwrap().id;
    let only_a = kit.emit(event(&["a"])).await.unwrap().id;
    assert_eq!(ran(&kit.drain().await.unwrap()), [only_a], "its place was not held for the others");
    holds_b.complete().await.unwrap();
    assert_eq!(ran(&kit.drain().await.unwrap()), [both, crossed]);
}

#[tokio::test]
async fn an_event_holds_no_place_while_it_waits_for_another() {
    takes_both_or_none(TestKit::new()).await;
    let (_stage, kit) = on_postgres().await;
    takes_both_or_none(kit).await;
}

async fn does_something_else_when_full(kit: TestKit) {
    let kit = syncing(kit);
    let gone = async |id| state(&kit, id).await.is_none();
    kit.limit("drop", full(1, OnFull::Drop)).await.unwrap();
    let running = kit.start_elsewhere(event(&["drop"])).await.unwrap();
    let dropped = kit.emit(event(&["drop"])).await.unwrap().id;
    assert_eq!(kit.drain().await.unwrap().attempts(), 0);
    assert!(gone(dropped).await);
    running.complete().await.unwrap();

    kit.limit("replace", full(1, OnFull::Replace)).await.unwrap();
    let running = kit.start_elsewhere(event(&["replace"])).await.unwrap();
    let replaced = kit.emit(event(&["replace"])).await.unwrap().id;
    kit.drain().await.unwrap();
    let latest = kit.emit(event(&["replace"])).await.unwrap().id;
    kit.drain().await.unwrap();
    kit.drain().await.unwrap();
    assert!(gone(replaced).await && !gone(latest).await, "only the latest waits");
    running.complete().await.unwrap();
    assert_eq!(ran(&kit.drain().await.unwrap()), [latest]);

    kit.limit("cancel", full(1, OnFull::Cancel)).await.unwrap();
    let running = kit.start_elsewhere(event(&["cancel"])).await.unwrap();
    let next = kit.emit(event(&["cancel"])).await.unwrap().id;
    kit.drain().await.unwrap();
    let Explanation::Live(live) = kit.explain(running.id()).await.unwrap() else { panic!("it runs") };
    assert_eq!(live.cancelled_by.as_deref(), Some("limit:cancel"));
    running.complete().await.unwrap();
    assert_eq!(ran(&kit.drain().await.unwrap()), [next]);
}

#[tokio::test]
async fn a_full_limit_drops_replaces_or_cancels() {
    does_something_else_when_full(TestKit::new()).await;
    let (_stage, kit) = on_postgres().await;
    does_something_else_when_full(kit).await;
}

/// What has run before waits, and a rate that holds an event up cancels nothing that runs.
async fn leaves_what_has_run_and_what_runs(kit: TestKit) {
    let kit = syncing(kit);
    kit.limit("drop", full(1, OnFull::Drop)).await.unwrap();
    let fails = Event::new("sync", "fails").unwrap().limit("drop").unwrap();
    let retried = kit.emit(fails).await.unwrap().id;
    assert_eq!(kit.drain().await.unwrap().retried, 1);
    kit.advance(2 * KILO).await.unwrap();
    let other = kit.start_elsewhere(event(&["drop"])).await.unwrap();
    assert_eq!(kit.drain().await.unwrap().limited, 1);
    assert_eq!(state(&kit, retried).await, Some(CheckResult::Limited));
    other.complete().await.unwrap();
    assert_eq!(kit.drain().await.unwrap().completed, 1);

    let slowly = NewLimit { rate: Some(Rate::new(1, KILO)), ..full(2, OnFull::Cancel) };
    kit.limit("cancel", slowly).await.unwrap();
    let runs = kit.start_elsewhere(event(&["cancel"])).await.unwrap();
    let early = kit.emit(event(&["cancel"])).await.unwrap().id;
    assert_eq!(ran(&kit.drain().await.unwrap()), []);
    assert_eq!(state(&kit, early).await, Some(CheckResult::Limited));
    let Explanation::Live(live) = kit.explain(runs.id()).await.unwrap() else { panic!("it runs") };
    assert_eq!((live.state, live.cancelled_by), (CheckResult::Running, None));
    runs.complete().await.unwrap();
}

#[tokio::test]
async fn only_newcomers_are_dropped_and_only_for_a_place_is_cancelled_what_runs() {
    leaves_what_has_run_and_what_runs(TestKit::new()).await;
    let (_stage, kit) = on_postgres().await;
    leaves_what_has_run_and_what_runs(kit).await;
}

async fn refuses_what_would_wait_for_too_long(kit: TestKit) {
    let kit = syncing(kit);
    kit.limit("customer", NewLimit { waiting_max: Some(1), ..places(1) }).await.unwrap();
    let running = kit.start_elsewhere(event(&["customer:7"])).await.unwrap();
    kit.emit(event(&["customer:7"])).await.unwrap();
    assert_eq!(kit.drain().await.unwrap().limited, 1);
    let refused = kit.emit(event(&["customer:7"])).await.unwrap_err();
    assert!(matches!(refused, KitError::Emit(_)), "{refused}");
    assert!(refused.to_string().contains("waiting_max"), "{refused}");
    for other in [event(&["customer:8"]), event(&[]), event(&["customer:7"]).canvas(OTHER)] {
        kit.emit(other).await.unwrap();
    }
    running.complete().await.unwrap();
    assert_eq!(kit.drain().await.unwrap().completed, 4);
}

#[tokio::test]
async fn an_emit_is_refused_at_the_waiting_length_of_its_key() {
    refuses_what_would_wait_for_too_long(TestKit::new()).await;
    let (_stage, kit) = on_postgres().await;
    refuses_what_would_wait_for_too_long(kit).await;
}

/// The operator's definitions: a default of each canvas, and a handler of all canvases together.
async fn obeys_the_operator(kit: TestKit) {
    let kit = syncing(kit);
    let (all, ada) = (CanvasId::OF_QUEUES, Actor::admin("ada"));
    let put = async |canvas, name: &str, count| {
        kit.admin().put_limit(canvas, &name.parse().unwrap(), &places(count), &ada).await.unwrap();
    };
    put(all, "customer", 1).await;
    let ours = kit.start_elsewhere(event(&["customer:7"])).await.unwrap();
    let theirs = kit.start_elsewhere(event(&["customer:7"]).canvas(OTHER)).await.unwrap();
    let refused = kit.start_elsewhere(event(&["customer:7"])).await.unwrap_err();
    assert!(matches!(refused, KitError::NotStarted(_)), "{refused}");
    put(CanvasId::DEFAULT, "customer", 2).await;
    assert_eq!(kit.drain().await.unwrap().completed, 1, "our own limit is in place of the default");

    put(all, "handler:WORKER/sync", 2).await;
    let first = kit.start_elsewhere(event(&[])).await.expect("what ran before has no place");
    let second = kit.start_elsewhere(event(&[]).canvas(OTHER)).await.unwrap();
    assert!(kit.start_elsewhere(event(&[]).canvas(OTHER)).await.is_err(), "both canvases count together");
    assert_eq!(uses(&kit, all, "handler:WORKER/sync").await, [("handler:WORKER/sync".to_owned(), 2, 1)]);
    let removed = kit.admin().remove_limit(OTHER, &"handler:WORKER/sync".parse().unwrap(), &ada).await;
    assert!(!removed.unwrap(), "it is not theirs");
    for running in [ours, theirs, first, second] {
        running.complete().await.unwrap();
    }
    assert_eq!(kit.drain().await.unwrap().completed, 1);
}

#[tokio::test]
async fn limits_of_the_operator_hold_on_every_canvas() {
    obeys_the_operator(TestKit::new()).await;
    let (_stage, kit) = on_postgres().await;
    obeys_the_operator(kit).await;
}

/// Small and seeded; the same for both kits.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }

    fn event(&mut self) -> Event {
        let keys = (0..self.below(3)).map(|_| self.one_of(&["a", "a", "b:1", "b:1", "b:2", "unlimited"]));
        let mut keys: Vec<&str> = keys.collect();
        keys.sort_unstable();
        keys.dedup();
        let event = if self.below(6) == 0 { event(&keys).canvas(OTHER) } else { event(&keys) };
        if self.below(4) == 0 { event.after(KILO).unwrap() } else { event }
    }

    fn limit(&mut self) -> NewLimit {
        let on_full = [OnFull::Wait, OnFull::Wait, OnFull::Replace, OnFull::Drop];
        full(1 + self.below(2) as u32, self.one_of(&on_full))
    }
}

/// A kit, what it has emitted, and what runs elsewhere.
struct Player {
    kit: TestKit,
    known: Vec<(CanvasId, EventId)>,
    running: Vec<RunningElsewhere>,
}

impl Player {
    /// With two limits to begin with, so that most events find some.
    async fn new(kit: TestKit, seed: u64, dice: &mut Dice) -> Self {
        let (ours, all) = (CanvasId::DEFAULT, CanvasId::OF_QUEUES);
        let begun_with = match seed % 3 {
            0 => [(ours, "a"), (ours, "b")],
            1 => [(ours, "b:1"), (all, "handler:WORKER/sync")],
            _ => [(ours, "a"), (all, "b")],
        };
        let kit = syncing(kit);
        for (canvas, name) in begun_with {
            let name = name.parse().unwrap();
            kit.admin().put_limit(canvas, &name, &dice.limit(), &Actor::admin("ada")).await.unwrap();
        }
        Self { kit, known: Vec::new(), running: Vec::new() }
    }

    /// Takes a step, and returns what can be observed.
    async fn take(&mut self, dice: &mut Dice) -> String {
        let (ada, admin) = (Actor::admin("ada"), self.kit.admin().clone());
        // No two events are due at the same time, so that they have an order. A place that is kept
        // and a lease end a second and more after a step for each step that they last, which is
        // what steps may take on Postgres.
        self.kit.advance(Duration::from_secs(9)).await.unwrap();
        match dice.below(15) {
            0..=3 => {
                let emitting = dice.event();
                let canvas = emitting.address(CanvasId::DEFAULT).scope.canvas;
                let emitted = self.kit.emit(emitting).await.unwrap();
                self.known.push((canvas, emitted.id));
                String::new()
            }
            4..=7 => {
                let started = self.kit.start_elsewhere(dice.event()).await;
                let shown = started.as_ref().map_or_else(ToString::to_string, |_| "runs".to_owned());
                self.running.extend(started.ok());
                shown
            }
            8 if !self.running.is_empty() => {
                let at = dice.below(self.running.len() as u64) as usize;
                let running = self.running.remove(at);
                if dice.below(4) > 0 {
                    running.complete().await.unwrap();
                }
                String::new()
            }
            9 => {
                let canvas = dice.one_of(&[CanvasId::DEFAULT, CanvasId::DEFAULT, CanvasId::OF_QUEUES]);
                let name = dice.one_of(&["a", "b", "b:1", "canvas", "handler:WORKER/sync"]).parse().unwrap();
                if dice.below(4) == 0 {
                    return format!("{}", admin.remove_limit(canvas, &name, &ada).await.unwrap());
                }
                let put = admin.put_limit(canvas, &name, &dice.limit(), &ada).await.unwrap();
                format!("{} {}", put.new, put.limit.definition)
            }
            11 => {
                self.kit.advance(KILO).await.unwrap();
                self.running.clear();
                String::new()
            }
            10 if dice.below(2) == 0 => {
                let paused = admin.pause(&scope("sync"), &ada, &Stop::default()).await.unwrap().new;
                let drained = self.kit.drain().await.unwrap().completed;
                let lifted = admin.unpause(&scope("sync"), &ada).await.unwrap().lifted;
                format!("{paused} {drained} {lifted}")
            }
            _ => {
                let drained = self.kit.drain().await.unwrap();
                let mut started: Vec<usize> = Vec::new();
                for id in ran(&drained) {
                    started.extend(self.known.iter().position(|(_, known)| *known == id));
                }
                started.sort_unstable();
                format!("{:?} {started:?}", (drained.completed, drained.cancelled, drained.waiting))
            }
        }
    }

    async fn findings(&self) -> String {
        let mut found = String::new();
        for (canvas, id) in &self.known {
            let explained = self.kit.admin().explain(*canvas, *id).await.unwrap();
            if let Explanation::Live(live) = explained {
                let waits = live.limited.map(|limited| limited.name.to_string());
                found.push_str(&format!("\n{:?} {:?} {waits:?}", live.state, live.cancelled_by));
            } else {
                found.push_str("\nended");
            }
        }
        for name in ["a", "b", "b:1", "canvas", "handler:WORKER/sync"] {
            for canvas in [CanvasId::DEFAULT, OTHER, CanvasId::OF_QUEUES] {
                found.push_str(&format!("\n{name} {:?}", uses(&self.kit, canvas, name).await));
            }
        }
        found
    }
}

/// Whatever is set, emitted and started, memory and Postgres let the same events start, and show
/// the same. Which of the events that wait comes first is decided by their due times.
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn memory_and_postgres_agree_on_limits() {
    let (mut full, mut seen) = (0, String::new());
    for seed in 1..=12 {
        let (_stage, real) = on_postgres().await;
        let (mut dice, mut same) = (Dice(seed), Dice(seed));
        let mut real = Player::new(real, seed, &mut dice).await;
        let mut memory = Player::new(TestKit::new(), seed, &mut same).await;
        for step in 0..50 {
            let (expected, found) = (real.take(&mut dice).await, memory.take(&mut same).await);
            assert_eq!(found, expected, "seed {seed}, step {step}");
            let (expected, found) = (real.findings().await, memory.findings().await);
            assert_eq!(found, expected, "seed {seed}, step {step}");
            full += found.matches("Limited").count();
            seen.push_str(&found);
        }
    }
    assert!(full > 50, "limits were hardly met: {full} times");
    for name in ["a\"", "b:", "canvas\"", "handler:WORKER/sync\""] {
        assert!(
            seen.contains(&format!("Limited None Some(\"{name}")),
            "nothing waited for {name}, of {full}"
        );
    }
}
