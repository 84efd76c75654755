//! What must hold of limits: in every world, or while nothing goes wrong.

use std::collections::BTreeSet;

use wakeq::EventId;

use super::{Limit, Pace, Wait};
use crate::simulation::world::World;

impl World {
    /// Invariant: of no limit more events have a place than it allows. `held`: the limits whose
    /// places the running handlers have.
    pub(crate) fn check_places(&mut self, held: &[String]) {
        for name in held {
            let running = held.iter().filter(|other| *other == name).count();
            let ceiling = self.limits.ceilings.get(name).copied().unwrap_or(usize::MAX);
            if running > ceiling {
                self.violated(format!("{running} events have a place of {name}, which has {ceiling}"));
            }
        }
        for (name, ceiling) in &mut self.limits.ceilings {
            let places = self.limits.defined.get(name).and_then(|limit| limit.concurrency);
            let running = held.iter().filter(|other| *other == name).count();
            *ceiling = places.map_or(usize::MAX, |places| places.max(running.min(*ceiling)));
        }
    }

    /// Invariant: in no time more events start than the rates allow, by the starts that they gave.
    pub(crate) fn check_rates(&mut self) {
        let rates: Vec<(String, Pace)> =
            self.limits.rates.iter().map(|(name, pace)| (name.clone(), *pace)).collect();
        rates.iter().for_each(|(name, pace)| self.check_starts(name, *pace));
    }

    /// The same for the starts that this rate has given since it is in force.
    pub(super) fn check_starts(&mut self, name: &str, Pace { interval, burst }: Pace) {
        let mut starts = self.limits.starts.get(name).cloned().unwrap_or_default();
        starts.sort();
        let is_too_fast = (0..starts.len()).any(|from| {
            (from..starts.len()).any(|to| {
                let beyond = (to - from + 1).saturating_sub(burst as usize) as u32;
                (starts[to] - starts[from]).to_std().unwrap() < interval * beyond
            })
        });
        if is_too_fast {
            self.violated(format!("events of {name} started too fast: {starts:?}"));
        }
    }

    /// Invariant while nothing goes wrong: whatever waits for a place, and would get it, was woken
    /// and has started, and so has what a rate has told to come. What a rate has given no time is
    /// left to the minute's pass.
    pub(crate) fn check_standstill(&mut self) {
        let could_start = |(id, wait): (&EventId, &Wait)| {
            let is_told = wait.woken_at.is_some_and(|at| at <= self.now);
            let has_room = |name: &String| {
                let Limit { concurrency, rate, .. } = self.limits.defined[name];
                let is_free = |pace| is_told && (wait.is_paid || self.free_at(name, pace) <= self.now);
                rate.is_none_or(is_free) && self.live_holders(name).len() < concurrency.unwrap_or(usize::MAX)
            };
            (self.may_claim(*id) && self.limits_of(*id).iter().all(has_room)).then_some(*id)
        };
        let found: Vec<EventId> = self.limits.waits.iter().filter_map(could_start).collect();
        self.nobody_wakes(&found);
    }

    /// Invariant while nothing goes wrong, where workers have few places: whatever waits for places
    /// that are free, and are kept for none of those `in_hand`, is in hand itself. Those are the
    /// events of which a worker or the broker has a notification.
    pub(crate) fn check_lost_wakes(&mut self, in_hand: &BTreeSet<EventId>) {
        let kept = |name: &String| {
            let waits = self.limits.waits.iter().filter(|(id, _)| in_hand.contains(*id));
            waits.filter(|(_, wait)| wait.name == *name && wait.woken_at.is_some()).count()
        };
        let has_room = |name: &String| {
            let Limit { concurrency, rate, .. } = self.limits.defined[name];
            rate.is_none() && self.live_holders(name).len() + kept(name) < concurrency.unwrap_or(usize::MAX)
        };
        let asleep = self.limits.waits.keys().filter(|id| !in_hand.contains(*id) && self.may_claim(**id));
        let found: Vec<EventId> =
            asleep.filter(|id| self.limits_of(**id).iter().all(has_room)).copied().collect();
        self.nobody_wakes(&found);
    }

    fn nobody_wakes(&mut self, found: &[EventId]) {
        for id in found {
            self.violated(format!("{} could start, and nobody wakes it", self.records[id].label));
        }
    }
}
