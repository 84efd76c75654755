//! The claim of events with limits, and what wakes those that wait for a place.
//!
//! A place belongs to an event with a live claim, so that none is ever lost. What was woken for a
//! place has it for ten seconds before others.

use std::time::Duration;

use super::batch_row::MemberEnd;
use super::limit_rows::{LimitState, WAKE_KEPT, WaitPlace};
use super::{LiveRow, Tables};
use crate::event::{EndedOutcome, EventId, HeldLimit, Name, NewLimit, Notification, OnFull, Timestamp};
use crate::store::events::{AttemptEnd, ClaimLimits, ClaimedEvent, LimitedClaim};
use crate::store::kernel::StoreError;

/// The promise of an event that waits for a place, in case that nothing else wakes it.
const SAFETY_NET: Duration = Duration::from_secs(3600);
/// How far ahead starts are reserved if the horizon is shorter.
const AHEAD_MIN: Duration = Duration::from_secs(1);
/// How many events one call wakes of a limit that was removed.
const FREED_PAGE: usize = 500;
/// How many limits the minute's pass looks at.
const ROOM_PAGE: usize = 500;

impl Tables {
    pub(in crate::store) fn claim_limited(
        &mut self,
        notifications: &[Notification],
        limits: &ClaimLimits,
        worker: Option<&Name>,
    ) -> Result<Vec<LimitedClaim>, StoreError> {
        Ok(notifications.iter().map(|one| self.claim_limited_one(*one, limits, worker)).collect())
    }

    fn claim_limited_one(
        &mut self,
        notification: Notification,
        limits: &ClaimLimits,
        worker: Option<&Name>,
    ) -> LimitedClaim {
        let Some(row) = self.claimable(notification, limits) else { return LimitedClaim::Not };
        let (id, due) = (notification.id, row.delay_until);
        // One that was cancelled while it ran does not run again, and needs no place.
        let named = if row.cancelled_by.is_some() { Vec::new() } else { self.limits.of(row) };
        if let Some(start) = self.reserve(id, &named) {
            self.limits.wait(id, None);
            return LimitedClaim::Later((start - self.now).to_std().unwrap_or_default());
        }
        let full =
            named.iter().find(|(held, limit)| limit.concurrency.is_some_and(|n| !self.may_take(id, held, n)));
        let mut places = Vec::new();
        match full.map(|(held, limit)| (held.clone(), limit.on_full)) {
            Some((held, OnFull::Drop)) => {
                if let Some(row) = self.events.get_mut(&id) {
                    row.cancelled_by = Some(by(&held));
                }
            }
            Some((held, on_full)) => {
                self.make_room(id, &held, on_full);
                self.limits.wait(id, Some((&held, due)));
                let notify_at = self.now + SAFETY_NET;
                if let Some(row) = self.events.get_mut(&id) {
                    (row.notify_at, row.probes) = (Some(notify_at), 0);
                }
                return LimitedClaim::Full(held.name);
            }
            None => {
                let counted = named.into_iter().filter(|(_, limit)| limit.concurrency.is_some());
                places.extend(counted.map(|(held, _)| held));
            }
        }
        self.limits.wait(id, None);
        for held in &places {
            self.drop_dead_holders(held);
            self.limits.state(held).holders.push(id);
        }
        let claimed = self.take(id, worker);
        claimed.map_or(LimitedClaim::Not, |claimed| {
            LimitedClaim::Claimed(Box::new(ClaimedEvent { held: Some(places.into()), ..claimed }))
        })
    }

    /// Reserves the event's start with all of its rates, unless it has one; returns it if it lies
    /// ahead. Beyond the horizon nothing is reserved, and the event asks again then.
    fn reserve(&mut self, id: EventId, named: &[(HeldLimit, NewLimit)]) -> Option<Timestamp> {
        let (now, last) = (self.now, self.now + self.timing.horizon.max(AHEAD_MIN));
        let rates = || named.iter().filter_map(|(held, limit)| Some((held, limit.rate?)));
        let row = self.events.get(&id).filter(|row| row.starts_at != Some(row.delay_until))?;
        let due = row.delay_until;
        let states = &self.limits.states;
        let earliest = |held: &HeldLimit| states.get(held).cloned().unwrap_or_default();
        let start = rates().map(|(held, rate)| earliest(held).earliest(rate, now)).max()?;
        let is_reserved = start <= last;
        let start = start.min(last);
        if is_reserved {
            rates().for_each(|(held, rate)| self.limits.state(held).reserve(rate, start));
        }
        let (due, notify_at) = if start > now {
            (start, Some(self.wake_at(start, self.timing.grace)))
        } else {
            (due, self.events.get(&id)?.notify_at)
        };
        let row = self.events.get_mut(&id)?;
        (row.delay_until, row.notify_at) = (due, notify_at);
        row.starts_at = is_reserved.then_some(due);
        (start > now).then_some(start)
    }

    /// Whether an event may take one of this many places: after those that were woken for one, and
    /// after those that wait before it.
    fn may_take(&self, id: EventId, held: &HeldLimit, places: u32) -> bool {
        let live = self.live_holders(held).len();
        let places = usize::try_from(places).unwrap_or(usize::MAX);
        let waits = self.limits.waits.get(held);
        let own = waits.and_then(|waits| waits.iter().find(|((_, waiting), _)| *waiting == id));
        if own.is_some_and(|(_, woken)| self.is_woken(*woken)) {
            return live < places;
        }
        let own = own.map(|(place, _)| *place);
        let others = waits.into_iter().flatten().filter(|(place, _)| Some(**place) != own);
        let others = others.filter(|((_, waiting), _)| self.still_waits(*waiting));
        let (woken, unwoken): (Vec<_>, Vec<_>) = others.partition(|(_, woken)| self.is_woken(**woken));
        let overtakes = unwoken.iter().any(|(place, _)| own.is_none_or(|own| **place < own));
        live + woken.len() < places && !overtakes
    }

    fn is_woken(&self, woken_at: Option<Timestamp>) -> bool {
        woken_at.is_some_and(|woken_at| woken_at > self.now - WAKE_KEPT)
    }

    /// The events that have a place: those with a live claim.
    pub(super) fn live_holders(&self, held: &HeldLimit) -> Vec<EventId> {
        let holders = self.limits.states.get(held).map_or(&[][..], |state| &state.holders);
        let lives = |id: &&EventId| self.events.get(*id).is_some_and(|row| !self.is_free(row));
        holders.iter().filter(lives).copied().collect()
    }

    fn drop_dead_holders(&mut self, held: &HeldLimit) {
        let live = self.live_holders(held);
        if let Some(state) = self.limits.states.get_mut(held) {
            state.holders = live;
        }
    }

    /// What an event that finds a limit full does to others. One that waits there already has done
    /// it.
    fn make_room(&mut self, id: EventId, held: &HeldLimit, on_full: OnFull) {
        let waits = self.limits.waits.get(held);
        if waits.is_some_and(|waits| waits.keys().any(|(_, waiting)| *waiting == id)) {
            return;
        }
        match on_full {
            OnFull::Wait | OnFull::Drop => {}
            OnFull::Replace => {
                let oldest = waits.into_iter().flatten().find(|(_, woken)| !self.is_woken(**woken));
                if let Some((_, replaced)) = oldest.map(|(place, _)| *place) {
                    self.cancel_waiting(replaced, &by(held));
                }
            }
            OnFull::Cancel => {
                let live = self.live_holders(held);
                let is_left =
                    |id: &&EventId| self.events.get(*id).is_some_and(|row| row.cancelled_by.is_none());
                let oldest = live.iter().find(is_left).copied();
                if let Some(row) = oldest.and_then(|oldest| self.events.get_mut(&oldest)) {
                    row.cancelled_by = Some(by(held));
                }
            }
        }
    }

    /// As an operator cancels an event that waits.
    fn cancel_waiting(&mut self, id: EventId, by: &str) {
        self.limits.wait(id, None);
        if self.events.get(&id).is_none_or(|row| !self.is_free(row)) {
            return;
        }
        let Some(row) = self.events.remove(&id) else { return };
        self.add_tombstone(&row, "cancelled");
        self.leave_batch(&row, MemberEnd::Cancelled);
        self.keep_ended(&row, EndedOutcome::Cancelled, &AttemptEnd::default(), Some(by));
        self.arm_first_of(&row);
    }

    pub(in crate::store) fn wake_waiting(
        &mut self,
        limits: &[HeldLimit],
    ) -> Result<Vec<Notification>, StoreError> {
        Ok(limits.iter().flat_map(|held| self.wake_under(held)).collect())
    }

    fn wake_under(&mut self, held: &HeldLimit) -> Vec<Notification> {
        self.drop_dead_holders(held);
        self.drop_stale_waits(held);
        let (now, room) = (self.now, self.room(held));
        let unwoken = self.unwoken(held);
        let mut notifications = Vec::new();
        for place in unwoken.into_iter().take(room.unwrap_or(FREED_PAGE)) {
            let notify_at = self.wake_at(now, self.timing.grace);
            let Some(row) = self.events.get_mut(&place.1) else { continue };
            (row.notify_at, row.probes) = (Some(notify_at), 0);
            notifications.push(row.notification());
            if room.is_some()
                && let Some(waits) = self.limits.waits.get_mut(held)
            {
                waits.insert(place, Some(now));
            } else {
                self.limits.wait(place.1, None);
            }
        }
        notifications
    }

    /// Forgets the waits of events that wait for nothing here.
    fn drop_stale_waits(&mut self, held: &HeldLimit) {
        let Some(mut waits) = self.limits.waits.remove(held) else { return };
        waits.retain(|(_, id), _| self.still_waits(*id));
        if !waits.is_empty() {
            self.limits.waits.insert(held.clone(), waits);
        }
    }

    /// Whether an event that has a wait may take a place: other things wake one that is parked, or
    /// that waits for its time now.
    fn still_waits(&self, id: EventId) -> bool {
        let row = self.events.get(&id);
        row.is_some_and(|row| row.notify_at.is_some() && row.delay_until <= self.now)
    }

    /// How many more events may be woken; `None`: as many as wait, since nothing limits how many
    /// run.
    fn room(&self, held: &HeldLimit) -> Option<usize> {
        let places = self.limits.definition(held)?.definition.concurrency?;
        let places = usize::try_from(places).unwrap_or(usize::MAX);
        let waits = self.limits.waits.get(held).into_iter().flatten();
        let woken = waits.filter(|((_, id), woken)| self.is_woken(**woken) && self.still_waits(*id)).count();
        Some(places.saturating_sub(self.live_holders(held).len() + woken))
    }

    fn unwoken(&self, held: &HeldLimit) -> Vec<WaitPlace> {
        let waits = self.limits.waits.get(held).into_iter().flatten();
        let unwoken = waits.filter(|((_, id), woken)| !self.is_woken(**woken) && self.still_waits(*id));
        unwoken.map(|(place, _)| *place).collect()
    }

    pub(in crate::store) fn limits_with_room(&self) -> Result<Vec<HeldLimit>, StoreError> {
        let has_room =
            |held: &&HeldLimit| self.room(held).is_none_or(|room| room > 0) && !self.unwoken(held).is_empty();
        Ok(self.limits.waits.keys().filter(has_room).take(ROOM_PAGE).cloned().collect())
    }

    /// When the rate of a limit lets the next event start, unless it may start now.
    pub(super) fn next_start(&self, held: &HeldLimit) -> Option<Timestamp> {
        let rate = self.limits.definition(held)?.definition.rate?;
        let earliest = self.limits.states.get(held).map(|state: &LimitState| state.earliest(rate, self.now));
        earliest.filter(|start| *start > self.now)
    }

    /// Whether only [`Tables::claim_limited`] may claim the event.
    pub(super) fn is_limited(&self, row: &LiveRow) -> bool {
        self.limits.concern(row)
    }

    /// Whether the event waits for a place, and was not woken for one just now.
    pub(super) fn waits(&self, row: &LiveRow) -> bool {
        self.limits.waits_under(row.event.id).is_some_and(|(_, _, woken)| !self.is_woken(woken))
    }
}

/// Who cancels an event for the sake of a limit.
fn by(held: &HeldLimit) -> String {
    format!("limit:{}", held.name)
}
