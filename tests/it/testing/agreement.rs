//! The tables in memory against Postgres: the same random steps on two kits, with the same findings
//! after each.
//!
//! Moments are whole kiloseconds and the deployment's durations half ones, so that a slow machine
//! does not matter.

use std::time::Duration;

use uuid::Uuid;
use wakeq::control::{DeadFilter, EventFilter, Explanation, NewOperation, OperationKind};
use wakeq::events::Due;
use wakeq::machine::Outcome;
use wakeq::order::Lane;
use wakeq::testing::{DrainReport, TestKit};
use wakeq::workers::RunReport;
use wakeq::{
    Actor, Admin, CanvasId, Emitted, Event, EventId, Execution, HandlerError, HandlerResult, Handlers, Queue,
    RetryPolicy, Route, Stop, Timing,
};

use crate::support::{Stage, connect, scope, until};

const STEPS: usize = 60;
const KILO: Duration = Duration::from_secs(1000);
/// Rounded to hundreds of seconds, no sum of these comes near a half, where the time that a server
/// needs on a busy machine would show.
const BEYOND: Duration = Duration::from_secs(101);
const NAMES: [&str; 4] = ["a", "b", "c", "late"];
const OBJECTS: [&str; 2] = ["work:1", "work:2"];
const ELSEWHERE: CanvasId = CanvasId(Uuid::from_u128(7));
/// For this handler, the death of an event halts its object.
const HALTING: &str = "c";

fn timing() -> Timing {
    Timing {
        lease: KILO * 5 / 2,
        horizon: KILO * 7 / 2,
        grace: KILO * 3 / 2,
        probe_period: KILO / 2,
        probe_backoff: KILO * 9 / 2,
        probe_backoff_max: KILO * 25 / 2,
        unknown_handler_wait: KILO * 11 / 2,
        ..Timing::default()
    }
}

/// Small and seeded; the same for both kits.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % bound
    }
}

#[derive(Clone, Debug)]
enum Step {
    Emit {
        id: u128,
        name: &'static str,
        object: Option<&'static str>,
        delay: u32,
        plan: String,
    },
    /// A main event, two subevents, and the new state if it changes.
    Change {
        first: u128,
        name: &'static str,
        object: &'static str,
        state: Option<u128>,
    },
    Object(&'static str),
    Skip {
        name: &'static str,
        object: &'static str,
    },
    /// The same id on another canvas.
    EmitElsewhere {
        id: u128,
        name: &'static str,
        delay: u32,
    },
    EmitMany {
        first: u128,
        name: &'static str,
    },
    Stop {
        name: &'static str,
        block: bool,
        until: Option<u32>,
    },
    Lift {
        name: &'static str,
        block: bool,
    },
    /// Stops the canvas or everything for this long, or lifts that.
    Switch {
        everything: bool,
        lasting: Option<u32>,
    },
    Advance(u32),
    Drain,
    DrainFor(u32),
    Cancel(u128),
    RunNow(u128),
    Move(u128, u32),
    Explain(u128),
    Purge(&'static str),
    Redrive,
    Operate(OperationKind, &'static str),
    Learn,
}

fn program(seed: u64) -> Vec<Step> {
    let mut dice = Dice(seed);
    let mut last = 0;
    (0..STEPS)
        .map(|_| {
            let name = NAMES[dice.below(4)];
            let old = dice.below(last as usize + 1) as u128;
            let object = OBJECTS[dice.below(2)];
            match dice.below(35) {
                0..=6 => {
                    // Occasionally reuses an id that was emitted before.
                    last += 1;
                    let id = if dice.below(8) == 0 { old } else { last };
                    let attempts = 0..=dice.below(3);
                    let plan = attempts.map(|_| ['o', 'f', 'v', 'p', 'r', 'e', 'c'][dice.below(7)]).collect();
                    let object = (dice.below(2) == 0).then_some(object);
                    Step::Emit { id, name, object, delay: [0, 0, 0, 1, 3, 4, 20][dice.below(7)], plan }
                }
                7 => {
                    last += 3;
                    Step::EmitMany { first: last - 2, name }
                }
                8 | 9 => {
                    let until = (dice.below(2) == 0).then(|| 1 + dice.below(8) as u32);
                    Step::Stop { name, block: dice.below(3) == 0, until }
                }
                10 | 11 => Step::Lift { name, block: dice.below(3) == 0 },
                12..=14 => Step::Advance([1, 2, 3, 6, 30][dice.below(5)]),
                15..=19 => Step::Drain,
                20 => Step::DrainFor(1 + dice.below(9) as u32),
                21 => Step::Cancel(old),
                22 if dice.below(2) == 0 => Step::Move(old, [1, 3, 6][dice.below(3)]),
                22 => Step::RunNow(old),
                23 => Step::Explain(old),
                24 => {
                    let kinds = [OperationKind::Cancel, OperationKind::RunNow, OperationKind::Delete];
                    let operate = Step::Operate(kinds[dice.below(3)].clone(), name);
                    [Step::Purge(name), Step::Redrive, operate][dice.below(3)].clone()
                }
                25 | 26 => {
                    let first = if dice.below(6) == 0 { old } else { last + 1 };
                    last = last.max(first + 2);
                    Step::Change { first, name, object, state: (dice.below(2) == 0).then_some(first) }
                }
                27 | 28 => Step::Object(object),
                29 => Step::Skip { name: HALTING, object },
                30 | 31 => Step::EmitElsewhere { id: old, name, delay: [0, 1, 900][dice.below(3)] },
                32 | 33 => {
                    let lasting = (dice.below(2) == 0).then(|| 1 + dice.below(4) as u32);
                    Step::Switch { everything: dice.below(2) == 0, lasting }
                }
                _ => Step::Learn,
            }
        })
        .collect()
}

/// What the plan says for this attempt: o(k), f(ails), v(alue), p(anics), r(etries later), e(mits
/// another), is c(ancelled). Each leaves to the next one how many there were.
async fn act(event: Execution, queue: Queue, admin: Admin) -> HandlerResult {
    let plan: String = event.value()?;
    let runs = event.last_checkpoint::<u32>().await?.unwrap_or(0) + 1;
    event.checkpoint(&runs).await?;
    match plan.chars().nth(event.attempt as usize - 1).unwrap_or('o') {
        'f' => Err(HandlerError::operational(format!("failure {} of {runs}", event.attempt))),
        'v' => Err(HandlerError::value("as told")),
        'p' => panic!("as told"),
        'r' => Err(HandlerError::operational("later").retry_after(4 * KILO)),
        'e' => {
            let child = child_of(event.id);
            queue.emit(Event::new("b", "fo")?.id(child)).await?;
            Ok(())
        }
        'c' => {
            admin.cancel_running(event.address.scope.canvas, event.id, &Actor::user("ada")).await?;
            Err(HandlerError::operational(format!("{:?}", event.cancelled().await)))
        }
        _ => Ok(()),
    }
}

fn handlers(kit: &TestKit, all: bool) -> Handlers {
    let names = NAMES.into_iter().filter(|name| all || *name != "late");
    names.fold(Handlers::new(), |handlers, name| {
        let retries = if name == "a" { 1 } else { 2 };
        let retry = RetryPolicy { retries, delay: 2 * KILO, factor: 2, ..RetryPolicy::default() };
        let (queue, admin) = (kit.queue(), kit.admin().clone());
        let route = Route::new(name).retry(retry);
        let route = if name == HALTING { route.halt_on_death() } else { route };
        handlers.on(route, move |event| act(event, queue.clone(), admin.clone()))
    })
}

fn id(number: u128) -> EventId {
    EventId(Uuid::from_u128(number))
}

/// The id of the event that an event's handler emits.
fn child_of(event: EventId) -> EventId {
    EventId(Uuid::from_u128(event.0.as_u128() ^ 1))
}

/// What a drain did, sorted: events that are due together are identified by their ids. When the
/// notification of a removed event arrives depends on the parking lot, so such a run is left out.
fn shown(drained: &DrainReport, looks: bool) -> String {
    let counts = (drained.completed, drained.retried, drained.died, drained.waiting);
    let gone = |run: &RunReport| run.trail == [Outcome::EventMissing];
    let runs = drained.runs.iter().filter(|run| (looks && !gone(run)) || run.attempt.is_some());
    let mut runs: Vec<String> = runs
        .map(|run| {
            let trail: Vec<&str> = run.trail.iter().map(|outcome| outcome.as_str()).collect();
            let number = run.notification.id.0.as_u128();
            format!("\n    {number}: {:?} {} {:?}", run.attempt, trail.join(" "), run.error)
        })
        .collect();
    runs.sort();
    format!("{counts:?}{}", runs.concat())
}

async fn explained(kit: &TestKit, event: EventId) -> String {
    let left = kit.admin().checkpoint(CanvasId::DEFAULT, event).await.unwrap();
    let left = left.map(|checkpoint| checkpoint.json);
    let explained = explanation(kit, event).await;
    format!("{explained}, left {left:?}")
}

async fn explanation(kit: &TestKit, event: EventId) -> String {
    match kit.explain(event).await.unwrap() {
        Explanation::Live(live) => {
            // Adding 0.0 drops the sign of a negative zero.
            let seconds =
                |moment: wakeq::Timestamp| ((moment - live.now).as_seconds_f64() / 100.0).round() + 0.0;
            format!(
                "{} {:?} due {} promise {:?} retries {} losses {} {:?} rule {:?} unknown {} {:?} behind {:?}",
                live.address,
                live.state,
                seconds(live.delay_until),
                live.notify_at.map(seconds),
                live.retries,
                live.losses,
                live.last_error,
                live.rule.map(|rule| (rule.kind, rule.reach(), rule.until.map(seconds))),
                live.unknown_since.is_some(),
                live.place,
                live.first
            )
        }
        Explanation::Dead(dead) => {
            format!(
                "dead of {} after {} {:?} {:?} halts {}",
                dead.cause, dead.retries, dead.last_error, dead.place, dead.halts
            )
        }
        Explanation::Ended(ended) => format!("{} after {}", ended.outcome, ended.retries),
        Explanation::Gone { .. } => "gone".into(),
        Explanation::Unknown => "unknown".into(),
    }
}

async fn change(kit: &TestKit, first: u128, name: &'static str, object: &str, state: Option<u128>) -> String {
    let event = |name, plan, more| Event::new(name, plan).unwrap().id(id(first + more));
    let subevents = vec![event(name, "fo", 1), event(HALTING, "fff", 2)];
    let state = state.map(|state| state.to_string());
    let emitting = kit.queue().emit_on(object, event(name, "o", 0), subevents, state.as_deref()).await;
    told(emitting, |all| format!("{:?}", all.iter().map(|one| (one.duplicate, one.link)).collect::<Vec<_>>()))
}

/// What came of an emit, whose chosen id may be that of an event for another handler.
fn told<T, E: std::fmt::Display>(emitted: Result<T, E>, words: impl FnOnce(T) -> String) -> String {
    emitted.map_or_else(|error| error.to_string(), words)
}

async fn emit_elsewhere(kit: &TestKit, number: u128, name: &str, delay: Duration) -> String {
    let event = Event::new(name, "fo").unwrap().id(id(number)).after(delay).unwrap();
    told(kit.emit(event.canvas(ELSEWHERE)).await, |one| format!("{} {}", one.duplicate, one.id))
}

fn lane(name: &str, object: &str) -> Lane {
    Lane { scope: scope(name), object: object.parse().unwrap(), queue: None }
}

async fn shown_object(kit: &TestKit, object: &str) -> String {
    let found = kit.queue().object(CanvasId::DEFAULT, object).await.unwrap();
    let found = found.map(|found| (found.last_id, found.state));
    let (admin, key) = (kit.admin(), object.parse().unwrap());
    let halted = admin.halted_on(CanvasId::DEFAULT, &key, None, 1000).await.unwrap().items;
    let halted: Vec<_> = halted
        .into_iter()
        .map(|halted| ("HaltedLane", halted.lane, halted.event, halted.event_seq))
        .collect();
    let gone = admin.tombstones(CanvasId::DEFAULT, &key, None, 0, 1000).await.unwrap();
    let gone: Vec<_> = gone.into_iter().map(|gone| (gone.link, gone.cause)).collect();
    assert_eq!(
        admin.running(CanvasId::DEFAULT, &key, 1000).await.unwrap(),
        [],
        "everything has come to rest"
    );
    format!("{found:?} {halted:?} tombstones {gone:?}")
}

async fn redrive(kit: &mut TestKit) -> String {
    let (ada, admin) = (Actor::admin("ada"), kit.admin());
    // The filter leaves out what died at this very moment, and in memory time does not pass by
    // itself.
    kit.advance(Duration::from_millis(1)).await.unwrap();
    // Which of the events that died together was first is arbitrary, but on objects it decides
    // their links, so these are redriven in the order of their ids.
    let mut alone = Vec::new();
    for number in 0..100 {
        let dead = kit.explain(id(number)).await.unwrap();
        if matches!(dead, Explanation::Dead(dead) if dead.place.is_some()) {
            alone.push(admin.redrive_one(CanvasId::DEFAULT, id(number), &ada).await.is_ok());
        }
    }
    let rest = admin.redrive(&DeadFilter::default(), &ada, false).await.unwrap();
    format!("{alone:?} {rest:?}")
}

async fn lift(kit: &TestKit, name: &str, block: bool) -> String {
    let (ada, admin) = (Actor::admin("ada"), kit.admin());
    let lifted = match block {
        true => admin.unblock(&scope(name), &ada).await,
        false => admin.unpause(&scope(name), &ada).await,
    };
    let lifted = lifted.unwrap();
    format!("{} {:?} {}", lifted.lifted, lifted.still, lifted.woken)
}

async fn switch_off(kit: &TestKit, everything: bool, lasting: Duration) -> String {
    let (ada, admin) = (Actor::admin("ada"), kit.admin());
    let stop = Stop { reason: None, until: Some(kit.now().await.unwrap() + lasting - KILO / 2) };
    let stopped = match everything {
        true => admin.block_all(&ada, &stop).await,
        false => admin.pause_canvas(CanvasId::DEFAULT, &ada, &stop).await,
    };
    format!("{}", stopped.unwrap().new)
}

async fn switch_on(kit: &TestKit, everything: bool) -> String {
    let (ada, admin) = (Actor::admin("ada"), kit.admin());
    let lifted = match everything {
        true => admin.unblock_all(&ada).await,
        false => admin.unpause_canvas(CanvasId::DEFAULT, &ada).await,
    };
    let lifted = lifted.unwrap();
    let under = lifted.under.map(|rule| (rule.kind, rule.reach()));
    format!("{} {:?} {under:?} {}", lifted.lifted, lifted.still, lifted.woken)
}

/// What an operation on the events of a handler counted, and did.
async fn operate(kit: &TestKit, kind: OperationKind, name: &str) -> String {
    let filter = EventFilter { name: Some(name.parse().unwrap()), ..EventFilter::default() };
    let new = NewOperation::new(kind, filter);
    let begun = kit.admin().begin_operation(CanvasId::DEFAULT, &new, &Actor::admin("ada")).await.unwrap();
    let ended = async || {
        let latest = kit.admin().operation(CanvasId::DEFAULT, begun.id).await.unwrap();
        latest.ended_at.is_some().then_some(latest)
    };
    let ended = until("the operation ends", ended).await;
    format!("{} {} {}", begun.preview_count, ended.changed, ended.skipped)
}

/// Takes a step and returns what can be observed.
async fn take(kit: &mut TestKit, step: &Step) -> String {
    let (ada, admin) = (Actor::admin("ada"), kit.admin());
    let kilo = |count: u32| KILO * count;
    match step.clone() {
        Step::Emit { id: number, name, object, delay, plan } => {
            let event = Event::new(name, &plan).unwrap().id(id(number)).after(kilo(delay)).unwrap();
            let event = match object {
                Some(object) => event.on(object).unwrap(),
                None => event,
            };
            let words = |one: Emitted| format!("{} {} {:?}", one.duplicate, one.notified, one.link);
            told(kit.emit(event).await, words)
        }
        Step::EmitElsewhere { id, name, delay } => emit_elsewhere(kit, id, name, kilo(delay)).await,
        Step::Change { first, name, object, state } => change(kit, first, name, object, state).await,
        Step::Object(object) => shown_object(kit, object).await,
        Step::Skip { name, object } => {
            format!("{}", admin.skip(&lane(name, object), &ada).await.unwrap())
        }
        Step::EmitMany { first, name } => {
            let events = (0..3).map(|more| Event::new(name, "ro").unwrap().id(id(first + more))).collect();
            let words = |all: Vec<Emitted>| {
                format!("{:?}", all.iter().map(|one| (one.duplicate, one.notified)).collect::<Vec<_>>())
            };
            told(kit.queue().emit_all(events).await, words)
        }
        Step::Stop { name, block, until } => {
            let until = match until {
                // Between two whole kiloseconds, so that a slow machine does not matter.
                Some(until) => Some(kit.now().await.unwrap() + kilo(until) - KILO / 2),
                None => None,
            };
            let stop = Stop { reason: None, until };
            let stopped = match block {
                true => admin.block(&scope(name), &ada, &stop).await,
                false => admin.pause(&scope(name), &ada, &stop).await,
            };
            let stopped = stopped.unwrap();
            format!("{} {:?}", stopped.new, stopped.also)
        }
        Step::Lift { name, block } => lift(kit, name, block).await,
        Step::Switch { everything, lasting: Some(count) } => switch_off(kit, everything, kilo(count)).await,
        Step::Switch { everything, lasting: None } => switch_on(kit, everything).await,
        Step::Advance(count) => {
            kit.advance(kilo(count)).await.unwrap();
            String::new()
        }
        Step::Drain => shown(&kit.drain().await.unwrap(), true),
        Step::DrainFor(count) => shown(&kit.drain_for(kilo(count) + BEYOND).await.unwrap(), false),
        Step::Cancel(number) => {
            format!("{:?}", admin.cancel(CanvasId::DEFAULT, id(number), &ada).await.is_ok())
        }
        Step::RunNow(number) => {
            format!("{:?}", admin.run_now(CanvasId::DEFAULT, id(number), &ada).await.is_ok())
        }
        Step::Move(number, count) => {
            let due = Due::After(kilo(count));
            format!("{:?}", admin.set_due(CanvasId::DEFAULT, id(number), due, &ada).await.is_ok())
        }
        Step::Explain(number) => explained(kit, id(number)).await,
        Step::Purge(name) => format!("{:?}", admin.purge(&scope(name), &ada, false).await.unwrap()),
        Step::Redrive => redrive(kit).await,
        Step::Operate(kind, name) => operate(kit, kind, name).await,
        Step::Learn => {
            let all = handlers(kit, true);
            kit.handlers(all).unwrap();
            String::new()
        }
    }
}

/// Whatever is done, memory and Postgres show the same.
// Shows: KIT-03
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn memory_and_postgres_agree_on_every_step() {
    let (mut halted, mut skipped, mut gone, mut cancelled) = (0, 0, 0, 0);
    for seed in 1..=12 {
        let (stage, _) = Stage::memory_with(timing()).await;
        let mut real = TestKit::on(connect(stage.database.url(), timing()).await);
        let mut memory = TestKit::with_timing(timing()).unwrap();
        for kit in [&mut real, &mut memory] {
            let some = handlers(kit, false);
            kit.handlers(some).unwrap();
        }
        let steps = program(seed);
        for (at, step) in steps.iter().enumerate() {
            let (expected, found) = (take(&mut real, step).await, take(&mut memory, step).await);
            assert_eq!(found, expected, "seed {seed}, step {at}: {step:#?} after {:#?}", &steps[..at]);
            halted += usize::from(matches!(step, Step::Object(_)) && found.contains("HaltedLane"));
            cancelled += found.matches("Cancelled Deleted").count();
            skipped += usize::from(matches!(step, Step::Skip { .. }) && found == "true");
        }
        for number in 0..100 {
            let chosen = EventId::chosen(CanvasId::DEFAULT, id(number));
            for event in [chosen, child_of(chosen)] {
                let (expected, found) = (explained(&real, event).await, explained(&memory, event).await);
                assert_eq!(found, expected, "seed {seed}: event {number}");
            }
        }
        for object in OBJECTS {
            let (expected, found) = (shown_object(&real, object).await, shown_object(&memory, object).await);
            assert_eq!(found, expected, "seed {seed}: {object}");
            gone += usize::from(!found.ends_with("tombstones []"));
        }
    }
    assert!(halted > 0 && skipped > 0, "objects stood still {halted} times, and went on {skipped} times");
    assert!(gone > 0 && cancelled > 0, "{gone} chains have a gap, {cancelled} running events were cancelled");
}
