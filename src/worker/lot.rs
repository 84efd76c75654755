//! The parking lot: notifications that wait here for their time, or for room. Bounded, one per event.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use futures_util::StreamExt;
use tokio::task::AbortHandle;
use tokio::time::Instant;
use tokio_util::time::{DelayQueue, delay_queue};

use crate::event::EventId;
use crate::notify::Delivery;

#[derive(Debug)]
pub(super) struct Lot {
    size_max: usize,
    waiting: HashMap<EventId, (Delivery, For)>,
    times: DelayQueue<EventId>,
    /// Those that wait for room, by the order in which they came.
    open: BTreeMap<u64, EventId>,
    last_number: u64,
}

/// What a notification waits for.
#[derive(Debug)]
enum For {
    Time(delay_queue::Key),
    /// Its number, and what waits for the room.
    Room(u64, AbortHandle),
}

impl Lot {
    pub(super) fn new(size_max: usize) -> Self {
        let (waiting, times) = (HashMap::new(), DelayQueue::new());
        Self { size_max, waiting, times, open: BTreeMap::new(), last_number: 0 }
    }

    pub(super) fn contains(&self, id: EventId) -> bool {
        self.waiting.contains_key(&id)
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// How many wait for room.
    pub(super) fn open_len(&self) -> usize {
        self.open.len()
    }

    pub(super) fn is_full(&self) -> bool {
        self.waiting.len() >= self.size_max
    }

    /// Keeps a notification for a while. The caller has checked that there is room and none of this event.
    pub(super) fn park(&mut self, id: EventId, delivery: Delivery, wait: Duration) {
        let key = self.times.insert(id, wait);
        self.waiting.insert(id, (delivery, For::Time(key)));
    }

    /// Keeps a notification until [`Lot::take`] is called for it by what waits for its room.
    pub(super) fn park_open(&mut self, id: EventId, delivery: Delivery, entering: AbortHandle) {
        self.last_number += 1;
        self.open.insert(self.last_number, id);
        self.waiting.insert(id, (delivery, For::Room(self.last_number, entering)));
    }

    /// Whether the event waits for something else than a time.
    pub(super) fn waits_openly(&self, id: EventId) -> bool {
        matches!(self.waiting.get(&id), Some((_, For::Room(..))))
    }

    /// Lets an event that waits for a later time come up after `wait` already: the earlier of two looks at it decides,
    /// and coming up early costs no more than another look.
    pub(super) fn hasten(&mut self, id: EventId, wait: Duration) {
        if let Some((_, For::Time(key))) = self.waiting.get(&id) {
            let sooner = Instant::now() + wait;
            if sooner < self.times.deadline(key) {
                self.times.reset_at(key, sooner);
            }
        }
    }

    /// Takes a notification out before its time.
    pub(super) fn take(&mut self, id: EventId) -> Option<Delivery> {
        let (delivery, reason) = self.waiting.remove(&id)?;
        match reason {
            For::Time(key) => drop(self.times.try_remove(&key)),
            For::Room(number, entering) => {
                self.open.remove(&number);
                entering.abort();
            }
        }
        Some(delivery)
    }

    /// Takes the one out that has waited for room for the shortest time.
    pub(super) fn take_last_open(&mut self) -> Option<(EventId, Delivery)> {
        let (_, id) = self.open.last_key_value()?;
        let id = *id;
        self.take(id).map(|delivery| (id, delivery))
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
        self.open.clear();
        self.waiting.clear();
    }
}
