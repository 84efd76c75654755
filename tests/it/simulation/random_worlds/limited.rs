//! Random worlds with limits: whatever happens in whatever order, no limit gives more places or
//! starts than it has, no place is lost with a process, and all events end.
//!
//! Several keys per event are named in any order. Limits and their rates are raised, lowered and
//! removed meanwhile, and so are the events of a handler. Others have locked the rows of some
//! events.

use std::time::Duration;

use wakeq::EventId;
use wakeq::limits::OnFull;
use wakeq::machine::{Outcome, State};

use super::{EVENTS_MAX, Faults, HANDLERS, Simulation};
use crate::simulation::world::Defect;
use crate::simulation::world::dice::Dice;
use crate::simulation::world::limits::{Limit, Pace};
use crate::simulation::world::tally::Tally;
use crate::support::crash_scene::size;

/// The edges that only worlds with limits take.
pub(super) const EDGES: [Outcome; 2] = [Outcome::LimitFull, Outcome::LimitRate];

/// Keys with places only, whose number changes.
const PLACES: [&str; 3] = ["a", "b", "handler:mail"];
/// A key with a rate, and one with both, with their places. The rates change.
const RATES: [(&str, Option<usize>); 2] = [("paced", None), ("paced-and-few", Some(1))];
const KEYS: [&str; 5] = ["a", "b", "paced", "paced-and-few", "unlimited"];

impl Simulation {
    /// The same world with limits, and more events.
    pub(super) fn with_limits(mut self, seed: u64) -> Self {
        let mut dice = Dice(seed ^ 0x5eed_0f11_3115);
        for name in PLACES {
            let places = Some(1 + dice.below(3));
            let limit = Limit { concurrency: places, on_full: on_full(&mut dice), ..Limit::default() };
            self.world.put_limit(name, Some(limit));
        }
        for (name, places) in RATES {
            self.world.put_limit(name, Some(paced(&mut dice, places)));
        }
        self.world.limits.locks = Some(Dice(seed ^ 0x10c4_ed00));
        self.limits_dice = Some(dice);
        self
    }

    pub(super) fn events_max(&self) -> usize {
        if self.limits_dice.is_some() { 2 * EVENTS_MAX } else { EVENTS_MAX }
    }

    /// Up to three keys, in any order.
    pub(super) fn name_limits(&mut self, id: EventId) {
        let Some(dice) = &mut self.limits_dice else { return };
        let keys = (0..dice.below(4)).map(|_| dice.one_of(&KEYS).to_owned()).collect();
        self.world.limits.named.insert(id, keys);
    }

    /// Once in a while somebody changes a limit, or removes what a handler has.
    pub(super) fn act_on_limits(&mut self) {
        let Some(dice) = &mut self.limits_dice else { return };
        match dice.below(100) {
            0..8 => self.change_limit(),
            8 => self.purge(),
            _ => {}
        }
    }

    pub(super) fn purge(&mut self) {
        let Some(dice) = &mut self.limits_dice else { return };
        let handler = dice.one_of(&HANDLERS);
        self.world.purge(handler);
    }

    /// A limit is raised, lowered, removed, or set again.
    pub(super) fn change_limit(&mut self) {
        let Some(dice) = &mut self.limits_dice else { return };
        if dice.below(4) == 0 {
            let (name, places) = dice.one_of(&RATES);
            let limit = paced(dice, places);
            self.world.put_limit(name, (dice.below(4) > 0).then_some(limit));
            return;
        }
        let (name, places) = (dice.one_of(&PLACES), dice.below(4));
        let limit = Limit { concurrency: Some(places), on_full: on_full(dice), ..Limit::default() };
        self.world.put_limit(name, (places > 0).then_some(limit));
    }

    /// The minute's pass wakes what has room; its process may die before it publishes.
    pub(super) fn wake_limited(&mut self) {
        let Some(dice) = &mut self.limits_dice else { return };
        let is_heard = dice.below(5) > 0;
        let names = self.world.limits_with_room();
        let woken = self.world.wake_waiting(&names);
        if is_heard {
            self.world.publish(&woken);
        }
    }

    /// By the journal of the handlers: a worker counts while its lease stands.
    pub(super) fn check_limits(&mut self) {
        if self.limits_dice.is_none() {
            return;
        }
        let now = self.world.now;
        let runs = self.workers.iter().filter(|worker| worker.alive).flat_map(|worker| &worker.runs);
        let live = runs.filter(|run| matches!(run.state, State::Process(_)) && now <= run.lease_until);
        let held: Vec<String> = live.flat_map(|run| run.held.iter().cloned()).collect();
        self.world.check_places(&held);
        self.check_slots();
    }
}

fn paced(dice: &mut Dice, places: Option<usize>) -> Limit {
    let interval = Duration::from_secs(dice.one_of(&[1, 20, 120]));
    let rate = Some(Pace { interval, burst: 1 + dice.below(3) as u32 });
    let on_full = if places.is_some() { on_full(dice) } else { OnFull::Wait };
    Limit { concurrency: places, rate, on_full }
}

fn on_full(dice: &mut Dice) -> OnFull {
    use OnFull::{Cancel, Drop, Replace, Wait};
    dice.one_of(&[Wait, Wait, Wait, Wait, Drop, Replace, Cancel])
}

fn play(
    seed: u64,
    faults: Faults,
    defect: Option<Defect>,
    traced: bool,
) -> (Vec<String>, Vec<String>, Tally) {
    let (violations, world) = Simulation::new(seed, faults, defect, traced).with_limits(seed).play();
    let mut tally = Tally::default();
    tally.count(&world);
    (violations, world.trace.unwrap_or_default(), tally)
}

#[track_caller]
fn check_worlds(faults: Faults, worlds: u64) -> Tally {
    let mut sum = Tally::default();
    for seed in 0..worlds {
        let (violations, _, tally) = play(seed, faults, None, false);
        if !violations.is_empty() {
            let trace = play(seed, faults, None, true).1.join("\n  ");
            panic!("seed {seed}, {faults:?}: {}\n  {trace}", violations.join("; "));
        }
        sum.outcomes.extend(tally.outcomes);
        sum.completed += tally.completed;
        sum.cancelled += tally.cancelled;
        sum.lost_claims += tally.lost_claims;
    }
    assert!(EDGES.iter().all(|edge| sum.outcomes.contains(edge)), "no limit was ever met: {sum:?}");
    let (completed, cancelled) = (size(200, 1_000) as u32, size(20, 100) as u32);
    assert!(sum.completed > completed && sum.cancelled > cancelled, "too quiet: {sum:?}");
    sum
}

#[test]
#[ignore = "long: `cargo xtask long` runs it"]
fn limits_hold_when_notifications_are_lost_and_limits_change() {
    let tally = check_worlds(Faults::OfMessages, size(600, 3_000) as u64);
    assert_eq!(tally.lost_claims, 0, "{tally:?}");
}

#[test]
#[ignore = "long: `cargo xtask long` runs it"]
fn limits_hold_and_leak_no_place_when_processes_die_stall_and_hear_no_answer() {
    let tally = check_worlds(Faults::OfProcesses, size(600, 3_000) as u64);
    assert!(tally.lost_claims > size(100, 500) as u32, "too quiet: {tally:?}");
}

#[test]
fn each_broken_statement_of_limits_is_caught() {
    for (defect, sign) in [
        (Defect::ClaimPastLimit, "events have a place of"),
        (Defect::DeadHoldersCount, "is neither over nor parked"),
        (Defect::StartWithoutPaying, "started too fast"),
    ] {
        let caught = (0..2_000).any(|seed| {
            let (violations, ..) = play(seed, Faults::OfProcesses, Some(defect), false);
            violations.iter().any(|violation| violation.contains(sign))
        });
        assert!(caught, "no world noticed {defect:?}");
    }
}

#[test]
fn the_same_seed_gives_the_same_world_with_limits() {
    let trace = |seed| play(seed, Faults::OfProcesses, None, true).1;
    assert_eq!(trace(7), trace(7));
    assert_ne!(trace(7), trace(8));
}
