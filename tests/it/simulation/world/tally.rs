//! Totals over many worlds.

use std::collections::BTreeSet;

use wakeq::machine::{Cause, Outcome, Removal};

use super::World;

/// How the events of many worlds ended, and which edges were taken.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) completed: u32,
    pub(crate) dead: u32,
    pub(crate) poison: u32,
    pub(crate) cancelled: u32,
    pub(crate) parked: u32,
    pub(crate) halted: u32,
    pub(crate) lost_claims: u32,
    pub(crate) outcomes: BTreeSet<Outcome>,
}

impl Tally {
    pub(crate) fn count(&mut self, world: &World) {
        self.outcomes.extend(&world.outcomes);
        self.halted += world.halted.len() as u32;
        for record in world.records.values() {
            self.lost_claims += record.last.losses;
            match record.removed {
                Some(Removal::Completed | Removal::Committed) => self.completed += 1,
                Some(Removal::Dead(Cause::Retries | Cause::Rejected | Cause::Expired)) => self.dead += 1,
                Some(Removal::Dead(Cause::Poison)) => self.poison += 1,
                Some(Removal::Cancelled) => self.cancelled += 1,
                None => self.parked += 1,
            }
        }
    }
}
