//! The parking lot: notifications that wait here for their time. Bounded, one per event.

use std::collections::HashMap;
use std::time::Duration;

use futures_util::StreamExt;
use tokio::time::Instant;
use tokio_util::time::{DelayQueue, delay_queue};

use crate::event::EventId;
use crate::notify::Delivery;

#[derive(Debug)]
pub(super) struct Lot {
    size_max: usize,
    waiting: HashMap<EventId, (Delivery, Option<delay_queue::Key>)>,
    times: DelayQueue<EventId>,
}

impl Lot {
    pub(super) fn new(size_max: usize) -> Self {
        Self { size_max, waiting: HashMap::new(), times: DelayQueue::new() }
    }

    pub(super) fn contains(&self, id: EventId) -> bool {
        self.waiting.contains_key(&id)
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn is_full(&self) -> bool {
        self.waiting.len() >= self.size_max
    }

    /// Keeps a notification for a while. The caller has checked that there is room and none of this event.
    pub(super) fn park(&mut self, id: EventId, delivery: Delivery, wait: Duration) {
        let key = self.times.insert(id, wait);
        self.waiting.insert(id, (delivery, Some(key)));
    }

    /// Keeps a notification until [`Lot::take`] is called for it.
    pub(super) fn park_open(&mut self, id: EventId, delivery: Delivery) {
        self.waiting.insert(id, (delivery, None));
    }

    /// Whether the event waits for something else than a time.
    pub(super) fn waits_openly(&self, id: EventId) -> bool {
        matches!(self.waiting.get(&id), Some((_, None)))
    }

    /// Lets an event that waits for a later time come up after `wait` already: the earlier of two looks at it decides,
    /// and coming up early costs no more than another look.
    pub(super) fn hasten(&mut self, id: EventId, wait: Duration) {
        if let Some((_, Some(key))) = self.waiting.get(&id) {
            let sooner = Instant::now() + wait;
            if sooner < self.times.deadline(key) {
                self.times.reset_at(key, sooner);
            }
        }
    }

    /// Takes a notification out before its time.
    pub(super) fn take(&mut self, id: EventId) -> Option<Delivery> {
        let (delivery, key) = self.waiting.remove(&id)?;
        if let Some(key) = key {
            self.times.try_remove(&key);
        }
        Some(delivery)
    }

    /// The next notification whose time has come. Cancel safe; waits for ever while none has a time.
    pub(super) async fn due(&mut self) -> (EventId, Delivery) {
        loop {
            let Some(expired) = self.times.next().await else {
                std::future::pending::<()>().await;
                continue;
            };
            let id = expired.into_inner();
            if let Some((delivery, _)) = self.waiting.remove(&id) {
                return (id, delivery);
            }
        }
    }

    /// Puts everything back that waits.
    pub(super) fn clear(&mut self) {
        self.times.clear();
        self.waiting.clear();
    }
}
