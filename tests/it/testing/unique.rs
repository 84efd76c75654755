//! Unique keys in the kit's tables against Postgres: the same random steps on two kits, with the
//! same answers and the same findings after each; and how a test of a debounce reads.
//!
//! Moments are whole kiloseconds, so that a slow machine does not matter.

use std::time::Duration;

use wakeq::control::{DeadFilter, Explanation};
use wakeq::events::{OnConflict, Unique, UniqueOutcome};
use wakeq::testing::{TestKit, assert_emitted};
use wakeq::{
    Actor, CanvasId, Event, EventId, Execution, HandlerError, HandlerResult, Handlers, RetryPolicy, Route,
    Stop,
};

use super::on_postgres;
use crate::support::crash_scene::size;
use crate::support::{OTHER, scope};

const STEPS: usize = 50;
const KILO: Duration = Duration::from_secs(1000);

/// Small and seeded; the same for both kits.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    fn kilo(&mut self, most: u32) -> Duration {
        KILO * (1 + self.below(most.into()) as u32)
    }

    fn event(&mut self) -> Event {
        let unique = Unique::key(["a", "b"][self.below(2) as usize]).unwrap();
        let unique = match self.below(4) {
            0 => unique.until_ended(),
            1 => unique.remembered_for(self.kilo(6)),
            _ => unique,
        };
        let by = self.kilo(3);
        let unique = unique.on_conflict(match self.below(4) {
            0 => OnConflict::Replace,
            1 => OnConflict::Postpone { by, at_most: by + self.kilo(4) },
            _ => OnConflict::Keep,
        });
        let value = ["ok", "fails", "fails for good"][self.below(3) as usize];
        let event = Event::new("work", value).unwrap().unique(unique).unwrap();
        let event = if self.below(5) == 0 { event.canvas(OTHER) } else { event };
        if self.below(2) == 0 { event.after(self.kilo(3)).unwrap() } else { event }
    }
}

async fn work(event: Execution) -> HandlerResult {
    match (event.value::<String>()?.as_str(), event.attempt) {
        ("fails", 1) | ("fails for good", _) => Err(HandlerError::operational("no")),
        _ => Ok(()),
    }
}

fn handlers() -> Handlers {
    let retry = RetryPolicy { retries: 1, delay: 2 * KILO, ..RetryPolicy::default() };
    Handlers::new().on(Route::new("work").retry(retry), work)
}

/// A kit, and the events that it has answered with, in the order of their first answers.
struct Player {
    kit: TestKit,
    known: Vec<(CanvasId, EventId)>,
}

impl Player {
    fn new(mut kit: TestKit) -> Self {
        kit.handlers(handlers()).unwrap();
        Self { kit, known: Vec::new() }
    }

    async fn emit(&mut self, event: Event) -> String {
        let canvas = event.fields().canvas.unwrap_or_default();
        let emitted = self.kit.emit(event).await.unwrap();
        let place = self.known.iter().position(|(_, id)| *id == emitted.id);
        let place = place.unwrap_or_else(|| {
            self.known.push((canvas, emitted.id));
            self.known.len() - 1
        });
        let now = self.kit.now().await.unwrap();
        match emitted.unique {
            Some(UniqueOutcome::Postponed { due }) => {
                let seconds = ((due - now).as_seconds_f64() / 100.0).round() + 0.0;
                format!("{place} postponed by {seconds} {}", emitted.notified)
            }
            outcome => format!("{place} {outcome:?} {}", emitted.notified),
        }
    }

    /// Takes a step, and returns what can be observed.
    async fn take(&mut self, dice: &mut Dice) -> String {
        let (ada, admin) = (Actor::admin("ada"), self.kit.admin().clone());
        match dice.below(12) {
            0..=5 => {
                let event = dice.event();
                self.emit(event).await
            }
            6 => {
                let events = vec![dice.event(), dice.event(), dice.event()];
                let outcomes = self.kit.queue().emit_all(events).await.unwrap();
                let new = outcomes.iter().filter(|one| one.unique == Some(UniqueOutcome::Inserted)).count();
                format!(
                    "{new} new of {} {:?}",
                    outcomes.len(),
                    outcomes.iter().map(|one| one.notified).collect::<Vec<_>>()
                )
            }
            7 => {
                self.kit.advance(dice.kilo(4)).await.unwrap();
                String::new()
            }
            8 | 9 => {
                let drained = self.kit.drain().await.unwrap();
                format!("{:?}", (drained.completed, drained.retried, drained.died, drained.waiting))
            }
            10 => match self.known.last() {
                Some((canvas, id)) => format!("{}", admin.cancel(*canvas, *id, &ada).await.is_ok()),
                None => String::new(),
            },
            _ => {
                // In memory time does not pass by itself, and what died at this moment is left out.
                self.kit.advance(Duration::from_millis(1)).await.unwrap();
                let redriven = admin.redrive(&DeadFilter::default(), &ada, false).await.unwrap();
                let paused = admin.pause(&scope("work"), &ada, &Stop::default()).await.unwrap().new;
                let drained = self.kit.drain().await.unwrap().completed;
                let lifted = admin.unpause(&scope("work"), &ada).await.unwrap().lifted;
                format!("{redriven:?} {paused} {drained} {lifted}")
            }
        }
    }

    async fn findings(&self) -> String {
        let mut found = String::new();
        for (canvas, id) in &self.known {
            let explained = self.kit.admin().explain(*canvas, *id).await.unwrap();
            found.push_str(&match explained {
                Explanation::Live(live) => {
                    let due = ((live.delay_until - live.now).as_seconds_f64() / 100.0).round() + 0.0;
                    format!(
                        "\n{:?} {due} {} {:?} {:?}",
                        live.state, live.retries, live.unique_key, live.last_error
                    )
                }
                Explanation::Dead(dead) => format!("\ndead after {}", dead.retries),
                Explanation::Ended(_) | Explanation::Gone { .. } | Explanation::Unknown => {
                    "\ngone".to_owned()
                }
            });
        }
        found
    }
}

/// Whatever is emitted, memory and Postgres answer and show the same.
// Shows: KIT-03
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn memory_and_postgres_agree_on_unique_keys() {
    let mut outcomes = String::new();
    for seed in 1..=size(4, 12) as u64 {
        let (_stage, real) = on_postgres().await;
        let (mut real, mut memory) = (Player::new(real), Player::new(TestKit::new()));
        let (mut dice, mut same) = (Dice(seed), Dice(seed));
        for step in 0..STEPS {
            let (expected, found) = (real.take(&mut dice).await, memory.take(&mut same).await);
            assert_eq!(found, expected, "seed {seed}, step {step}");
            assert_eq!(memory.findings().await, real.findings().await, "seed {seed}, step {step}: {found}");
            outcomes.push_str(&found);
        }
    }
    for outcome in ["Inserted", "Kept", "Replaced", "postponed"] {
        assert!(outcomes.contains(outcome), "nothing was {outcome}");
    }
}

/// A debounce: of ten changes the handler sees the last, when it has been quiet for a while; and a
/// stream that does not end is handled in the end.
#[tokio::test]
async fn a_debounce_is_tested_with_the_kits_clock() {
    let minute = Duration::from_secs(60);
    let mut kit = TestKit::new();
    kit.handlers(Handlers::new().on("index", |_event| async { Ok(()) })).unwrap();
    let change = async |number: u32| {
        let quiet = OnConflict::Postpone { by: minute, at_most: 5 * minute };
        let event = Event::new("index", &number).unwrap();
        let event = event.unique(Unique::key("page:7").unwrap().on_conflict(quiet)).unwrap();
        kit.emit(event).await.unwrap().unique
    };
    assert_eq!(change(0).await, Some(UniqueOutcome::Inserted));
    for number in 1..=20 {
        kit.advance(minute / 2).await.unwrap();
        let completed = kit.drain().await.unwrap().completed;
        // The eleventh change comes five minutes after the first: it begins a new event.
        assert_eq!(completed, usize::from(number == 10 || number == 20), "{number}");
        let is_new = change(number).await == Some(UniqueOutcome::Inserted);
        assert_eq!(is_new, number == 10 || number == 20, "{number}");
    }
    assert_emitted!(kit, "index", count = 3);
    assert_eq!(kit.drain_for(minute).await.unwrap().completed, 1);
}
