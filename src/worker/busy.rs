//! Targets that said that they have no capacity: how fast this worker sends to each of them until
//! it accepts again, and how soon a canvas's refused events may come back.
//!
//! Nothing is kept of a target that never said so. Must never run anything or hold anything up: it
//! only says how long an event waits.

#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

use crate::event::{CanvasId, EventId, HandlerAddress};
use crate::machine::HandlerEnd;
use crate::telemetry::TargetMetrics;

/// Events per second that a target gets after it refused for the first time.
const RATE_FIRST: f64 = 10.0;
/// The part of the rate that is left after a further refusal.
const RATE_KEPT: f64 = 0.7;
const RATE_MIN: f64 = 0.1;
/// A target that accepts this many per second is no longer slowed down.
const RATE_MAX: f64 = 500.0;
/// The shortest and the longest time for which a refusal holds everything for its target.
const HOLD: std::ops::RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(3600);
/// An event takes a slot that is at most this far ahead; otherwise it asks again after this long,
/// as the rate may have risen by then.
const AHEAD: Duration = Duration::from_secs(30);
/// How long a slot stays its event's.
const SLOT_FOR: Duration = Duration::from_secs(60);
/// A target is forgotten this long after its last refusal.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(600);
/// Maximum number of targets, and of canvases, that are slowed down.
const KEPT_MAX: usize = 10_000;
/// Maximum number of targets of one canvas that are slowed down.
const KEPT_OF_CANVAS: usize = 1_000;
/// How many events of a canvas may come back within a second to be refused again.
const RETURNS: f64 = 50.0;
/// Below this, a canvas's refused events are few, and wait only as long as they were told.
const SPARED: Duration = Duration::from_secs(1);
/// The longest wait for the sake of that rate.
const RETURN_WITHIN: Duration = Duration::from_secs(60);

/// An address and the revision of its target: a target that was registered again starts anew.
pub(super) type TargetKey = (HandlerAddress, Uuid);

/// The targets that have no capacity now, and the canvases whose events were refused.
#[derive(Debug, Default)]
pub(super) struct BusyTargets {
    /// Whether there is any target, so that a worker without one takes no lock.
    any: AtomicBool,
    targets: Mutex<HashMap<TargetKey, Rate>>,
    /// When the last of a canvas's refused events comes back, at the rate.
    returns: Mutex<HashMap<CanvasId, Instant>>,
    metrics: TargetMetrics,
}

/// How an event of a target ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct EndedRun {
    pub(super) id: EventId,
    /// The event's own canvas.
    pub(super) canvas: CanvasId,
    pub(super) end: HandlerEnd,
    /// Whether its target has no capacity now.
    pub(super) busy: bool,
}

/// How fast a target that has no capacity gets events.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LearntRate {
    pub(super) target: TargetKey,
    pub(super) per_second: f64,
    /// For how long it gets none.
    pub(super) held: Duration,
}

/// How fast one target gets events.
#[derive(Debug)]
struct Rate {
    per_second: f64,
    /// Nothing is sent before this moment.
    held_until: Instant,
    /// The next slot that is free.
    next: Instant,
    /// The slots of the events that wait for them.
    slots: HashMap<EventId, Instant>,
    refused_at: Instant,
}

impl BusyTargets {
    /// Whether there is any such target.
    pub(super) fn is_any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    /// The rates of up to `most` of them: one of each canvas before a second one of any, and of a
    /// canvas those that refused last.
    pub(super) fn rates(&self, most: usize, now: Instant) -> Vec<LearntRate> {
        if !self.is_any() {
            return Vec::new();
        }
        let targets = lock(&self.targets);
        let mut all: Vec<_> = targets.iter().filter(|(_, rate)| !rate.is_over(now)).collect();
        all.sort_by_key(|(_, rate)| Reverse(rate.refused_at));
        let mut of_canvas: HashMap<CanvasId, usize> = HashMap::new();
        all.sort_by_cached_key(|((address, _), _)| {
            let place = of_canvas.entry(address.scope.canvas).or_default();
            *place += 1;
            *place
        });
        let learnt = |(target, rate): (&TargetKey, &Rate)| LearntRate {
            target: target.clone(),
            per_second: rate.per_second,
            held: rate.held_until.saturating_duration_since(now),
        };
        all.into_iter().take(most).map(learnt).collect()
    }

    /// How long an event has to wait before it may be sent to its target; `None` if it may be sent
    /// now.
    pub(super) fn wait(&self, target: &TargetKey, id: EventId, now: Instant) -> Option<Duration> {
        let mut targets = lock(&self.targets);
        let rate = targets.get_mut(target)?;
        if rate.is_over(now) {
            targets.remove(target);
            return None;
        }
        let wait = rate.wait(id, now)?;
        drop(targets);
        self.metrics.held(&target.0.scope);
        Some(wait)
    }

    /// Takes note of how an event of a target ended, and returns the end with the wait that this
    /// means for the event.
    pub(super) fn after(&self, target: &TargetKey, run: EndedRun, now: Instant) -> HandlerEnd {
        let EndedRun { id, canvas, end, busy } = run;
        match end {
            HandlerEnd::NotYet(asked) => {
                let slot = self.note(target, id, busy.then_some(asked), now);
                HandlerEnd::NotYet(self.returning(canvas, asked, now).max(slot))
            }
            HandlerEnd::Failed(asked) => {
                let refused = busy.then(|| asked.unwrap_or_default());
                let slot = if busy { self.note(target, id, refused, now) } else { Duration::ZERO };
                let wait = self.returning(canvas, asked.unwrap_or_default(), now).max(slot);
                HandlerEnd::Failed(if wait.is_zero() { asked } else { Some(wait) })
            }
            HandlerEnd::Completed | HandlerEnd::Committed | HandlerEnd::Rejected | HandlerEnd::Gone => {
                self.note(target, id, None, now);
                end
            }
            HandlerEnd::LeaseLost | HandlerEnd::ShutDown | HandlerEnd::Cancelled => end,
        }
    }

    /// A target refused an event and asked for a wait, or else it accepted it. Returns how long a
    /// refused event waits for its next slot.
    fn note(&self, target: &TargetKey, id: EventId, refused: Option<Duration>, now: Instant) -> Duration {
        if refused.is_none() && !self.is_any() {
            return Duration::ZERO;
        }
        let mut targets = lock(&self.targets);
        match (targets.get_mut(target), refused) {
            (Some(rate), Some(asked)) => rate.refused(id, asked, now),
            (Some(rate), None) => {
                rate.accepted(id);
                if rate.per_second >= RATE_MAX {
                    targets.remove(target);
                }
            }
            (None, Some(asked)) => {
                targets.retain(|_, rate| !rate.is_over(now));
                let canvas = target.0.scope.canvas;
                let own = targets.keys().filter(|(address, _)| address.scope.canvas == canvas).count();
                if own < KEPT_OF_CANVAS && targets.len() < KEPT_MAX {
                    tracing::info!(handler = %target.0, "the target has no capacity: it gets fewer requests until it accepts again");
                    targets.insert(target.clone(), Rate::first(asked, now));
                }
            }
            (None, None) => {}
        }
        self.any.store(!targets.is_empty(), Ordering::Relaxed);
        let refusing = refused.and_then(|_| targets.get_mut(target));
        refusing.and_then(|rate| rate.wait(id, now)).unwrap_or_default()
    }

    /// The wait of an event that was refused or failed, so that those of its canvas come back at a
    /// bounded rate, whatever their targets say. Zero if its own wait is enough.
    fn returning(&self, canvas: CanvasId, asked: Duration, now: Instant) -> Duration {
        let mut returns = lock(&self.returns);
        if returns.len() >= KEPT_MAX {
            returns.retain(|_, last| *last > now);
        }
        let last = returns.entry(canvas).or_insert(now);
        let next = (*last).max(now) + Duration::from_secs_f64(1.0 / RETURNS);
        *last = next.min(now + RETURN_WITHIN);
        let wait = *last - now;
        if wait > SPARED { asked.max(wait) } else { asked }
    }
}

impl Rate {
    /// Whether its last refusal is long ago.
    fn is_over(&self, now: Instant) -> bool {
        now >= self.held_until.max(self.refused_at + FORGOTTEN_AFTER)
    }

    fn first(asked: Duration, now: Instant) -> Self {
        let held_until = now + asked.clamp(*HOLD.start(), *HOLD.end());
        Self { per_second: RATE_FIRST, held_until, next: held_until, slots: HashMap::new(), refused_at: now }
    }

    /// Of several refusals only the first lowers the rate: the others were under way already.
    fn refused(&mut self, id: EventId, asked: Duration, now: Instant) {
        if now >= self.held_until {
            self.per_second = (self.per_second * RATE_KEPT).max(RATE_MIN);
        }
        self.held_until = self.held_until.max(now + asked.clamp(*HOLD.start(), *HOLD.end()));
        self.refused_at = now;
        self.slots.retain(|waits, slot| *waits != id && now < *slot + SLOT_FOR);
    }

    /// Raises the rate by a tenth per second, by at least one event per second.
    fn accepted(&mut self, id: EventId) {
        self.slots.remove(&id);
        self.per_second += (self.per_second / 10.0).max(1.0) / self.per_second.max(1.0);
    }

    /// An event keeps its slot until its attempt has ended: it may have to wait for a permit too. A
    /// slot that came while everything is held is lost.
    fn wait(&mut self, id: EventId, now: Instant) -> Option<Duration> {
        match self.slots.get(&id) {
            Some(slot) if *slot > now => return Some(*slot - now),
            Some(_) if now >= self.held_until => return None,
            Some(_) | None => {}
        }
        let slot = self.next.max(self.held_until).max(now);
        if slot - now > AHEAD {
            // Not all at the same moment.
            return Some(AHEAD + Duration::from_millis(id.0.as_u128() as u64 % 5_000));
        }
        self.next = slot + Duration::from_secs_f64(1.0 / self.per_second);
        self.slots.insert(id, slot);
        (slot > now).then(|| slot - now)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
