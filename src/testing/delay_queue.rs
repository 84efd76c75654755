//! The kit's delay queue: notifications that wait for their time, on the kit's clock. It runs
//! nothing.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::event::{EventId, Notification};

/// Notifications that wait for their time, as in a worker's memory, on the kit's clock.
#[derive(Default)]
pub(super) struct DelayQueue {
    waiting: Mutex<Waiting>,
    /// Since when the clock of a database has run, in addition to what the kit moves.
    running_since: Option<Instant>,
}

#[derive(Default)]
struct Waiting {
    moved: Duration,
    /// The notifications, each with the time until which it waits, counted from the kit's start.
    notifications: BTreeMap<EventId, (Notification, Duration)>,
}

impl DelayQueue {
    /// For a kit on a database, whose clock runs by itself.
    pub(super) fn on_database_clock() -> Self {
        Self { running_since: Some(Instant::now()), ..Self::default() }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The kit's age, on its clock.
    pub(super) fn age(&self) -> Duration {
        let ran = self.running_since.map(|since| since.elapsed());
        self.waiting().moved + ran.unwrap_or_default()
    }

    pub(super) fn advance(&self, by: Duration) {
        self.waiting().moved += by;
    }

    /// Keeps one notification per event, for the earlier of two times.
    pub(super) fn keep(&self, notification: Notification, until: Duration) {
        let mut waiting = self.waiting();
        let (_, known) = waiting.notifications.entry(notification.id).or_insert((notification, until));
        *known = until.min(*known);
    }

    pub(super) fn forget(&self, event: EventId) {
        self.waiting().notifications.remove(&event);
    }

    /// Whether something has fallen due since [`DelayQueue::due`], as can happen beside a database.
    pub(super) fn has_due(&self) -> bool {
        let age = self.age();
        self.waiting().notifications.values().any(|(_, until)| *until <= age)
    }

    pub(super) fn due(&self) -> Vec<Notification> {
        let age = self.age();
        let mut waiting = self.waiting();
        let due = waiting.notifications.extract_if(.., |_, (_, until)| *until <= age);
        due.map(|(_, (notification, _))| notification).collect()
    }
}
