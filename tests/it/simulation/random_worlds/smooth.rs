//! Random worlds with limits in which nothing goes wrong, and nobody looks for what was missed: a
//! place that is free is taken at that moment by what waits for it.
//!
//! There is no minute's pass in them, so only what ends or is removed wakes others.

use std::time::Duration;

use wakeq::control::RuleKind;
use wakeq::machine::{HandlerEnd, State};

use super::{Faults, HANDLERS, Simulation};
use crate::simulation::world::worker::{Progress, Worker, pass};
use crate::simulation::world::{Defect, World};
use crate::support::crash_scene::size;

const ACTIONS: usize = 150;

impl Simulation {
    /// Returns what the checks found.
    pub(super) fn play_smoothly(mut self) -> (Vec<String>, World) {
        for _ in 0..ACTIONS {
            match self.dice.below(10) {
                0..3 => (0..self.burst()).for_each(|_| self.emit_now()),
                3..6 => self.end_handler(),
                6 => self.rule_or_lift(),
                7 if self.dice.below(4) == 0 => self.purge(),
                7 => self.change_limit(),
                _ => {
                    let seconds = self.dice.one_of(&[0, 1, 15, 90, 400]);
                    self.glide(Duration::from_secs(seconds));
                }
            }
            self.settle();
            self.check();
            self.check_standstill();
            if !self.world.violations.is_empty() {
                break;
            }
        }
        self.world.check_rates();
        (self.world.violations.clone(), self.world)
    }

    /// Emits an event without an object that is due within the horizon, and publishes it.
    fn emit_now(&mut self) {
        if self.world.records.len() == 4 * self.events_max() {
            return;
        }
        let label = format!("e{}", self.world.records.len());
        let handler = self.dice.one_of(&HANDLERS);
        let delay = Duration::from_secs(self.dice.one_of(&[0, 0, 0, 5, 90]));
        let id = self.world.emit(&label, handler, None, delay);
        self.name_limits(id);
        self.give_class(id);
        self.world.publish_if_due(id);
    }

    /// What a lifted rule held is woken at once.
    fn rule_or_lift(&mut self) {
        let handler = self.dice.one_of(&HANDLERS);
        if self.world.rules.contains(&(handler.to_owned(), RuleKind::Pause)) {
            self.world.lift(handler, RuleKind::Pause);
            while !self.world.jobs.is_empty() {
                let page = self.world.resume_page(0);
                page.into_iter().for_each(|id| self.world.publish_if_due(id));
            }
        } else if self.dice.below(2) == 0 {
            self.world.add_rule(handler, RuleKind::Pause);
        }
    }

    /// Lets time pass, and stops whenever something happens by itself.
    fn glide(&mut self, duration: Duration) {
        let end = self.world.now + duration;
        loop {
            let now = self.world.now;
            let of_workers = self.workers.iter().filter_map(|worker| worker.next_at(&self.world));
            let of_messages = self.world.broker.messages.iter().map(|message| message.at);
            let next = of_workers.chain(of_messages).filter(|at| *at > now).min();
            let next = next.map_or(end, |next| next.min(end));
            let step = (next - now).to_std().unwrap();
            pass(&mut self.world, &mut self.workers, step, |_, _| ());
            self.settle();
            self.check();
            if next == end {
                return;
            }
        }
    }

    /// Every message is delivered, and every run goes on until its handler starts or it waits.
    fn settle(&mut self) {
        if self.classes_dice.is_some() {
            self.settle_by_class();
            return;
        }
        loop {
            let now = self.world.now;
            for event in self.world.broker.deliverable(now) {
                // Both know every handler.
                let worker = self.dice.below(2);
                self.workers[worker].take(&mut self.world, event);
            }
            let mut moved = false;
            for worker in &mut self.workers {
                moved |= go_on(worker, &mut self.world);
            }
            if !moved && self.world.broker.deliverable(now).is_empty() {
                return;
            }
        }
    }
}

pub(super) fn go_on(worker: &mut Worker, world: &mut World) -> bool {
    let mut moved = false;
    for at in (0..worker.runs.len()).rev() {
        if matches!(worker.runs[at].state, State::Process(_)) {
            let run = &worker.runs[at];
            // A worker that was told has its handler stopped.
            if run.is_told {
                worker.end_handler(world, at, HandlerEnd::Cancelled);
            }
        }
        while worker.runs[at].wakes_at.is_none() {
            let progress = worker.advance(world, at);
            moved |= progress != Progress::Waits;
            if progress != Progress::Continues {
                break;
            }
        }
    }
    moved
}

fn play(seed: u64, defect: Option<Defect>, traced: bool) -> (Vec<String>, World) {
    Simulation::new(seed, Faults::OfMessages, defect, traced).with_limits(seed).play_smoothly()
}

/// Of two limits that events take in either order, neither waits for the other.
// Shows: LIMIT-07
#[test]
#[ignore = "long: `cargo xtask long` runs it"]
fn a_free_place_is_taken_at_once_by_what_waits_for_it() {
    let (mut starts, mut full) = (0, 0);
    for seed in 0..size(300, 2_000) as u64 {
        let (violations, world) = play(seed, None, false);
        if !violations.is_empty() {
            let trace = play(seed, None, true).1.trace.unwrap_or_default().join("\n  ");
            panic!("seed {seed}: {}\n  {trace}", violations.join("; "));
        }
        starts += world.records.values().map(|record| record.starts).sum::<u32>();
        full += u32::from(super::limited::EDGES.iter().all(|edge| world.outcomes.contains(edge)));
    }
    assert!(
        starts > size(1_500, 10_000) as u32 && full > size(75, 500) as u32,
        "too quiet: {starts} starts, and {full} worlds met their limits"
    );
}

#[test]
fn a_wake_that_is_lost_is_noticed() {
    for defect in [Defect::EndWithoutWaking, Defect::KeepsItsWake, Defect::ForgetsItsTime] {
        let caught = (0..2_000).any(|seed| {
            let (violations, _) = play(seed, Some(defect), false);
            violations.iter().any(|violation| violation.contains("could start, and nobody wakes it"))
        });
        assert!(caught, "no world noticed {defect:?}");
    }
}
