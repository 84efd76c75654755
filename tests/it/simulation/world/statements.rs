//! The statements of the protocol, each at one moment.

use std::time::Duration;

use wakeq::control::RuleKind;
use wakeq::machine::{Claim, Claimed, EventPolicy, Removal, Schedule, Turn};
use wakeq::{EventId, Timestamp};

use super::{Defect, Record, ResumeJob, Row, World};

impl World {
    /// Inserts the row; publishing is the next step, and the emitter may die before it.
    pub(crate) fn emit(
        &mut self,
        label: &str,
        handler: &str,
        object: Option<&str>,
        delay: Duration,
    ) -> EventId {
        let id = self.next_id();
        let delay_until = self.now + delay;
        let row = Row {
            delay_until,
            locked_at: None,
            notify_at: Some(self.wake_at(delay_until, self.timing.grace)),
            probes: 0,
            claims: 0,
            losses: 0,
            retries: 0,
            postponed_since: None,
            is_cancelled: false,
            not_after: None,
        };
        let record = Record {
            label: label.to_owned(),
            handler: handler.to_owned(),
            object: object.map(str::to_owned),
            turned_away: false,
            taken_on: 0,
            starts: 0,
            completions: 0,
            releases: 0,
            is_cancelled: false,
            removed: None,
            last: row.clone(),
        };
        self.rows.insert(id, row);
        self.records.insert(id, record);
        id
    }

    /// The event wants no attempt to start this long after it is due.
    pub(crate) fn expires(&mut self, id: EventId, time: Duration) {
        if let Some(row) = self.rows.get_mut(&id) {
            row.not_after = Some(row.delay_until + time);
        }
    }

    /// Publishes the event's notification if the event is due within the horizon.
    pub(crate) fn publish_if_due(&mut self, id: EventId) {
        let within = self.now + self.timing.horizon;
        if self.rows.get(&id).is_some_and(|row| row.delay_until <= within) {
            self.broker.publish(id, self.now);
            self.is_taken_on(id);
            self.log(|world| format!("notification for {} published", world.records[&id].label));
        }
    }

    pub(super) fn is_taken_on(&mut self, id: EventId) {
        let record = self.record(id);
        record.taken_on += 1;
        record.turned_away = false;
    }

    /// The rule in force on a handler; a block outranks a pause.
    pub(crate) fn rule_on(&self, handler: &str) -> Option<RuleKind> {
        [RuleKind::Block, RuleKind::Pause]
            .into_iter()
            .find(|kind| self.rules.contains(&(handler.to_owned(), *kind)))
    }

    pub(crate) fn load(&self, id: EventId) -> Option<Schedule> {
        let row = self.rows.get(&id)?;
        let (rule, turn) = (self.rule_on(self.handler_of(id)), self.turn(id));
        let (delay_until, locked_at, now) = (row.delay_until, row.locked_at, self.now);
        Some(Schedule { delay_until, locked_at, rule, turn, now })
    }

    /// Clears the promise, but only while a rule stands.
    pub(crate) fn park(&mut self, id: EventId) -> bool {
        let stands =
            self.rule_on(self.handler_of(id)).is_some() || self.defect == Some(Defect::ParkWithoutRule);
        match self.rows.get_mut(&id) {
            Some(row) if stands => {
                (row.notify_at, row.postponed_since) = (None, None);
                true
            }
            Some(_) | None => false,
        }
    }

    /// Sets the promise to when the unknown handler is looked up again: another worker may know it.
    pub(crate) fn defer(&mut self, id: EventId) {
        let at = self.now + self.timing.unknown_handler_wait;
        if let Some(row) = self.rows.get_mut(&id) {
            row.notify_at = Some(at);
        }
    }

    /// Whether an event may be claimed, as far as no limit is against it.
    pub(super) fn may_claim(&self, id: EventId) -> bool {
        let ruled =
            self.rule_on(self.handler_of(id)).is_some() && self.defect != Some(Defect::ClaimWithoutRule);
        let Some(row) = self.rows.get(&id) else { return false };
        let lock_free = self.is_free(row) || self.defect == Some(Defect::ClaimWithoutLock);
        !ruled && self.turn(id) == Turn::First && lock_free && row.delay_until <= self.now
    }

    pub(crate) fn claim(&mut self, id: EventId) -> Option<Claimed> {
        let forgets = self.defect == Some(Defect::ClaimWithoutCancelling);
        let now = self.now;
        if !self.may_claim(id) {
            return None;
        }
        let row = self.rows.get_mut(&id)?;
        row.losses += u32::from(row.locked_at.is_some());
        row.locked_at = Some(now);
        row.claims += 1;
        let claimed = Claimed {
            claim: Claim { id, claims: row.claims, nonce: 0 },
            retries: row.retries,
            losses: row.losses,
            postponed: row.postponed_since.and_then(|since| (now - since).to_std().ok()).unwrap_or_default(),
            is_cancelled: row.is_cancelled && !forgets,
            asked: EventPolicy {
                left: row.not_after.map(|moment| (moment - now).to_std().unwrap_or_default()),
                ..EventPolicy::default()
            },
        };
        let row = row.clone();
        let record = self.record(id);
        let before = record.last.claims;
        record.last = row;
        if claimed.claim.claims <= before {
            self.violated(format!("claim {} after claim {before}", claimed.claim.claims));
        }
        if self.rule_on(self.handler_of(id)).is_some() {
            self.violated("an event was claimed under a standing rule".to_owned());
        }
        Some(claimed)
    }

    /// The row, if this claim still stands: the fence of every write by a worker.
    fn owned(&mut self, claim: Claim, unfenced: Defect) -> Option<&mut Row> {
        let unfenced = self.defect == Some(unfenced);
        let row = self.rows.get_mut(&claim.id)?;
        (unfenced || (row.claims == claim.claims && row.locked_at.is_some())).then_some(row)
    }

    /// Whether the event was cancelled; `None` if the claim was lost.
    pub(crate) fn renew(&mut self, claim: Claim) -> Option<bool> {
        let now = self.now;
        let row = self.rows.get_mut(&claim.id)?;
        if row.claims != claim.claims || row.locked_at.is_none() {
            return None;
        }
        row.locked_at = Some(now);
        Some(row.is_cancelled)
    }

    pub(crate) fn save_retry(&mut self, claim: Claim, retries: u32, delay: Duration) -> bool {
        let (now, delay_until) = (self.now, self.now + delay);
        let notify_at = self.wake_at(delay_until, self.timing.grace);
        let forgets = self.defect == Some(Defect::RetryWithoutPromise);
        let Some(row) = self.owned(claim, Defect::RetryWithoutFence) else { return false };
        let counts = retries != row.retries;
        row.postponed_since = row.postponed_since.or((!counts).then_some(now));
        row.retries = retries;
        row.delay_until = delay_until;
        row.notify_at = if forgets { None } else { Some(notify_at) };
        row.probes = 0;
        row.locked_at = None;
        let row = row.clone();
        let record = self.record(claim.id);
        record.last = row;
        record.releases += u32::from(!counts);
        true
    }

    pub(crate) fn release(&mut self, claim: Claim) {
        if let Some(row) = self.rows.get_mut(&claim.id)
            && row.claims == claim.claims
        {
            row.locked_at = None;
            self.record(claim.id).releases += 1;
        }
    }

    pub(crate) fn remove(&mut self, claim: Claim, removal: Removal) -> bool {
        let Some(row) = self.owned(claim, Defect::RemoveWithoutFence) else { return false };
        // A cancelled event does not die, even if its worker was never told.
        let removal = match removal {
            Removal::Dead(_) if row.is_cancelled => Removal::Cancelled,
            Removal::Completed | Removal::Committed | Removal::Cancelled | Removal::Dead(_) => removal,
        };
        if self.defect == Some(Defect::RemoveNothing) {
            self.rows.get_mut(&claim.id).unwrap().locked_at = None;
            return true;
        }
        if matches!(removal, Removal::Dead(_))
            && let Some(lane) = self.lane_of(claim.id).filter(|(handler, _)| self.halting.contains(handler))
        {
            self.halted.insert(lane);
        }
        if !self.leave(claim.id) {
            self.rows.remove(&claim.id);
            self.arm_next(claim.id);
        }
        self.record(claim.id).removed = Some(removal);
        true
    }

    pub(crate) fn add_rule(&mut self, handler: &str, kind: RuleKind) {
        self.rules.insert((handler.to_owned(), kind));
    }

    /// Deletes the rule and leaves a resume job behind, in one transaction.
    pub(crate) fn lift(&mut self, handler: &str, kind: RuleKind) {
        if self.rules.remove(&(handler.to_owned(), kind)) && self.defect != Some(Defect::LiftWithoutJob) {
            self.jobs.push(ResumeJob { handler: handler.to_owned(), only_parked: true, after: None });
        }
    }

    /// A handler appeared: all events that wait for it are woken.
    pub(crate) fn register(&mut self, handler: &str) {
        self.jobs.push(ResumeJob { handler: handler.to_owned(), only_parked: false, after: None });
    }

    /// One page of a resume job: sets the promises and moves the cursor in one transaction. Returns
    /// what to publish next; the process may die before it does. What another rule holds stays
    /// parked.
    pub(crate) fn resume_page(&mut self, job: usize) -> Vec<EventId> {
        let ResumeJob { handler, only_parked, after } = self.jobs[job].clone();
        let skip_running = self.defect == Some(Defect::ResumeSkipsRunning);
        let is_held = only_parked && self.rules.iter().any(|(held, _)| *held == handler);
        let page: Vec<EventId> = self
            .rows
            .iter()
            .filter(|(id, row)| {
                self.records[id].handler == handler
                    && !is_held
                    && after.is_none_or(|after| **id > after)
                    && (!only_parked || row.notify_at.is_none())
                    && !(skip_running && row.locked_at.is_some())
            })
            .map(|(id, _)| *id)
            .take(self.page)
            .collect();
        for id in &page {
            let notify_at = self.wake_at(self.rows[id].delay_until, self.timing.grace);
            let row = self.rows.get_mut(id).unwrap();
            row.notify_at = Some(notify_at);
            row.probes = 0;
        }
        match page.last() {
            Some(last) => self.jobs[job].after = Some(*last),
            None => drop(self.jobs.remove(job)),
        }
        page
    }

    /// The probe: moves the overdue promises. Returns what to publish next: the events that are due
    /// within the horizon and not running.
    pub(crate) fn probe(&mut self) -> Vec<EventId> {
        let now = self.now;
        let overdue = |row: &&EventId| self.rows[row].notify_at.is_some_and(|at| at <= now);
        let overdue: Vec<EventId> = self.rows.keys().filter(overdue).copied().collect();
        let woken: Vec<EventId> = overdue.into_iter().filter(|id| self.move_promise(*id)).collect();
        // A process that dies before it publishes them leaves them to the back-off.
        for id in &woken {
            if self.turn(*id) == Turn::First {
                self.is_taken_on(*id);
            }
        }
        woken
    }

    /// Moves an overdue promise; returns whether the event has to be woken now.
    fn move_promise(&mut self, id: EventId) -> bool {
        let (now, timing) = (self.now, self.timing.clone());
        let row = &self.rows[&id];
        let lease_end = row.locked_at.map(|locked_at| locked_at + timing.lease);
        let runs_until = lease_end.filter(|end| *end > now);
        let due_soon = row.delay_until <= now + timing.horizon;
        let back_off =
            timing.probe_backoff.saturating_mul(1 << row.probes.min(16)).min(timing.probe_backoff_max);
        let notify_at = match runs_until {
            Some(end) => end + timing.grace,
            None => self.wake_at(row.delay_until, back_off),
        };
        let row = self.rows.get_mut(&id).unwrap();
        row.notify_at = Some(notify_at);
        row.probes += u32::from(runs_until.is_none());
        runs_until.is_none() && due_soon
    }

    /// Makes every promise overdue.
    pub(crate) fn wake_all(&mut self) {
        for row in self.rows.values_mut().filter(|row| row.notify_at.is_some()) {
            row.notify_at = Some(self.now);
            row.probes = 0;
        }
    }

    /// Publishes notifications of these events.
    pub(crate) fn publish(&mut self, ids: &[EventId]) {
        for id in ids {
            if self.defect == Some(Defect::PublishWithoutClass) {
                self.broker.unmarked.insert(*id);
            }
            self.broker.publish(*id, self.now);
            self.is_taken_on(*id);
            self.log(|world| format!("notification for {} published again", world.records[id].label));
        }
    }

    /// When the promise of an event falls due.
    pub(crate) fn promised_at(&self, id: EventId) -> Option<Timestamp> {
        self.rows.get(&id)?.notify_at
    }
}
