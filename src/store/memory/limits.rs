//! The claim of events with limits: which may start now, and which wait.
//!
//! A place belongs to an event with a live claim, so that none is ever lost. Nothing is taken
//! before all is there: an event holds no place while it waits for a rate, and pays no rate while
//! it waits for a place.

use std::collections::BTreeSet;
use std::time::Duration;

use super::Tables;
use super::limit_rows::{Wait, line_max};
use crate::event::{EventId, HeldLimit, Name, NewLimit, Notification, OnFull, Timestamp};
use crate::store::events::{ClaimLimits, ClaimedEvent};
use crate::store::kernel::StoreError;
use crate::store::limits::LimitedClaim;

/// The promise of an event that waits, in case that nothing else wakes it.
const SAFETY_NET: Duration = Duration::from_secs(3600);
/// By how much an event that was told to come may be too early for its rate, and pay all the same.
const EARLY_MAX: Duration = Duration::from_millis(500);

/// An event that asks, with its limits and what it waits for.
struct Ask {
    id: EventId,
    named: Vec<(HeldLimit, NewLimit)>,
    wait: Option<Wait>,
    /// It has neither run nor waited, so it may take the place of others, or be dropped for them.
    is_new: bool,
}

/// What holds an event up, and whether others that wait there have to be woken.
struct Full {
    held: HeldLimit,
    has_room: bool,
}

impl Ask {
    fn is_woken(&self) -> bool {
        self.wait.as_ref().is_some_and(|wait| wait.woken_at.is_some())
    }

    fn is_paid(&self) -> bool {
        self.wait.as_ref().is_some_and(|wait| wait.is_paid)
    }

    fn on_full(&self, held: &HeldLimit) -> OnFull {
        let limit = self.named.iter().find(|(named, _)| named == held);
        limit.map_or(OnFull::Wait, |(_, limit)| limit.on_full)
    }
}

impl Tables {
    /// Also returns limits of which others are to be woken.
    pub(in crate::store) fn claim_limited(
        &mut self,
        notifications: &[Notification],
        limits: &ClaimLimits,
        worker: Option<&Name>,
    ) -> Result<(Vec<LimitedClaim>, Vec<HeldLimit>), StoreError> {
        let claims = notifications.iter().map(|one| self.claim_limited_one(*one, limits, worker)).collect();
        Ok((claims, std::mem::take(&mut self.limits.to_wake).into_iter().collect()))
    }

    fn claim_limited_one(
        &mut self,
        notification: Notification,
        limits: &ClaimLimits,
        worker: Option<&Name>,
    ) -> LimitedClaim {
        let Some(row) = self.claimable(notification, limits) else { return LimitedClaim::Not };
        let id = notification.id;
        // One that was cancelled while it ran does not run again, and needs no place.
        let named = if row.cancelled_by.is_some() { Vec::new() } else { self.limits.of(row) };
        let is_new = row.claims == 0 && !self.limits.put_off.contains_key(&id);
        for (held, _) in &named {
            if self.heed_rate(held) {
                self.limits.to_wake.insert(held.clone());
            }
        }
        let ask = Ask { id, named, wait: self.limits.waits.get(&id).cloned(), is_new };
        let is_early = |wait: &Wait| {
            let is_set = self.limits.definition(&wait.held).is_some();
            is_set && wait.woken_at.is_some_and(|at| at > self.now)
        };
        if let Some(wait) = ask.wait.clone().filter(is_early) {
            // Somebody made it due before its time. Its limit may be gone: then it waits there no
            // more.
            return self.put_off(&ask, &wait.held, wait.woken_at, wait.is_paid);
        }
        if let Some(Full { held, has_room }) = self.find_place(&ask) {
            return self.make_wait(&ask, &Full { held, has_room }, None, true, worker);
        }
        if let Some((start, held, line)) = self.find_start(&ask).filter(|(start, ..)| *start > self.now) {
            if ask.is_woken() && start <= self.now + EARLY_MAX {
                self.pay(&ask, start);
                return self.put_off(&ask, &held, Some(start), true);
            }
            let line_at = self.rate(&held).and_then(|rate| self.line_end(&held, rate));
            let start = line_at.map_or(start, |line_at| line_at.max(start));
            let start = Some(start).filter(|start| *start <= self.now + line);
            return self.make_wait(&ask, &Full { held, has_room: false }, start, false, worker);
        }
        self.pay(&ask, self.now);
        for (held, limit) in &ask.named {
            let holders = &mut self.limits.state(held).holders;
            holders.retain(|holder| *holder != id);
            holders.extend(limit.concurrency.map(|_| id));
        }
        let mut held: Vec<HeldLimit> = ask.named.into_iter().map(|(held, _)| held).collect();
        // What it was woken for may be another limit, which has room for others then.
        held.extend(ask.wait.map(|wait| wait.held));
        held.sort();
        held.dedup();
        self.start(id, held, worker)
    }

    fn start(&mut self, id: EventId, held: Vec<HeldLimit>, worker: Option<&Name>) -> LimitedClaim {
        self.limits.waits.remove(&id);
        let soon = self.now + self.timing.grace;
        if self.limits.put_off.remove(&id).is_some()
            && let Some(row) = self.events.get_mut(&id)
        {
            // Nobody may have woken it, and its promise be far ahead.
            row.notify_at = row.notify_at.map(|at| at.min(soon));
        }
        let claimed = self.take(id, worker);
        claimed.map_or(LimitedClaim::Not, |claimed| {
            LimitedClaim::Claimed(Box::new(ClaimedEvent { held: Some(held.into()), ..claimed }))
        })
    }

    /// The first limit in which an event finds no place. It finds none where others wait that were
    /// due before it, unless it was woken.
    fn find_place(&mut self, ask: &Ask) -> Option<Full> {
        ask.named.iter().find_map(|(held, limit)| {
            let places = usize::try_from(limit.concurrency?).unwrap_or(usize::MAX);
            let kept = if ask.is_woken() { 0 } else { self.woken(held) };
            if self.holders(held, Some(ask.id)) + kept >= places {
                self.drop_dead_holders(held);
            }
            let is_full = self.holders(held, Some(ask.id)) + kept >= places;
            let overtakes = !ask.is_woken() && self.is_behind(ask.id, held);
            (is_full || overtakes).then(|| Full { held: held.clone(), has_room: !is_full })
        })
    }

    /// When all rates of an event allow it to start, the rate that is the last to do so, and how
    /// far ahead its line may be. Where others wait before it, an event gets no time.
    fn find_start(&self, ask: &Ask) -> Option<(Timestamp, HeldLimit, Duration)> {
        if ask.is_paid() {
            return None;
        }
        let starts = ask.named.iter().filter_map(|(held, limit)| {
            let (rate, state) = (limit.rate?, self.limits.states.get(held));
            let free_at = state.and_then(|state| state.free_at(rate)).unwrap_or(self.now);
            let line_at = self.line_end(held, rate).unwrap_or(free_at);
            let start = match ask.is_woken() {
                true => free_at,
                false if self.is_behind(ask.id, held) => Timestamp::MAX_UTC,
                false => free_at.max(line_at),
            };
            Some((start, held.clone(), line_max(rate)))
        });
        starts.reduce(|first, next| if next.0 > first.0 { next } else { first })
    }

    /// Takes a start at this time from all rates of an event.
    fn pay(&mut self, ask: &Ask, start: Timestamp) {
        for (held, limit) in ask.named.iter().filter(|_| !ask.is_paid()) {
            if let Some(rate) = limit.rate {
                self.limits.state(held).pay(rate, start);
            }
        }
    }

    /// Lets an event wait for one of its limits, until this time if there is one, or does what the
    /// limit does to newcomers instead. It cancels what runs only for a place, as that makes no
    /// room in a rate.
    fn make_wait(
        &mut self,
        ask: &Ask,
        Full { held, has_room }: &Full,
        start: Option<Timestamp>,
        for_place: bool,
        worker: Option<&Name>,
    ) -> LimitedClaim {
        let (is_new, by) = (ask.is_new, by(held));
        let inherited = match ask.on_full(held) {
            OnFull::Drop if is_new => {
                if let Some(row) = self.events.get_mut(&ask.id) {
                    row.cancelled_by = Some(by);
                }
                return self.start(ask.id, Vec::new(), worker);
            }
            OnFull::Replace if is_new => self.cancel_waiting(held, &by),
            OnFull::Cancel if is_new && for_place && !self.cancel_holder(held, &by) => {
                self.cancel_waiting(held, &by)
            }
            OnFull::Wait | OnFull::Drop | OnFull::Replace | OnFull::Cancel => None,
        };
        if let Some(start) = start.filter(|_| inherited.is_none()) {
            self.lengthen_line(held, start);
        }
        // What was kept for it may be for others, whether it waits now for a place or for a time.
        let left = ask.wait.as_ref().and_then(|wait| self.left_to_others(wait));
        self.limits.to_wake.extend(left.into_iter().chain(has_room.then(|| held.clone())));
        self.put_off(ask, held, inherited.or(start), ask.is_paid())
    }

    /// Writes what an event waits for. In the same line it keeps its place.
    fn put_off(
        &mut self,
        ask: &Ask,
        held: &HeldLimit,
        start: Option<Timestamp>,
        is_paid: bool,
    ) -> LimitedClaim {
        let now = self.now;
        let Some(row) = self.events.get(&ask.id) else { return LimitedClaim::Not };
        let (due, since) = ask.wait.as_ref().map_or((row.delay_until, now), |wait| (wait.due, wait.since));
        let wait = Wait { held: held.clone(), due, since, woken_at: start, is_paid };
        self.limits.waits.insert(ask.id, wait);
        self.limits.put_off.insert(ask.id, start.unwrap_or(now));
        let notify_at = match start {
            Some(start) => self.wake_at(start, self.timing.grace),
            None => now + SAFETY_NET,
        };
        if let Some(row) = self.events.get_mut(&ask.id) {
            (row.notify_at, row.probes) = (Some(notify_at), 0);
            row.delay_until = start.unwrap_or(row.delay_until);
        }
        let Some(start) = start else { return LimitedClaim::Full(held.name.clone()) };
        LimitedClaim::Later((start - now).to_std().unwrap_or_default())
    }

    /// Cancels the event that has waited for longest, which the minute's pass then removes. Returns
    /// when it was to come back, if that is ahead.
    fn cancel_waiting(&mut self, held: &HeldLimit, by: &str) -> Option<Timestamp> {
        let later = self.limits.waits.iter().filter_map(|(id, wait)| {
            let at = wait.woken_at.filter(|at| *at > self.now && !wait.is_paid && wait.held == *held)?;
            Some((at, *id))
        });
        let meant: Vec<EventId> =
            self.line(held).into_iter().chain(later.collect::<BTreeSet<_>>()).map(|(_, id)| id).collect();
        let is_left = |id: &EventId| self.events.get(id).is_some_and(|row| row.cancelled_by.is_none());
        let oldest = meant.into_iter().find(is_left)?;
        self.events.get_mut(&oldest)?.cancelled_by = Some(by.to_owned());
        let wait = self.limits.waits.remove(&oldest)?;
        wait.woken_at.filter(|at| *at > self.now)
    }

    /// Cancels the event that has had its place for longest; returns whether there is one that was
    /// not cancelled before.
    fn cancel_holder(&mut self, held: &HeldLimit, by: &str) -> bool {
        let is_left = |id: &EventId| self.events.get(id).is_some_and(|row| row.cancelled_by.is_none());
        let oldest = self.live_holders(held).into_iter().find(is_left);
        let row = oldest.and_then(|oldest| self.events.get_mut(&oldest));
        let found = row.is_some();
        if let Some(row) = row {
            row.cancelled_by = Some(by.to_owned());
        }
        found
    }
}

/// Who cancels an event for the sake of a limit.
fn by(held: &HeldLimit) -> String {
    format!("limit:{}", held.name)
}
