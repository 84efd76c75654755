//! The statements of limits: the claim that obeys them, and what wakes the events that wait.

mod checks;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use wakeq::limits::OnFull;
use wakeq::machine::Claimed;
use wakeq::{EventId, Timestamp};

use super::dice::Dice;
use super::{Defect, World};

/// How long a place is kept for an event that was woken for it.
const WAKE_KEPT: Duration = Duration::from_secs(10);
/// After how long an event that was woken and has not come waits again.
const WAKE_LOST: Duration = Duration::from_secs(300);
/// How far ahead events beyond a rate get a time to come back.
const LINE_MAX: Duration = Duration::from_secs(120);
/// By how much an event that was told to come may be too early for its rate.
const EARLY_MAX: Duration = Duration::from_millis(500);
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    /// Up to when events have been given times to come back.
    line_at: BTreeMap<String, Timestamp>,
    /// The rates by which both were set; with others they begin anew.
    rates: BTreeMap<String, Pace>,
    waits: BTreeMap<EventId, Wait>,
    /// Those that wait or have waited, and have not started since.
    put_off: BTreeSet<EventId>,
    /// Throws whether somebody's transaction has the row of an event that could be woken.
    pub(crate) locks: Option<Dice>,
    /// When events with rates were to start, by the limit, since its rate is in force.
    pub(crate) starts: BTreeMap<String, Vec<Timestamp>>,
    /// How many events may have a place at most: more than the concurrency while that was lowered
    /// and not enough of them have ended.
    pub(crate) ceilings: BTreeMap<String, usize>,
}

/// What an event waits for.
#[derive(Clone, Debug)]
struct Wait {
    name: String,
    due: Timestamp,
    /// When it was told to come back, which may be ahead.
    woken_at: Option<Timestamp>,
    /// Its start was taken from the rates.
    is_paid: bool,
}

/// What the claim of an event with limits returns.
#[derive(Debug)]
pub(crate) enum LimitedClaim {
    Not,
    Full,
    Later(Duration),
    /// The claim, and the limits of which the event may have a place.
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

    /// Also returns the limits that have room for others now.
    pub(crate) fn claim_limited(&mut self, id: EventId) -> (LimitedClaim, Vec<String>) {
        if !self.may_claim(id) {
            return (LimitedClaim::Not, Vec::new());
        }
        let names = if self.rows[&id].is_cancelled { Vec::new() } else { self.limits_of(id) };
        let mut room = names.clone();
        room.retain(|name| self.heed_rate(name));
        let wait = self.limits.waits.get(&id).cloned();
        if let Some(Wait { name, woken_at: Some(at), is_paid, .. }) = &wait {
            if *at > self.now {
                return (self.put_off(id, name, Some(*at), *is_paid), room);
            }
            // It has come: what was kept for it is for others, unless it takes that itself.
            if self.defect != Some(Defect::KeepsItsWake) {
                room.push(name.clone());
            }
        }
        if let Some((full, has_room)) = self.find_place(id, &names) {
            room.extend(has_room.then(|| full.clone()));
            return (self.make_wait(id, &full, None, true), room);
        }
        if let Some((start, name)) = self.find_start(id, &names).filter(|(start, _)| *start > self.now) {
            let pace = self.limits.defined[&name].rate.unwrap().interval;
            let is_woken = wait.is_some_and(|wait| wait.woken_at.is_some());
            if is_woken && start <= self.now + EARLY_MAX {
                self.pay(id, &names, start);
                return (self.put_off(id, &name, Some(start), true), room);
            }
            let start = self.line_end(&name).map_or(start, |line_end| start.max(line_end));
            let start = Some(start).filter(|start| *start <= self.now + LINE_MAX.min(pace * 10_000));
            return (self.make_wait(id, &name, start, false), room);
        }
        self.pay(id, &names, self.now);
        for name in names.iter().filter(|name| self.limits.defined[*name].concurrency.is_some()) {
            let live = self.live_holders(name);
            let holders = self.limits.holders.entry(name.clone()).or_default();
            *holders = live.into_iter().filter(|holder| *holder != id).collect();
            holders.push(id);
        }
        (self.start(id, names), room)
    }

    fn start(&mut self, id: EventId, names: Vec<String>) -> LimitedClaim {
        self.limits.waits.remove(&id);
        self.limits.put_off.remove(&id);
        self.claim(id).map_or(LimitedClaim::Not, |claimed| LimitedClaim::Claimed(claimed, names))
    }

    /// The first limit in which an event finds no place, and whether that has room for others.
    fn find_place(&self, id: EventId, names: &[String]) -> Option<(String, bool)> {
        let is_woken = self.limits.waits.get(&id).is_some_and(|wait| wait.woken_at.is_some());
        names.iter().find_map(|name| {
            let places = self.limits.defined[name].concurrency?;
            let live = self.live_holders(name).iter().filter(|holder| **holder != id).count();
            if self.defect == Some(Defect::ClaimPastLimit) {
                return (live > places).then(|| (name.clone(), false));
            }
            let is_full = live >= places || !is_woken && live + self.woken(name) >= places;
            let is_behind = !is_woken && self.is_behind(id, name);
            (is_full || is_behind).then(|| (name.clone(), !is_full))
        })
    }

    /// When all rates of an event let it start, and the one that does so last.
    fn find_start(&self, id: EventId, names: &[String]) -> Option<(Timestamp, String)> {
        let wait = self.limits.waits.get(&id);
        if wait.is_some_and(|wait| wait.is_paid) {
            return None;
        }
        let is_woken = wait.is_some_and(|wait| wait.woken_at.is_some());
        let starts = names.iter().filter_map(|name| {
            let free_at = self.free_at(name, self.limits.defined[name].rate?);
            let start = match is_woken {
                true => free_at,
                false if self.is_behind(id, name) => Timestamp::MAX_UTC,
                false => self.line_end(name).map_or(free_at, |line_end| free_at.max(line_end)),
            };
            Some((start, name.clone()))
        });
        starts.max()
    }

    /// When the rate lets the next event start, which may be long ago.
    fn free_at(&self, name: &str, pace: Pace) -> Timestamp {
        let next_at = self.limits.next_at.get(name);
        next_at.map_or(self.now, |next_at| *next_at - pace.interval * (pace.burst - 1))
    }

    /// Up to when events have been given times to come back. Those that are gone or have not come
    /// in time give up theirs.
    fn line_end(&self, name: &str) -> Option<Timestamp> {
        let line_at = *self.limits.line_at.get(name)?;
        let Pace { interval, .. } = self.limits.defined.get(name)?.rate?;
        let waits = self.limits.waits.values().filter(|wait| wait.name == name);
        let told = waits.filter_map(|wait| wait.woken_at).filter(|at| *at > self.now - WAKE_KEPT);
        told.max().map(|last| line_at.min(last + interval))
    }

    /// With another rate than before, the rate begins anew: at once, but without a burst. Then
    /// those that were told to come later wait again; returns whether there were any.
    fn heed_rate(&mut self, name: &str) -> bool {
        let (now, rate) = (self.now, self.limits.defined.get(name).and_then(|limit| limit.rate));
        let before = self.limits.rates.get(name).copied();
        if before == rate {
            return false;
        }
        if let Some(before) = before {
            self.check_starts(name, before);
        }
        self.limits.starts.remove(name);
        self.limits.line_at.remove(name);
        self.limits.next_at.remove(name);
        self.limits.rates.remove(name);
        if let Some(rate) = rate {
            self.limits.rates.insert(name.to_owned(), rate);
            if before.is_some() {
                let next_at = now + rate.interval * (rate.burst - 1);
                self.limits.next_at.insert(name.to_owned(), next_at);
            }
        }
        let waits = self.limits.waits.values_mut().filter(|wait| wait.name == name && !wait.is_paid);
        let mut told = waits.filter(|wait| wait.woken_at.is_some_and(|at| at > now)).peekable();
        let are_told = told.peek().is_some();
        told.for_each(|wait| wait.woken_at = None);
        are_told
    }

    /// Takes a start at this time from all rates of an event, unless that was done before.
    fn pay(&mut self, id: EventId, names: &[String], start: Timestamp) {
        if self.limits.waits.get(&id).is_some_and(|wait| wait.is_paid) {
            return;
        }
        for name in names {
            let Some(pace) = self.limits.defined[name].rate else { continue };
            self.limits.starts.entry(name.clone()).or_default().push(start);
            if self.defect != Some(Defect::StartWithoutPaying) {
                let next_at = self.limits.next_at.entry(name.clone()).or_insert(start);
                *next_at = start.max(*next_at) + pace.interval;
            }
        }
    }

    /// Those of a limit that have a place.
    fn live_holders(&self, name: &str) -> Vec<EventId> {
        let lives = |id: &&EventId| {
            let row = self.rows.get(id);
            row.is_some_and(|row| !self.is_free(row)) || self.defect == Some(Defect::DeadHoldersCount)
        };
        self.limits.holders.get(name).into_iter().flatten().filter(lives).copied().collect()
    }

    /// How many have a place that is kept for them.
    fn woken(&self, name: &str) -> usize {
        let kept =
            |wait: &&Wait| wait.name == name && wait.woken_at.is_some_and(|at| at > self.now - WAKE_KEPT);
        self.limits.waits.values().filter(kept).count()
    }

    /// How many were told to come, and have not in time.
    fn late(&self, name: &str) -> usize {
        let waits = self.limits.waits.values().filter(|wait| wait.name == name);
        waits.filter(|wait| wait.woken_at.is_some_and(|at| at <= self.now - WAKE_KEPT)).count()
    }

    /// Those that wait without having been told to come.
    fn line(&self, name: &str) -> BTreeSet<(Timestamp, EventId)> {
        let waits = self.limits.waits.iter().filter(|(_, wait)| wait.name == name && wait.woken_at.is_none());
        waits.map(|(id, wait)| (wait.due, *id)).collect()
    }

    /// Whether an event waits that was due before this one.
    fn is_behind(&self, id: EventId, name: &str) -> bool {
        let due = self.limits.waits.get(&id).map_or(self.rows[&id].delay_until, |wait| wait.due);
        self.line(name).first().is_some_and(|first| *first < (due, id))
    }

    /// The event waits, until a time if there is one. If it is new, it may send away another one,
    /// and one that runs only for its place.
    fn make_wait(
        &mut self,
        id: EventId,
        name: &str,
        start: Option<Timestamp>,
        for_place: bool,
    ) -> LimitedClaim {
        let is_new = !self.limits.put_off.contains(&id) && self.rows[&id].claims == 0;
        match self.limits.defined[name].on_full {
            OnFull::Drop if is_new => {
                self.mark_cancelled(id);
                return self.start(id, Vec::new());
            }
            OnFull::Replace if is_new => self.send_away(name),
            OnFull::Cancel if is_new && for_place => {
                let is_left = |id: &EventId| self.rows.get(id).is_some_and(|row| !row.is_cancelled);
                match self.live_holders(name).into_iter().find(is_left) {
                    Some(oldest) => drop(self.cancel_running(oldest)),
                    None => self.send_away(name),
                }
            }
            OnFull::Wait | OnFull::Drop | OnFull::Replace | OnFull::Cancel => {}
        }
        if let Some(start) = start {
            self.lengthen_line(name, start);
        }
        let is_paid = self.limits.waits.get(&id).is_some_and(|wait| wait.is_paid);
        self.put_off(id, name, start, is_paid)
    }

    fn put_off(&mut self, id: EventId, name: &str, start: Option<Timestamp>, is_paid: bool) -> LimitedClaim {
        let now = self.now;
        let notify_at = start.map_or(now + SAFETY_NET, |start| self.wake_at(start, self.timing.grace));
        let due = self.limits.waits.get(&id).map_or(self.rows[&id].delay_until, |wait| wait.due);
        let wait = Wait { name: name.to_owned(), due, woken_at: start, is_paid };
        self.limits.waits.insert(id, wait);
        self.limits.put_off.insert(id);
        let row = self.rows.get_mut(&id).unwrap();
        (row.notify_at, row.probes) = (Some(notify_at), 0);
        row.delay_until = start.unwrap_or(row.delay_until);
        start.filter(|_| self.defect != Some(Defect::ForgetsItsTime)).map_or(LimitedClaim::Full, |start| {
            LimitedClaim::Later((start - now).to_std().unwrap_or_default())
        })
    }

    /// An event that was woken for a place gives it up; returns the limit that may have room then.
    /// One that has paid for its start keeps it.
    pub(super) fn step_aside(&mut self, id: EventId) -> Option<String> {
        let wait = self.limits.waits.get(&id)?;
        let is_woken = !wait.is_paid && wait.woken_at.is_some_and(|at| at <= self.now);
        if !is_woken || self.defect == Some(Defect::NeverStepsAside) {
            return None;
        }
        self.limits.waits.remove(&id).map(|wait| wait.name)
    }

    /// The waits of events that are removed; returns the limits at which places were kept for them.
    pub(super) fn leave_waits(&mut self, gone: &[EventId]) -> Vec<String> {
        let waits = gone.iter().filter_map(|id| self.limits.waits.remove(id));
        waits.filter(|wait| wait.woken_at.is_some()).map(|wait| wait.name).collect()
    }

    fn lengthen_line(&mut self, name: &str, start: Timestamp) {
        if let Some(pace) = self.limits.defined.get(name).and_then(|limit| limit.rate) {
            self.limits.line_at.insert(name.to_owned(), start + pace.interval);
        }
    }

    fn mark_cancelled(&mut self, id: EventId) {
        self.rows.get_mut(&id).unwrap().is_cancelled = true;
        self.record(id).is_cancelled = true;
    }

    /// Cancels the event that has waited for longest, which the minute's pass then removes. No
    /// limit here that does so has a rate, so none has been given a time.
    fn send_away(&mut self, name: &str) {
        let is_left = |id: &EventId| self.rows.get(id).is_some_and(|row| !row.is_cancelled);
        let oldest = self.line(name).into_iter().map(|(_, id)| id).find(is_left);
        if let Some(oldest) = oldest {
            self.log(|world| format!("{} is replaced", world.records[&oldest].label));
            self.mark_cancelled(oldest);
            self.limits.waits.remove(&oldest);
        }
    }

    /// Wakes those that have room now; returns what to publish.
    pub(crate) fn wake_waiting(&mut self, names: &[String]) -> Vec<EventId> {
        if self.defect == Some(Defect::EndWithoutWaking) {
            return Vec::new();
        }
        let names: BTreeSet<&String> = names.iter().collect();
        names.into_iter().flat_map(|name| self.wake_under(name)).collect()
    }

    fn wake_under(&mut self, name: &str) -> Vec<EventId> {
        let live = self.live_holders(name);
        if let Some(holders) = self.limits.holders.get_mut(name) {
            *holders = live;
        }
        self.heed_rate(name);
        self.begin_line(name);
        let (mut room, mut locked, mut woken) = (self.room(name), 0, Vec::new());
        if room > 0 {
            // Perhaps nobody runs the handlers of those that have not come.
            room = room.saturating_add(self.late(name));
        }
        for (_, id) in self.line(name) {
            let Some(start) = self.next_time(name).filter(|_| room > 0) else { break };
            if locked < room && self.limits.locks.as_mut().is_some_and(|dice| dice.below(8) == 0) {
                // It is told as it is, and the next one as well.
                locked += 1;
                woken.push(id);
                continue;
            }
            let outcome = self.wake_one(id, start, !self.limits.defined.contains_key(name));
            if outcome == Some(true) {
                room -= 1;
                self.lengthen_line(name, start);
            }
            woken.extend(outcome.map(|_| id));
        }
        woken
    }

    /// Whether an event was woken, and not only freed because nothing limits it or a rule holds it.
    /// `None` if it is gone, parked, or runs.
    fn wake_one(&mut self, id: EventId, start: Timestamp, is_removed: bool) -> Option<bool> {
        let Some(row) = self.rows.get(&id).filter(|row| row.notify_at.is_some() && self.is_free(row)) else {
            self.limits.waits.remove(&id);
            return None;
        };
        let is_freed = is_removed || self.rule_on(self.handler_of(id)).is_some();
        let due = if !is_freed && start > self.now { start } else { row.delay_until.min(self.now) };
        let notify_at = self.wake_at(due, self.timing.grace);
        let row = self.rows.get_mut(&id)?;
        (row.delay_until, row.notify_at, row.probes) = (due, Some(notify_at), 0);
        if is_freed {
            self.limits.waits.remove(&id);
        } else {
            self.limits.waits.get_mut(&id)?.woken_at = Some(start);
        }
        Some(!is_freed)
    }

    /// Puts those back into the line that were told to come and have not for long.
    fn begin_line(&mut self, name: &str) {
        let now = self.now;
        for wait in self.limits.waits.values_mut().filter(|wait| wait.name == name) {
            if wait.woken_at.is_some_and(|at| at < now - WAKE_LOST) {
                (wait.woken_at, wait.due) = (None, now);
            }
        }
    }

    /// When the next event may come; `None` if that lies too far ahead.
    fn next_time(&self, name: &str) -> Option<Timestamp> {
        let Some(pace) = self.limits.defined.get(name).and_then(|limit| limit.rate) else {
            return Some(self.now);
        };
        let start = self.free_at(name, pace).max(self.now);
        let start = self.line_end(name).map_or(start, |line_end| start.max(line_end));
        (start <= self.now + LINE_MAX.min(pace.interval * 10_000)).then_some(start)
    }

    fn room(&self, name: &str) -> usize {
        let places = self.limits.defined.get(name).and_then(|limit| limit.concurrency);
        let taken = || self.live_holders(name).len() + self.woken(name);
        places.map_or(usize::MAX, |places| places.saturating_sub(taken()))
    }

    /// Part of the minute's pass.
    pub(crate) fn limits_with_room(&self) -> Vec<String> {
        let waited: BTreeSet<&String> = self.limits.waits.values().map(|wait| &wait.name).collect();
        waited.into_iter().filter(|name| self.has_room(name)).cloned().collect()
    }

    /// Whether events wait that seem to have room, or were told to come later by another rate than
    /// the one that is in force.
    fn has_room(&self, name: &str) -> bool {
        let Limit { concurrency, rate, .. } = self.limits.defined.get(name).copied().unwrap_or_default();
        let is_anew = self.limits.rates.get(name).copied() != rate;
        let told = || {
            let waits = self.limits.waits.values().filter(|wait| wait.name == name && !wait.is_paid);
            waits.filter(|wait| wait.woken_at.is_some_and(|at| at > self.now)).count()
        };
        if self.line(name).is_empty() {
            return is_anew && told() > 0;
        }
        let kept = self.woken(name) - if is_anew { told() } else { 0 };
        let taken = self.live_holders(name).len() + kept;
        concurrency.is_none_or(|places| places > taken) && (is_anew || self.next_time(name).is_some())
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
        let found = self.limits_with_room().into_iter().filter(|found| found == name);
        let woken = self.wake_waiting(&found.collect::<Vec<_>>());
        self.publish(&woken);
    }
}
