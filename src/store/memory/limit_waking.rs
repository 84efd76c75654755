//! Who has a place, who waits, and what wakes those that have room.

use std::collections::BTreeSet;
use std::time::Duration;

use super::limit_rows::{Wait, line_max, pace};
use super::{LiveRow, Tables};
use crate::event::{CanvasId, EventId, HeldLimit, Notification, Rate, Timestamp};
use crate::store::kernel::StoreError;
use crate::store::limits::WokenEvent;

/// How long a place is kept for an event that was woken for it.
const WAKE_KEPT: Duration = Duration::from_secs(10);
/// After how long an event that was woken and has not come waits again.
const WAKE_LOST: Duration = Duration::from_secs(300);
/// How many events one call wakes of a limit that was removed.
const FREED_PAGE: usize = 500;
/// How many limits the minute's pass looks at.
const ROOM_PAGE: usize = 500;

impl Tables {
    /// Whether only [`Tables::claim_limited`] may claim the event.
    pub(super) fn is_limited(&self, row: &LiveRow) -> bool {
        self.limits.concern(row)
    }

    /// Whether the event waits, and was not told to come.
    pub(super) fn waits(&self, row: &LiveRow) -> bool {
        self.limits.waits.get(&row.event.id).is_some_and(|wait| wait.woken_at.is_none())
    }

    /// The events that have a place: those with a live claim.
    pub(super) fn live_holders(&self, held: &HeldLimit) -> Vec<EventId> {
        let holders = self.limits.states.get(held).map_or(&[][..], |state| &state.holders);
        let lives = |id: &&EventId| self.events.get(*id).is_some_and(|row| !self.is_free(row));
        holders.iter().filter(lives).copied().collect()
    }

    pub(super) fn drop_dead_holders(&mut self, held: &HeldLimit) {
        let live = self.live_holders(held);
        if let Some(state) = self.limits.states.get_mut(held) {
            state.holders = live;
        }
    }

    /// How many events have a place as far as is known, beside this one: some may have lost their
    /// claims.
    pub(super) fn holders(&self, held: &HeldLimit, beside: Option<EventId>) -> usize {
        let holders = self.limits.states.get(held).map_or(&[][..], |state| &state.holders);
        holders.iter().filter(|holder| Some(**holder) != beside).count()
    }

    /// The waits for a limit. Those of events that have ended are gone with them.
    fn waits_of(&self, held: &HeldLimit) -> impl Iterator<Item = (EventId, &Wait)> {
        let waits = self.limits.waits.iter().filter(move |(_, wait)| wait.held == *held);
        waits.filter(|(id, _)| self.events.contains_key(id)).map(|(id, wait)| (*id, wait))
    }

    /// How many events wait, whether or not they were told to come.
    pub(super) fn count_waits(&self, held: &HeldLimit) -> u64 {
        self.waits_of(held).count() as u64
    }

    /// How many events have a place that is kept for them, and how many have not come in time.
    fn woken_and_late(&self, held: &HeldLimit) -> (usize, usize) {
        let told = self.waits_of(held).filter_map(|(_, wait)| wait.woken_at);
        let (woken, late): (Vec<_>, Vec<_>) = told.partition(|at| *at > self.now - WAKE_KEPT);
        (woken.len(), late.len())
    }

    pub(super) fn woken(&self, held: &HeldLimit) -> usize {
        self.woken_and_late(held).0
    }

    /// The limit at which a place is still kept for an event that has come, if others wait there.
    pub(super) fn left_to_others(&self, wait: &Wait) -> Option<HeldLimit> {
        let is_kept = wait.woken_at.is_some_and(|at| at > self.now - WAKE_KEPT);
        (is_kept && !self.line(&wait.held).is_empty()).then(|| wait.held.clone())
    }

    /// The events that wait without having been told to come, in their order.
    pub(super) fn line(&self, held: &HeldLimit) -> BTreeSet<(Timestamp, EventId)> {
        let waits = self.waits_of(held).filter(|(_, wait)| wait.woken_at.is_none());
        waits.map(|(id, wait)| (wait.due, id)).collect()
    }

    /// Whether an event waits that comes before this one.
    pub(super) fn is_behind(&self, id: EventId, held: &HeldLimit) -> bool {
        let waits = self.limits.waits.get(&id).map(|wait| wait.due);
        let due = waits.or(self.events.get(&id).map(|row| row.delay_until));
        self.line(held).first().is_some_and(|first| due.is_some_and(|due| *first < (due, id)))
    }

    /// The times that events are given follow one another.
    pub(super) fn lengthen_line(&mut self, held: &HeldLimit, start: Timestamp) {
        if let Some(rate) = self.rate(held) {
            self.limits.state(held).line_at = Some(start + pace(rate));
        }
    }

    /// Up to when events have been given times to come back. Those that are gone, that were told
    /// otherwise or have not come in time give up theirs.
    pub(super) fn line_end(&self, held: &HeldLimit, rate: Rate) -> Option<Timestamp> {
        let line_at = self.limits.states.get(held)?.line_at?;
        let told = self.waits_of(held).filter_map(|(_, wait)| wait.woken_at);
        let last = told.filter(|at| *at > self.now - WAKE_KEPT).max()?;
        Some(line_at.min(last + pace(rate)))
    }

    /// With another rate than before, the rate begins anew: at once, but without a burst. Then
    /// those that were told to come later wait again; returns whether there were any.
    pub(super) fn heed_rate(&mut self, held: &HeldLimit) -> bool {
        let (now, rate) = (self.now, self.rate(held));
        let state = self.limits.state(held);
        if state.rate == rate {
            return false;
        }
        let begins = state.rate.and(rate).map(|rate| now + pace(rate) * (rate.burst - 1));
        (state.next_at, state.line_at, state.rate) = (begins, None, rate);
        let waits = self.limits.waits.values_mut().filter(|wait| wait.held == *held && !wait.is_paid);
        let mut are_told = false;
        for wait in waits.filter(|wait| wait.woken_at.is_some_and(|at| at > now)) {
            wait.woken_at = None;
            are_told = true;
        }
        are_told
    }

    /// Whether another rate is in force than the one by which events were told to come.
    fn is_anew(&self, held: &HeldLimit) -> bool {
        self.limits.states.get(held).and_then(|state| state.rate) != self.rate(held)
    }

    pub(in crate::store) fn wake_waiting(
        &mut self,
        limits: &[HeldLimit],
    ) -> Result<Vec<WokenEvent>, StoreError> {
        let mut limits: BTreeSet<&HeldLimit> = limits.iter().collect();
        limits.retain(|held| self.count_waits(held) > 0);
        let woken: Vec<Notification> = limits.into_iter().flat_map(|held| self.wake_under(held)).collect();
        let address = |id: &EventId| self.events.get(id).map(|row| row.address().clone());
        let of_handler =
            |notification: Notification| WokenEvent { address: address(&notification.id), notification };
        Ok(woken.into_iter().map(of_handler).collect())
    }

    pub(in crate::store) fn step_aside(
        &mut self,
        ids: &[EventId],
    ) -> Result<Vec<Option<HeldLimit>>, StoreError> {
        let now = self.now;
        let mut leave = |id: &EventId| {
            let wait = self.limits.waits.get(id)?;
            let is_woken = !wait.is_paid && wait.woken_at.is_some_and(|at| at <= now);
            if is_woken { self.limits.waits.remove(id).map(|wait| wait.held) } else { None }
        };
        Ok(ids.iter().map(&mut leave).collect())
    }

    /// The limits at which places were kept for these events, which are gone, and wait no more.
    pub(super) fn places_kept(&mut self, gone: &[LiveRow]) -> Vec<HeldLimit> {
        let waits: Vec<Wait> =
            gone.iter().filter_map(|row| self.limits.waits.remove(&row.event.id)).collect();
        let kept = waits.into_iter().filter(|wait| wait.woken_at.is_some()).map(|wait| wait.held);
        kept.collect::<BTreeSet<_>>().into_iter().collect()
    }

    fn wake_under(&mut self, held: &HeldLimit) -> Vec<Notification> {
        self.heed_rate(held);
        self.begin_line(held);
        let is_removed = self.limits.definition(held).is_none();
        let (mut room, mut notifications) = (self.room(held), Vec::new());
        for (_, id) in self.line(held) {
            let Some(start) = self.next_time(held).filter(|_| room > 0) else { break };
            let Some(row) = self.events.get(&id) else { continue };
            let is_later =
                row.delay_until > self.now && self.limits.put_off.get(&id) != Some(&row.delay_until);
            if row.notify_at.is_none() || !self.is_free(row) || is_later {
                // It is parked, runs or was postponed: other things wake it.
                self.limits.waits.remove(&id);
                self.promise_run(id);
                continue;
            }
            // What a rule holds is to be parked, and takes nothing from others.
            let is_freed = is_removed || self.rule_on(&row.address().scope).is_some();
            let due = if !is_freed && start > self.now { start } else { row.delay_until.min(self.now) };
            let notify_at = self.wake_at(due, self.timing.grace);
            if let Some(row) = self.events.get_mut(&id) {
                (row.delay_until, row.notify_at, row.probes) = (due, Some(notify_at), 0);
                notifications.push(row.notification());
            }
            self.limits.put_off.insert(id, due);
            if is_freed {
                self.limits.waits.remove(&id);
            } else if let Some(wait) = self.limits.waits.get_mut(&id) {
                wait.woken_at = Some(start);
                room -= 1;
                self.lengthen_line(held, start);
            }
        }
        notifications
    }

    /// An event that runs and was not claimed through limits has the promise of one that waits,
    /// which is far ahead: it moves back, in case the worker dies.
    fn promise_run(&mut self, id: EventId) {
        let soon = self.now + self.timing.grace;
        if self.events.get(&id).is_some_and(|row| !self.is_free(row))
            && let Some(row) = self.events.get_mut(&id)
        {
            row.notify_at = row.notify_at.map(|at| at.min(soon));
        }
    }

    /// Puts those back into the line, at its end, that were told to come and have not for long.
    fn begin_line(&mut self, held: &HeldLimit) {
        let now = self.now;
        let waits = self.limits.waits.values_mut().filter(|wait| wait.held == *held);
        for wait in waits.filter(|wait| wait.woken_at.is_some_and(|at| at < now - WAKE_LOST)) {
            (wait.woken_at, wait.due) = (None, now);
        }
    }

    /// The time at which the next event may come; `None` if that lies too far ahead.
    fn next_time(&self, held: &HeldLimit) -> Option<Timestamp> {
        let Some(rate) = self.rate(held) else { return Some(self.now) };
        let state = self.limits.states.get(held);
        let free_at = state.and_then(|state| state.free_at(rate)).max(self.line_end(held, rate));
        let start = free_at.map_or(self.now, |free_at| free_at.max(self.now));
        (start <= self.now + line_max(rate)).then_some(start)
    }

    /// How many more events may be told to come. Some of those that were told have not come in
    /// time: perhaps nobody runs their handlers now, and as many more are told.
    fn room(&mut self, held: &HeldLimit) -> usize {
        let Some(places) = self.places(held) else { return FREED_PAGE };
        let (woken, late) = self.woken_and_late(held);
        if !self.line(held).is_empty() && self.holders(held, None) + woken >= places {
            self.drop_dead_holders(held);
        }
        match places.saturating_sub(self.holders(held, None) + woken) {
            0 => 0,
            room => FREED_PAGE.min(room + late),
        }
    }

    /// The concurrency of a limit that is set and has one.
    fn places(&self, held: &HeldLimit) -> Option<usize> {
        let places = self.limits.definition(held)?.definition.concurrency?;
        Some(usize::try_from(places).unwrap_or(usize::MAX))
    }

    /// The rate of a limit that is set and has one.
    pub(super) fn rate(&self, held: &HeldLimit) -> Option<Rate> {
        self.limits.definition(held)?.definition.rate
    }

    pub(in crate::store) fn limits_with_room(
        &self,
        only: Option<CanvasId>,
    ) -> Result<Vec<HeldLimit>, StoreError> {
        let waited: BTreeSet<&HeldLimit> = self.limits.waits.values().map(|wait| &wait.held).collect();
        let meant = waited.into_iter().filter(|held| only.is_none_or(|canvas| held.canvas == canvas));
        Ok(meant.filter(|held| self.has_room(held)).take(ROOM_PAGE).cloned().collect())
    }

    /// Whether events wait that seem to have room, or were told to come later by another rate than
    /// the one that is in force.
    fn has_room(&self, held: &HeldLimit) -> bool {
        let is_anew = self.is_anew(held);
        let is_stale = |wait: &Wait| is_anew && wait.woken_at.is_some_and(|at| at > self.now);
        if self.line(held).is_empty() {
            return self.waits_of(held).any(|(_, wait)| is_stale(wait) && !wait.is_paid);
        }
        let is_kept = |wait: &Wait| wait.woken_at.is_some_and(|at| at > self.now - WAKE_KEPT);
        let kept = self.waits_of(held).filter(|(_, wait)| is_kept(wait) && !is_stale(wait)).count();
        let has_place = |places| places > self.live_holders(held).len() + kept;
        self.places(held).is_none_or(has_place) && (is_anew || self.next_time(held).is_some())
    }

    /// When the rate of a limit lets the next event start, unless it may start now.
    pub(super) fn next_start(&self, held: &HeldLimit) -> Option<Timestamp> {
        let rate = self.rate(held)?;
        let state = self.limits.states.get(held)?;
        state.free_at(rate).max(self.line_end(held, rate)).filter(|start| *start > self.now)
    }

    /// When those that wait for a rate without a time may be given one.
    pub(super) fn limit_moments(&self) -> impl Iterator<Item = Timestamp> {
        let waited = self.limits.waits.values().filter(|wait| wait.woken_at.is_none());
        waited.filter_map(|wait| self.next_start(&wait.held))
    }
}
