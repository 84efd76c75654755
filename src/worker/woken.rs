//! Which events were woken here at limits and start here next. Their claims go through their limits
//! at once, without a look at their rows. Only a hint: an event that is missing here, or is here in
//! vain, costs a statement.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::event::{EventId, Notification};

/// Maximum number of events. Those that never come would stay for ever, so that all are forgotten
/// then.
const EVENTS_MAX: usize = 10_000;

#[derive(Debug, Default)]
pub(super) struct WokenEvents {
    events: Mutex<HashSet<EventId>>,
    /// Spares runs the lock if there are none.
    is_any: AtomicBool,
}

impl WokenEvents {
    pub(super) fn add(&self, woken: &[Notification]) {
        if woken.is_empty() {
            return;
        }
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        if events.len() >= EVENTS_MAX {
            events.clear();
        }
        events.extend(woken.iter().map(|notification| notification.id));
        self.is_any.store(true, Ordering::Relaxed);
    }

    /// Whether this event was woken here; it is asked once.
    pub(super) fn take(&self, id: EventId) -> bool {
        if !self.is_any.load(Ordering::Relaxed) {
            return false;
        }
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        let was_woken = events.remove(&id);
        self.is_any.store(!events.is_empty(), Ordering::Relaxed);
        was_woken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::CanvasId;

    #[test]
    fn each_event_is_told_once() {
        let woken = WokenEvents::default();
        let told = [EventId::new(), EventId::new()].map(|id| Notification::new(id, CanvasId::DEFAULT));
        assert!(!woken.take(told[0].id));
        woken.add(&told);
        assert!(woken.take(told[0].id));
        assert!(!woken.take(told[0].id));
        assert!(woken.take(told[1].id));
        assert!(!woken.is_any.load(Ordering::Relaxed));
    }

    #[test]
    fn those_that_never_come_are_forgotten() {
        let woken = WokenEvents::default();
        let one = || [Notification::new(EventId::new(), CanvasId::DEFAULT)];
        (0..=EVENTS_MAX).for_each(|_| woken.add(&one()));
        assert_eq!(woken.events.lock().unwrap().len(), 1);
    }
}
