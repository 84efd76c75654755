//! Which events were woken here at limits and start here next, and which were handed on to this
//! worker: those are claimed already, and the next run of each has that claim. The claims of the
//! others go through their limits at once, without a look at their rows. That is only a hint: an
//! event that is missing here, or is here in vain, costs a statement.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::event::{CanvasId, EventId, Notification};

/// Maximum number of events without a claim. Those that never come would stay for ever, so that all
/// are forgotten then.
const EVENTS_MAX: usize = 10_000;

/// With claims of this type.
#[derive(Debug)]
pub(super) struct WokenEvents<C> {
    events: Mutex<HashMap<(EventId, CanvasId), Woken<C>>>,
    /// Spares runs the lock if there are none.
    is_any: AtomicBool,
    /// Whether a run that follows another finds a slot at once: what waits in this worker for
    /// others must not be claimed.
    has_slots: AtomicBool,
}

/// An event that starts here next.
#[derive(Debug)]
pub(super) enum Woken<C> {
    /// It was woken.
    Told,
    /// It was handed on at this time.
    Claimed(C, Instant),
}

impl<C> Default for WokenEvents<C> {
    /// Without slots: only an intake knows of any.
    fn default() -> Self {
        Self { events: Mutex::default(), is_any: AtomicBool::new(false), has_slots: AtomicBool::new(false) }
    }
}

impl<C> WokenEvents<C> {
    pub(super) fn set_slots(&self, has_slots: bool) {
        self.has_slots.store(has_slots, Ordering::Relaxed);
    }

    pub(super) fn has_slots(&self) -> bool {
        self.has_slots.load(Ordering::Relaxed)
    }

    pub(super) fn add(&self, woken: &[Notification]) {
        if woken.is_empty() {
            return;
        }
        let mut events = self.events();
        if events.len() >= EVENTS_MAX {
            events.retain(|_, woken| matches!(woken, Woken::Claimed(..)));
        }
        for notification in woken {
            events.entry(key(notification)).or_insert(Woken::Told);
        }
        self.is_any.store(true, Ordering::Relaxed);
    }

    /// Keeps the claim of an event until its run begins.
    pub(super) fn keep(&self, notification: Notification, claim: C) {
        self.events().insert(key(&notification), Woken::Claimed(claim, Instant::now()));
        self.is_any.store(true, Ordering::Relaxed);
    }

    /// Whether this event was woken or handed on here; it is asked once.
    pub(super) fn take(&self, notification: &Notification) -> Option<Woken<C>> {
        if !self.is_any.load(Ordering::Relaxed) {
            return None;
        }
        let mut events = self.events();
        let woken = events.remove(&key(notification));
        self.is_any.store(!events.is_empty(), Ordering::Relaxed);
        woken
    }

    /// The claims that were made this long ago and whose runs have not begun.
    pub(super) fn take_late(&self, after: Duration) -> Vec<C> {
        if !self.is_any.load(Ordering::Relaxed) {
            return Vec::new();
        }
        let (mut events, mut late) = (self.events(), Vec::new());
        let is_late = |woken: &Woken<C>| matches!(woken, Woken::Claimed(_, at) if at.elapsed() >= after);
        let keys: Vec<_> = events.iter().filter(|(_, woken)| is_late(woken)).map(|(key, _)| *key).collect();
        for key in keys {
            if let Some(Woken::Claimed(claim, _)) = events.remove(&key) {
                late.push(claim);
            }
        }
        self.is_any.store(!events.is_empty(), Ordering::Relaxed);
        late
    }

    fn events(&self) -> MutexGuard<'_, HashMap<(EventId, CanvasId), Woken<C>>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// With its canvas: anyone can publish a message that names an event of another one.
fn key(notification: &Notification) -> (EventId, CanvasId) {
    (notification.id, notification.canvas)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told() -> Notification {
        Notification::new(EventId::new(), CanvasId::DEFAULT)
    }

    #[test]
    fn each_event_is_told_once() {
        let woken = WokenEvents::<()>::default();
        let told = [told(), told()];
        assert!(woken.take(&told[0]).is_none());
        woken.add(&told);
        assert!(matches!(woken.take(&told[0]), Some(Woken::Told)));
        assert!(woken.take(&told[0]).is_none());
        assert!(woken.take(&told[1]).is_some());
        assert!(!woken.is_any.load(Ordering::Relaxed));
    }

    #[test]
    fn those_that_never_come_are_forgotten() {
        let woken = WokenEvents::<()>::default();
        let claimed = told();
        woken.keep(claimed, ());
        (0..EVENTS_MAX).for_each(|_| woken.add(&[told()]));
        assert_eq!(woken.events().len(), 2);
        assert!(matches!(woken.take(&claimed), Some(Woken::Claimed((), _))), "a claim is not");
    }

    #[test]
    fn a_claim_is_for_the_run_of_its_event_or_given_back() {
        let woken = WokenEvents::default();
        let (told, other) = (told(), Notification::new(EventId::new(), CanvasId::OF_QUEUES));
        woken.keep(told, 1);
        woken.keep(other, 2);
        woken.add(&[told]);
        let forged = Notification::new(told.id, CanvasId::OF_QUEUES);
        assert!(woken.take(&forged).is_none());
        assert!(matches!(woken.take(&told), Some(Woken::Claimed(1, _))));
        assert_eq!(woken.take_late(Duration::from_secs(60)), [0; 0]);
        assert_eq!(woken.take_late(Duration::ZERO), [2]);
        assert!(woken.take(&other).is_none());
    }
}
