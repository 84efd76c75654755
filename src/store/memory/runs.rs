//! The statements of runs: load, claim, and the fenced writes of an owner.

use std::sync::Arc;
use std::time::Duration;

use super::batch_row::MemberEnd;
use super::{Dead, LiveRow, Tables, UnknownHandler};
use crate::event::{Cause, Claim, EndedOutcome, EventId, HandlerAddress, Name, Notification, Schedule, Turn};
use crate::store::events::{
    AttemptEnd, CANCELLED_PAGE, ClaimLimits, ClaimedEvent, LoadedEvent, NotedRetry, Renewal, Retry,
};
use crate::store::kernel::StoreError;

impl Tables {
    pub(in crate::store) fn load(&self, ids: &[EventId]) -> Result<Vec<Option<LoadedEvent>>, StoreError> {
        Ok(ids.iter().map(|id| self.events.get(id).map(|row| self.loaded(row))).collect())
    }

    fn loaded(&self, row: &LiveRow) -> LoadedEvent {
        LoadedEvent {
            is_limited: self.is_limited(row),
            waits: self.waits(row),
            ..row.loaded(self.schedule(row), !self.is_free(row))
        }
    }

    /// What decides whether the event may run now.
    pub(super) fn schedule(&self, row: &LiveRow) -> Schedule {
        Schedule {
            delay_until: row.delay_until,
            locked_at: row.locked_at,
            rule: self.rule_on(&row.address().scope),
            turn: self.turn(row),
            now: self.now,
        }
    }

    pub(in crate::store) fn claim(
        &mut self,
        notifications: &[Notification],
        limits: &ClaimLimits,
        worker: Option<&Name>,
    ) -> Result<Vec<Option<ClaimedEvent>>, StoreError> {
        Ok(notifications.iter().map(|notification| self.claim_one(*notification, limits, worker)).collect())
    }

    fn claim_one(
        &mut self,
        notification: Notification,
        limits: &ClaimLimits,
        worker: Option<&Name>,
    ) -> Option<ClaimedEvent> {
        self.claimable(notification, limits).filter(|row| !self.is_limited(row))?;
        self.take(notification.id, worker)
    }

    /// The row of an event that may be claimed now, as far as no limit is against it.
    pub(super) fn claimable(&self, notification: Notification, limits: &ClaimLimits) -> Option<&LiveRow> {
        let Notification { id, canvas, .. } = notification;
        let row = self.events.get(&id).filter(|row| row.address().scope.canvas == canvas)?;
        let may = row.delay_until <= self.now
            && self.is_free(row)
            && row.losses + i32::from(row.locked_at.is_some()) < limits.losses_below
            && row.value_bytes() <= limits.value_max
            && knows(limits, row.address())
            && self.rule_on(&row.address().scope).is_none()
            && self.turn(row) == Turn::First;
        may.then_some(row)
    }

    /// Claims an event that may be claimed.
    pub(super) fn take(&mut self, id: EventId, worker: Option<&Name>) -> Option<ClaimedEvent> {
        let now = self.now;
        let row = self.events.get_mut(&id)?;
        let took_over = row.locked_at.is_some();
        row.locked_at = Some(now);
        row.worker = worker.cloned();
        row.claims += 1;
        row.nonce = row.claims;
        row.losses += i32::from(took_over);
        Some(row.claimed(took_over, now))
    }

    /// The row that a claim stands on: the fence of every write by a worker.
    pub(super) fn owned(&mut self, claim: &Claim) -> Option<&mut LiveRow> {
        self.events
            .get_mut(&claim.id)
            .filter(|row| (row.claims, row.nonce) == (claim.claims, claim.nonce) && row.locked_at.is_some())
    }

    pub(in crate::store) fn renew(&mut self, claims: &[Claim]) -> Result<Vec<Renewal>, StoreError> {
        let now = self.now;
        let renewed = |claim| match self.owned(claim) {
            Some(row) => {
                row.locked_at = Some(now);
                Renewal::of(true, row.cancelled_by.is_some())
            }
            None => Renewal::Lost,
        };
        Ok(claims.iter().map(renewed).collect())
    }

    pub(in crate::store) fn cancelled_claims(&self) -> Result<Vec<Claim>, StoreError> {
        let cancelled =
            self.events.values().filter(|row| row.cancelled_by.is_some() && row.locked_at.is_some());
        let claim = |row: &LiveRow| Claim { id: row.event.id, claims: row.claims, nonce: row.nonce };
        Ok(cancelled.map(claim).take(CANCELLED_PAGE).collect())
    }

    pub(in crate::store) fn remove_cancelled(
        &mut self,
        claim: Claim,
        end: &AttemptEnd,
    ) -> Result<bool, StoreError> {
        if self.owned(&claim).is_none_or(|row| row.cancelled_by.is_none()) {
            return Ok(false);
        }
        let removed = self.remove_owned(&claim);
        if let Some(row) = &removed {
            self.add_tombstone(row, "cancelled");
            self.leave_batch(row, MemberEnd::Cancelled);
            self.keep_ended(row, EndedOutcome::Cancelled, end, row.cancelled_by.as_deref());
        }
        Ok(removed.is_some())
    }

    pub(in crate::store) fn complete(&mut self, claims: &[Claim]) -> Result<Vec<bool>, StoreError> {
        Ok(claims.iter().map(|claim| self.complete_one(claim).is_some()).collect())
    }

    fn complete_one(&mut self, claim: &Claim) -> Option<()> {
        let row = self.remove_owned(claim)?;
        self.leave_batch(&row, MemberEnd::Completed);
        Some(())
    }

    pub(super) fn remove_owned(&mut self, claim: &Claim) -> Option<LiveRow> {
        self.owned(claim)?;
        let removed = self.events.remove(&claim.id)?;
        self.arm_first_of(&removed);
        Some(removed)
    }

    pub(in crate::store) fn retry(&mut self, retries: &[Arc<Retry>]) -> Result<Vec<bool>, StoreError> {
        Ok(retries.iter().map(|retry| self.retry_one(retry).is_some()).collect())
    }

    fn retry_one(&mut self, retry: &Retry) -> Option<()> {
        let due = self.now + retry.delay.min(Retry::DELAY_MAX);
        let notify_at = self.wake_at(due, self.timing.grace);
        let now = self.now;
        let claimed = self.owned(&retry.claim)?.clone();
        if let Some(NotedRetry { took, is_postponed }) = retry.noted {
            let outcome = if is_postponed { "postponed" } else { "retried" };
            self.note_attempt(&claimed, outcome, Some(took), Some(&retry.error));
        }
        let row = self.owned(&retry.claim)?;
        let is_postponed = row.retries == retry.retries;
        row.postponed_since = row.postponed_since.or(is_postponed.then_some(now));
        row.retries = retry.retries;
        row.delay_until = due;
        row.notify_at = Some(notify_at);
        row.probes = 0;
        row.locked_at = None;
        row.worker = None;
        row.last_error = Some(retry.error.clone());
        Some(())
    }

    pub(in crate::store) fn release(&mut self, claims: &[Claim]) -> Result<u64, StoreError> {
        let mut released = 0;
        for claim in claims {
            if let Some(row) = self.owned(claim) {
                row.locked_at = None;
                row.worker = None;
                released += 1;
            }
        }
        Ok(released)
    }

    pub(in crate::store) fn die(
        &mut self,
        claim: Claim,
        cause: Cause,
        error: Option<&str>,
        halts: bool,
        took: Option<Duration>,
    ) -> Result<bool, StoreError> {
        if self.owned(&claim).is_some_and(|row| row.cancelled_by.is_some()) {
            return Ok(false);
        }
        let Some(mut row) = self.remove_owned(&claim) else { return Ok(false) };
        self.note_attempt(&row, "dead", took, error);
        if let Some(error) = error {
            row.last_error = Some(error.to_owned());
        }
        if halts {
            self.halt(claim.id, &row);
        } else {
            self.add_tombstone(&row, "dead");
        }
        self.leave_batch(&row, MemberEnd::Dead);
        self.dead.insert(claim.id, Dead { row, cause: cause.as_str(), died_at: self.now });
        Ok(true)
    }

    pub(in crate::store) fn park(&mut self, ids: &[EventId]) -> Result<Vec<bool>, StoreError> {
        Ok(ids.iter().map(|id| self.park_one(*id).is_some()).collect())
    }

    fn park_one(&mut self, id: EventId) -> Option<()> {
        self.rule_on(&self.events.get(&id)?.address().scope)?;
        let row = self.events.get_mut(&id)?;
        (row.notify_at, row.postponed_since) = (None, None);
        Some(())
    }

    pub(in crate::store) fn defer(&mut self, ids: &[EventId]) -> Result<(), StoreError> {
        let now = self.now;
        for id in ids {
            let waits = self.events.get(id).filter(|row| row.delay_until <= now && self.is_free(row));
            let Some((address, probes)) = waits.map(|row| (row.address().clone(), row.probes)) else {
                continue;
            };
            let later = now + self.timing.defer_for(probes.unsigned_abs());
            if let Some(notify_at) = self.events.get_mut(id).and_then(|row| row.notify_at.as_mut()) {
                *notify_at = later;
            }
            let new = UnknownHandler { first_seen: now, last_seen: now };
            self.unknown.entry(address).or_insert(new).last_seen = now;
        }
        Ok(())
    }

    /// Called when a worker has these handlers: creates a job for each that events wait for.
    pub(in crate::store) fn register(
        &mut self,
        handlers: &[String],
        canvas_handlers: &[String],
    ) -> Result<u64, StoreError> {
        let limits = ClaimLimits {
            handlers: handlers.to_vec().into(),
            canvas_handlers: canvas_handlers.to_vec(),
            losses_below: i32::MAX,
            value_max: i32::MAX,
        };
        let known = self.unknown.extract_if(.., |address, _| knows(&limits, address));
        let mut scopes: Vec<_> = known.map(|(address, _)| address.scope).collect();
        scopes.dedup();
        let jobs = scopes.len() as u64;
        for scope in scopes {
            self.make_job(scope, false);
        }
        Ok(jobs)
    }
}

/// Whether a worker with these handlers has the handler of this address.
fn knows(limits: &ClaimLimits, address: &HandlerAddress) -> bool {
    let HandlerAddress { scope, modifier } = address;
    let key = format!("{}/{}/{}", scope.module, scope.name, modifier);
    limits.handlers.names().contains(&key)
        || limits.canvas_handlers.contains(&format!("{}/{key}", scope.canvas))
}
