//! The statements of limits: the claim that obeys them, and what wakes the events that wait.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use wakeq::limits::OnFull;
use wakeq::machine::{Claimed, Removal};
use wakeq::{EventId, Timestamp};

use super::{Defect, World};

/// How long a place is kept for an event that was woken for it.
const WAKE_KEPT: Duration = Duration::from_secs(10);
/// The promise of an event that waits for a place.
const SAFETY_NET: Duration = Duration::from_secs(3_600);

/// A limit, under the only name by which it is counted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Limit {
    pub(crate) concurrency: Option<usize>,
    pub(crate) rate: Option<Pace>,
    pub(crate) on_full: OnFull,
}

/// A rate: the time between two starts, and how many may come at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    pub(crate) interval: Duration,
    pub(crate) burst: u32,
}

/// The tables, and what the checks remember.
#[derive(Debug, Default)]
pub(crate) struct Limits {
    pub(crate) defined: BTreeMap<String, Limit>,
    /// The keys that each event names.
    pub(crate) named: BTreeMap<EventId, Vec<String>>,
    holders: BTreeMap<String, Vec<EventId>>,
    next_at: BTreeMap<String, Timestamp>,
    /// The start that was reserved for each event.
    given: BTreeMap<EventId, Timestamp>,
    /// Of each limit, the events that wait, by their due time, and when each was woken.
    waits: BTreeMap<String, BTreeMap<(Timestamp, EventId), Option<Timestamp>>>,
    /// The starts that each limit's rate has given, and an event has used.
    pub(crate) starts: BTreeMap<String, Vec<Timestamp>>,
    /// How many events may have a place at most: more than the concurrency while that was lowered
    /// and not enough of them have ended.
    pub(crate) ceilings: BTreeMap<String, usize>,
}

/// What the claim of an event with limits returns.
#[derive(Debug)]
pub(crate) enum LimitedClaim {
    Not,
    Full,
    Later(Duration),
    /// The claim, and the limits of which the event has a place.
    Claimed(Claimed, Vec<String>),
}

impl World {
    /// The limits of an event, in the order in which they are taken.
    pub(crate) fn limits_of(&self, id: EventId) -> Vec<String> {
        let handler = format!("handler:{}", self.handler_of(id));
        let keys = self.limits.named.get(&id).into_iter().flatten().cloned();
        let names: BTreeSet<String> = keys.chain([handler]).collect();
        names.into_iter().filter(|name| self.limits.defined.contains_key(name)).collect()
    }

    pub(crate) fn claim_limited(&mut self, id: EventId) -> LimitedClaim {
        if !self.may_claim(id) {
            return LimitedClaim::Not;
        }
        let names = if self.rows[&id].is_cancelled { Vec::new() } else { self.limits_of(id) };
        if let Some(wait) = self.reserve(id, &names) {
            self.stop_waiting(id);
            return LimitedClaim::Later(wait);
        }
        let mut places: Vec<String> = names.clone();
        places.retain(|name| self.limits.defined[name].concurrency.is_some());
        if let Some(full) = places.iter().find(|name| !self.may_take(id, name)).cloned() {
            if self.limits.defined[&full].on_full != OnFull::Drop {
                self.wait_for_place(id, &full);
                return LimitedClaim::Full;
            }
            self.rows.get_mut(&id).unwrap().is_cancelled = true;
            self.record(id).is_cancelled = true;
            places.clear();
        }
        self.stop_waiting(id);
        if !self.rows[&id].is_cancelled {
            self.note_starts(id, &names);
        }
        let Some(claimed) = self.claim(id) else { return LimitedClaim::Not };
        for name in &places {
            let live = self.live_holders(name);
            let holders = self.limits.holders.entry(name.clone()).or_default();
            *holders = live.into_iter().filter(|holder| *holder != id).collect();
            holders.push(id);
        }
        LimitedClaim::Claimed(claimed, places)
    }

    /// Reserves the event's start, unless it has one; returns how far ahead it lies.
    fn reserve(&mut self, id: EventId, names: &[String]) -> Option<Duration> {
        let now = self.now;
        let (last, due) = (now + self.timing.horizon, self.rows[&id].delay_until);
        if self.rows[&id].starts_at == Some(due) {
            return None;
        }
        let pace = |name: &String| Some((name.clone(), self.limits.defined[name].rate?));
        let paces: Vec<(String, Pace)> = names.iter().filter_map(pace).collect();
        let earliest = |(name, pace): &(String, Pace)| {
            let ahead = pace.interval * (pace.burst - 1);
            self.limits.next_at.get(name).map_or(now, |next_at| (*next_at - ahead).max(now))
        };
        let start = paces.iter().map(earliest).max()?;
        let is_reserved = start <= last;
        let start = start.min(last);
        for (name, pace) in paces.iter().filter(|_| is_reserved) {
            let next_at = self.limits.next_at.entry(name.clone()).or_insert(start);
            *next_at = start.max(*next_at) + pace.interval;
            if self.defect == Some(Defect::RateWithoutReserving) {
                *next_at = now;
            }
        }
        let notify_at = self.wake_at(start, self.timing.grace);
        let row = self.rows.get_mut(&id).unwrap();
        if start > now {
            (row.delay_until, row.notify_at, row.probes) = (start, Some(notify_at), 0);
        }
        row.starts_at = is_reserved.then_some(row.delay_until);
        if is_reserved {
            self.limits.given.insert(id, start);
        }
        (start > now).then(|| (start - now).to_std().unwrap())
    }

    /// Each start uses up what was reserved for it.
    fn note_starts(&mut self, id: EventId, names: &[String]) {
        let given = self.limits.given.remove(&id);
        for name in names {
            if self.limits.defined[name].rate.is_none() {
                continue;
            }
            match given {
                Some(start) => self.limits.starts.entry(name.clone()).or_default().push(start),
                None => self.violated(format!("a start was not reserved with the rate of {name}")),
            }
        }
    }

    fn live_holders(&self, name: &str) -> Vec<EventId> {
        let lives = |id: &&EventId| {
            let row = self.rows.get(id);
            row.is_some_and(|row| !self.is_free(row)) || self.defect == Some(Defect::DeadHoldersCount)
        };
        self.limits.holders.get(name).into_iter().flatten().filter(lives).copied().collect()
    }

    fn is_woken(&self, woken_at: Option<Timestamp>) -> bool {
        woken_at.is_some_and(|woken_at| woken_at > self.now - WAKE_KEPT)
    }

    /// Whether other things wake an event that has a wait: it is parked, or waits for its time.
    fn still_waits(&self, id: EventId) -> bool {
        let row = self.rows.get(&id);
        row.is_some_and(|row| row.notify_at.is_some() && row.delay_until <= self.now)
    }

    /// Nobody overtakes what was woken, or waits before it.
    fn may_take(&self, id: EventId, name: &str) -> bool {
        let places = self.limits.defined[name].concurrency.unwrap_or(usize::MAX);
        let live = self.live_holders(name).iter().filter(|holder| **holder != id).count();
        if self.defect == Some(Defect::ClaimPastLimit) {
            return live <= places;
        }
        let waits = || self.limits.waits.get(name).into_iter().flatten();
        let own = waits().find(|((_, waiting), _)| *waiting == id);
        if own.is_some_and(|(_, woken)| self.is_woken(*woken)) {
            return live < places;
        }
        let own = own.map(|(place, _)| *place);
        let others = || waits().filter(|((_, other), _)| *other != id && self.still_waits(*other));
        let woken = others().filter(|(_, woken)| self.is_woken(**woken)).count();
        let mut unwoken = others().filter(|(_, woken)| !self.is_woken(**woken));
        live + woken < places && !unwoken.any(|(place, _)| own.is_none_or(|own| *place < own))
    }

    /// The event waits for a place. If it does so for the first time, it may send away another one.
    fn wait_for_place(&mut self, id: EventId, name: &str) {
        let due = self.rows[&id].delay_until;
        let waits = self.limits.waits.get(name).cloned().unwrap_or_default();
        let is_new = !waits.keys().any(|(_, waiting)| *waiting == id);
        match self.limits.defined[name].on_full {
            OnFull::Replace if is_new => {
                let oldest = waits.iter().find(|(_, woken)| !self.is_woken(**woken));
                if let Some(((_, oldest), _)) = oldest {
                    self.send_away(*oldest);
                }
            }
            OnFull::Cancel if is_new => {
                let live = self.live_holders(name);
                let is_left = |id: &EventId| self.rows.get(id).is_some_and(|row| !row.is_cancelled);
                if let Some(oldest) = live.into_iter().find(is_left) {
                    self.cancel_running(oldest);
                }
            }
            OnFull::Wait | OnFull::Drop | OnFull::Replace | OnFull::Cancel => {}
        }
        self.stop_waiting(id);
        self.limits.waits.entry(name.to_owned()).or_default().insert((due, id), None);
        let promise = self.now + SAFETY_NET;
        let row = self.rows.get_mut(&id).unwrap();
        (row.notify_at, row.probes) = (Some(promise), 0);
    }

    /// Cancels an event that waits for a place, as an operator does.
    fn send_away(&mut self, id: EventId) {
        if !self.still_waits(id) || self.rows.get(&id).is_none_or(|row| !self.is_free(row)) {
            return;
        }
        self.log(|world| format!("{} is replaced", world.records[&id].label));
        self.rows.remove(&id);
        let record = self.record(id);
        (record.is_cancelled, record.removed) = (true, Some(Removal::Cancelled));
        self.arm_next(id);
        self.hand_over(id);
    }

    fn stop_waiting(&mut self, id: EventId) {
        for waits in self.limits.waits.values_mut() {
            waits.retain(|(_, waiting), _| *waiting != id);
        }
    }

    /// The limit for a place of which the event waits.
    pub(crate) fn waits_under(&self, id: EventId) -> Option<String> {
        let waits =
            |waits: &BTreeMap<(Timestamp, EventId), _>| waits.keys().any(|(_, waiting)| *waiting == id);
        self.limits.waits.iter().find(|(_, found)| waits(found)).map(|(name, _)| name.clone())
    }

    /// Wakes those that have room now; returns what to publish.
    pub(crate) fn wake_waiting(&mut self, names: &[String]) -> Vec<EventId> {
        if self.defect == Some(Defect::EndWithoutWaking) {
            return Vec::new();
        }
        names.iter().flat_map(|name| self.wake_under(name)).collect()
    }

    fn wake_under(&mut self, name: &str) -> Vec<EventId> {
        let live = self.live_holders(name);
        if let Some(holders) = self.limits.holders.get_mut(name) {
            holders.clone_from(&live);
        }
        let Some(mut waits) = self.limits.waits.remove(name) else { return Vec::new() };
        waits.retain(|(_, id), _| self.still_waits(*id));
        let room = self.room(name, live.len(), &waits);
        let (now, notify_at) = (self.now, self.wake_at(self.now, self.timing.grace));
        let mut woken = Vec::new();
        for ((_, id), woken_at) in &mut waits {
            if woken.len() < room && !self.is_woken(*woken_at) {
                *woken_at = Some(now);
                woken.push(*id);
            }
        }
        for id in &woken {
            let row = self.rows.get_mut(id).unwrap();
            (row.notify_at, row.probes) = (Some(notify_at), 0);
        }
        if self.limits.defined.get(name).is_some_and(|limit| limit.concurrency.is_some()) {
            self.limits.waits.insert(name.to_owned(), waits);
        }
        woken
    }

    fn room(
        &self,
        name: &str,
        live: usize,
        waits: &BTreeMap<(Timestamp, EventId), Option<Timestamp>>,
    ) -> usize {
        let Some(places) = self.limits.defined.get(name).and_then(|limit| limit.concurrency) else {
            return usize::MAX;
        };
        let woken = waits.iter().filter(|((_, id), woken)| self.is_woken(**woken) && self.still_waits(*id));
        places.saturating_sub(live + woken.count())
    }

    /// Part of the minute's pass.
    pub(crate) fn limits_with_room(&self) -> Vec<String> {
        let has_room = |(name, waits): &(&String, &BTreeMap<_, _>)| {
            self.room(name, self.live_holders(name).len(), waits) > 0 && !waits.is_empty()
        };
        self.limits.waits.iter().filter(has_room).map(|(name, _)| name.clone()).collect()
    }

    /// An event that waited for a place ended its run without a claim: what it was woken for is for
    /// others. Returns what to publish.
    pub(crate) fn give_way(&mut self, id: EventId, name: &str) -> Vec<EventId> {
        if self.defect == Some(Defect::KeepsItsWake) {
            return Vec::new();
        }
        let may_start = self.may_claim(id);
        if let Some(waits) = self.limits.waits.get_mut(name).filter(|_| !may_start) {
            waits.retain(|(_, waiting), _| *waiting != id);
        }
        self.wake_waiting(&[name.to_owned()])
    }

    /// An operator sets a limit, or removes it, and what has room is woken.
    pub(crate) fn put_limit(&mut self, name: &str, limit: Option<Limit>) {
        match limit {
            Some(limit) => drop(self.limits.defined.insert(name.to_owned(), limit)),
            None => drop(self.limits.defined.remove(name)),
        }
        let places = limit.and_then(|limit| limit.concurrency).unwrap_or(usize::MAX);
        let ceiling = self.limits.ceilings.entry(name.to_owned()).or_insert(places);
        *ceiling = places.max(*ceiling);
        self.log(|_| format!("{name} is limited to {limit:?}"));
        let woken = self.wake_waiting(&[name.to_owned()]);
        self.publish(&woken);
    }

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
        let mut found = Vec::new();
        for (name, starts) in &self.limits.starts {
            let Some(Pace { interval, burst }) = self.limits.defined.get(name).and_then(|limit| limit.rate)
            else {
                continue;
            };
            let mut starts = starts.clone();
            starts.sort();
            let is_too_fast = (0..starts.len()).any(|from| {
                (from..starts.len()).any(|to| {
                    let beyond = (to - from + 1).saturating_sub(burst as usize) as u32;
                    (starts[to] - starts[from]).to_std().unwrap() < interval * beyond
                })
            });
            if is_too_fast {
                found.push(format!("events of {name} started too fast: {starts:?}"));
            }
        }
        found.into_iter().for_each(|what| self.violated(what));
    }

    /// Invariant while nothing goes wrong: whatever waits for a place, and would get it, was woken
    /// and has started.
    pub(crate) fn check_standstill(&mut self) {
        let may_start = |id: &EventId| {
            self.may_claim(*id)
                && self.still_waits(*id)
                && self.limits_of(*id).iter().all(|name| {
                    let places = self.limits.defined[name].concurrency.unwrap_or(usize::MAX);
                    self.live_holders(name).len() < places
                })
        };
        let mut waiting: Vec<EventId> =
            self.limits.waits.values().flat_map(BTreeMap::keys).map(|(_, id)| *id).collect();
        waiting.retain(|id| self.rows.contains_key(id) && may_start(id));
        for id in waiting {
            self.violated(format!("{} could start, and nobody wakes it", self.records[&id].label));
        }
    }
}
