//! What must hold in a random world: between any two steps, and at its end.

use wakeq::EventId;
use wakeq::machine::{Cause, Removal, State, Turn};

use super::{Faults, Simulation};

impl Simulation {
    /// Whether every remaining event is parked under a standing rule or waits for its turn, and
    /// none is cancelled.
    pub(super) fn settled(&self) -> bool {
        self.world.rows.iter().all(|(id, row)| {
            let is_parked =
                row.notify_at.is_none() && self.world.rule_on(self.world.handler_of(*id)).is_some();
            !row.is_cancelled && (is_parked || self.world.turn(*id) != Turn::First)
        })
    }

    /// The invariants that must hold between any two steps.
    pub(super) fn check(&mut self) {
        self.world.check_rows();
        let live = self.workers.iter().filter(|worker| worker.alive).flat_map(|worker| &worker.runs);
        let handing_over = live.filter(|run| run.state == State::HandOver).map(|run| run.event);
        let handing_over: Vec<EventId> = handing_over.collect();
        self.world.check_turned_away(&handing_over, self.faults == Faults::OfProcesses);
        self.check_limits();
        let mut found = Vec::new();
        for run in self.workers.iter().filter(|worker| worker.alive).flat_map(|worker| &worker.runs) {
            let State::Process(running) = run.state else { continue };
            let lease_stands = self.world.now <= run.lease_until;
            let row = self.world.rows.get(&run.event);
            let owned = row.is_some_and(|row| row.claims == running.claim.claims && row.locked_at.is_some());
            if lease_stands && !owned {
                found.push(format!("the row of a live owner was taken: {:?}", running.claim));
            }
        }
        found.into_iter().for_each(|what| self.world.violated(what));
    }

    pub(super) fn check_end(&mut self) {
        self.world.check_rates();
        let mut found = Vec::new();
        if !self.settled() {
            found.push("an event is neither over nor parked under a rule".to_owned());
        }
        for (id, record) in &self.world.records {
            let label = &record.label;
            let undisturbed = record.last.losses == 0;
            if undisturbed && record.completions > 1 {
                found.push(format!("{label} ran to completion {} times, no claim lost", record.completions));
            }
            // Each start ends in a retry, in a release, in the removal, or with its worker.
            let held = self.world.rows.get(id).is_some_and(|row| row.locked_at.is_some());
            let over = u32::from(record.removed.is_some()) + u32::from(held);
            let ended = record.last.retries + record.releases + over;
            if undisturbed && record.starts > ended {
                found.push(format!(
                    "{label} was started {} times instead of {ended}, no claim lost",
                    record.starts
                ));
            }
            if self.world.rows.contains_key(id) && record.is_cancelled {
                found.push(format!("{label} was cancelled, and is still there"));
            }
            if self.faults == Faults::OfMessages && !undisturbed {
                found.push(format!("{label} lost a claim without any fault of a process"));
            }
            match record.removed {
                Some(Removal::Completed) if record.completions == 0 => {
                    found.push(format!("{label} was removed and never completed"));
                }
                Some(Removal::Dead(Cause::Retries)) if record.last.retries < self.world.retry.retries => {
                    found.push(format!("{label} died after {} retries", record.last.retries));
                }
                Some(Removal::Dead(Cause::Poison)) if record.last.losses < self.world.losses_max => {
                    found.push(format!("{label} died of {} losses", record.last.losses));
                }
                Some(Removal::Dead(Cause::Expired)) if record.last.not_after.is_none() => {
                    found.push(format!("{label} has expired without a moment"));
                }
                Some(Removal::Cancelled) if !record.is_cancelled => {
                    found.push(format!("{label} was removed as cancelled, and nobody cancelled it"));
                }
                Some(_) | None => (),
            }
        }
        found.into_iter().for_each(|what| self.world.violated(what));
    }
}
