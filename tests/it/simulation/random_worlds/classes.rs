//! Random worlds with limits and two classes, whose workers have few places: whatever happens, no
//! place is given twice, none that is kept for urgent events goes to others, and while nothing goes
//! wrong no wake is lost.
//!
//! The worker's own levels decide what starts. There are two streams of notifications, and a worker
//! receives as many of each as it may hold.

use std::collections::BTreeSet;

use wakeq::EventId;
use wakeq::internals::Level;

use super::smooth::go_on;
use super::{Faults, Simulation};
use crate::simulation::world::dice::Dice;
use crate::simulation::world::slots::Slots;
use crate::simulation::world::tally::Tally;
use crate::simulation::world::worker::Worker;
use crate::simulation::world::{Defect, World};
use crate::support::crash_scene::size;

/// How many notifications of each stream a worker holds.
const HELD_MAX: usize = 3;
/// The workers that know every handler.
const ABLE: std::ops::Range<usize> = 0..2;

impl Simulation {
    /// The same world with classes, and few places in each worker.
    pub(super) fn with_classes(mut self, seed: u64) -> Self {
        let mut dice = Dice(seed ^ 0x00c1_a55e_5000);
        for worker in &mut self.workers {
            let capacity = 1 + dice.below(3);
            worker.slots = Some(Slots::new(capacity, dice.below(capacity), self.world.defect));
        }
        self.classes_dice = Some(dice);
        self
    }

    /// The class of an event. Where something goes wrong, its emit may not have said it.
    pub(super) fn give_class(&mut self, id: EventId) {
        let Some(dice) = &mut self.classes_dice else { return };
        if dice.below(2) == 0 {
            self.world.broker.urgent.insert(id);
        }
    }

    /// The emitter of an urgent event does not know its class, so that its notification comes among
    /// the others.
    pub(super) fn forget_class(&mut self, id: EventId) {
        if self.classes_dice.as_mut().is_some_and(|dice| dice.below(5) == 0) {
            self.world.broker.unmarked.insert(id);
        }
    }

    /// How many events are emitted together.
    pub(super) fn burst(&mut self) -> usize {
        self.classes_dice.as_mut().map_or(1, |dice| 1 + dice.below(4))
    }

    pub(super) fn check_slots(&mut self) {
        let live = self.workers.iter().filter(|worker| worker.alive);
        let found: Vec<String> = live.filter_map(Worker::fault).collect();
        found.into_iter().for_each(|what| self.world.violated(what));
    }

    /// Workers receive what they may hold, and every run goes on until its handler starts or it
    /// waits.
    pub(super) fn settle_by_class(&mut self) {
        let mut moves = true;
        while moves {
            moves = self.receive_all();
            for worker in &mut self.workers[ABLE] {
                moves |= go_on(worker, &mut self.world);
            }
        }
    }

    fn receive_all(&mut self) -> bool {
        let mut received = false;
        for worker in &mut self.workers[ABLE] {
            for level in [Level::Urgent, Level::Normal] {
                while worker.held(level) < HELD_MAX && worker.receive(&mut self.world, level) {
                    received = true;
                }
            }
        }
        received
    }

    /// Invariant while nothing goes wrong: what has room starts, is about to, or waits in a worker.
    pub(super) fn check_standstill(&mut self) {
        if self.classes_dice.is_none() {
            self.world.check_standstill();
            return;
        }
        let messages = self.world.broker.messages.iter().map(|message| message.event);
        let held = self.workers.iter().flat_map(Worker::in_hand);
        let in_hand: BTreeSet<EventId> = messages.chain(held).collect();
        self.world.check_lost_wakes(&in_hand);
        self.check_backlog();
    }

    /// Invariant while nothing goes wrong: no urgent event is behind a backlog at the broker while
    /// a worker would receive it.
    fn check_backlog(&mut self) {
        let now = self.world.now;
        let has_room = self.workers[ABLE].iter().any(|worker| worker.held(Level::Urgent) < HELD_MAX);
        let waiting = self.world.broker.messages.iter().filter(|message| message.at <= now);
        let (urgent, others): (Vec<EventId>, Vec<EventId>) =
            waiting.map(|message| message.event).partition(|id| self.world.broker.urgent.contains(id));
        self.world.broker.backlogs += u32::from(!others.is_empty());
        for id in urgent.into_iter().filter(|_| has_room) {
            self.world.violated(format!("{} is urgent, and behind a backlog", self.world.records[&id].label));
        }
    }
}

fn worlds(seed: u64, faults: Faults, defect: Option<Defect>, traced: bool) -> Simulation {
    Simulation::new(seed, faults, defect, traced).with_limits(seed).with_classes(seed)
}

fn play_smoothly(seed: u64, defect: Option<Defect>, traced: bool) -> (Vec<String>, World) {
    worlds(seed, Faults::OfMessages, defect, traced).play_smoothly()
}

/// What happened in many worlds.
#[derive(Debug, Default)]
struct Sum {
    tally: Tally,
    /// How often events of each class were started.
    urgent: u32,
    normal: u32,
    /// How often messages waited at the broker.
    backlogs: u32,
}

impl Sum {
    fn count(&mut self, world: &World) {
        self.tally.count(world);
        self.backlogs += world.broker.backlogs;
        for (id, record) in &world.records {
            let is_urgent = world.broker.urgent.contains(id);
            let starts = if is_urgent { &mut self.urgent } else { &mut self.normal };
            *starts += record.starts;
        }
    }
}

/// Plays many worlds to their ends, and shows the first in which something is wrong.
#[track_caller]
fn check_worlds(count: u64, play: impl Fn(u64, bool) -> (Vec<String>, World)) -> Sum {
    let mut sum = Sum::default();
    for seed in 0..count {
        let (violations, world) = play(seed, false);
        if !violations.is_empty() {
            let trace = play(seed, true).1.trace.unwrap_or_default().join("\n  ");
            panic!("seed {seed}: {}\n  {trace}", violations.join("; "));
        }
        sum.count(&world);
    }
    sum
}

/// A place of a limit that is free is given to what waits for it, also while all places of the
/// workers are busy; and urgent events pass all others, at the broker as in the worker.
// Shows: LIMIT-07, URG-02
#[test]
#[ignore = "long: `cargo xtask long` runs it"]
fn no_wake_is_lost_while_workers_are_full() {
    let sum = check_worlds(size(300, 2_000) as u64, |seed, traced| play_smoothly(seed, None, traced));
    let (starts, backlogs) = (size(600, 4_000) as u32, size(150, 1_000) as u32);
    assert!(sum.urgent > starts && sum.normal > starts && sum.backlogs > backlogs, "too quiet: {sum:?}");
}

#[test]
fn classes_and_limits_hold_when_notifications_are_lost_or_unmarked() {
    let sum = check_worlds(size(300, 1_500) as u64, |seed, traced| {
        worlds(seed, Faults::OfMessages, None, traced).play()
    });
    assert_eq!(sum.tally.lost_claims, 0, "{sum:?}");
    let starts = size(200, 1_000) as u32;
    assert!(sum.tally.completed > starts && sum.urgent > starts, "too quiet: {sum:?}");
}

#[test]
fn classes_and_limits_hold_when_processes_die_stall_and_hear_no_answer() {
    let sum = check_worlds(size(300, 1_500) as u64, |seed, traced| {
        worlds(seed, Faults::OfProcesses, None, traced).play()
    });
    let Tally { lost_claims, completed, .. } = sum.tally;
    let (lost, starts) = (size(40, 200) as u32, size(200, 1_000) as u32);
    assert!(lost_claims > lost && completed > starts && sum.urgent > starts, "too quiet: {sum:?}");
}

#[test]
fn each_broken_rule_of_classes_is_caught() {
    for (defect, sign) in [
        (Defect::EndWithoutWaking, "could start, and nobody wakes it"),
        (Defect::NeverStepsAside, "could start, and nobody wakes it"),
        (Defect::PurgeWithoutWaking, "could start, and nobody wakes it"),
        (Defect::PublishWithoutClass, "is urgent, and behind a backlog"),
        (Defect::KeptPlacesAreTaken, "are kept"),
        (Defect::UrgentAlone, "urgent events started before one that could have"),
        (Defect::LotKeepsItsPlace, "a place is free, and something waits for it"),
    ] {
        let caught = (0..3_000).any(|seed| {
            let (violations, _) = play_smoothly(seed, Some(defect), false);
            violations.iter().any(|violation| violation.contains(sign))
        });
        assert!(caught, "no world noticed {defect:?}");
    }
}

#[test]
fn the_same_seed_gives_the_same_world_with_classes() {
    let trace = |seed| worlds(seed, Faults::OfProcesses, None, true).play().1.trace.unwrap();
    assert_eq!(trace(7), trace(7));
    assert_ne!(trace(7), trace(8));
}
