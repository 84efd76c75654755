//! The parking lot: notifications that wait here for their time, or for room. Bounded, one per event.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use futures_util::StreamExt;
use tokio::task::AbortHandle;
use tokio::time::Instant;
use tokio_util::time::{DelayQueue, delay_queue};

use crate::event::{CanvasId, EventId, Notification};
use crate::notify::Delivery;

#[derive(Debug)]
pub(super) struct Lot {
    size_max: usize,
    waiting: HashMap<EventId, (Delivery, For)>,
    times: DelayQueue<EventId>,
    /// Those that wait for room, of each canvas by the order in which they came; none of these is empty.
    open: HashMap<CanvasId, BTreeMap<u64, EventId>>,
    open_len: usize,
    last_number: u64,
}

/// What a notification waits for.
#[derive(Debug)]
enum For {
    Time(delay_queue::Key),
    /// Its canvas and number, and what waits for the room.
    Room(CanvasId, u64, AbortHandle),
}

impl Lot {
    pub(super) fn new(size_max: usize) -> Self {
        let (waiting, times) = (HashMap::new(), DelayQueue::new());
        Self { size_max, waiting, times, open: HashMap::new(), open_len: 0, last_number: 0 }
    }

    pub(super) fn contains(&self, id: EventId) -> bool {
        self.waiting.contains_key(&id)
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// How many wait for room.
    pub(super) fn open_len(&self) -> usize {
        self.open_len
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
    pub(super) fn park_open(
        &mut self,
        notification: Notification,
        delivery: Delivery,
        entering: AbortHandle,
    ) {
        let Notification { id, canvas } = notification;
        self.last_number += 1;
        self.open.entry(canvas).or_default().insert(self.last_number, id);
        self.open_len += 1;
        self.waiting.insert(id, (delivery, For::Room(canvas, self.last_number, entering)));
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
            For::Room(canvas, number, entering) => {
                entering.abort();
                if let Some(open) = self.open.get_mut(&canvas) {
                    self.open_len -= usize::from(open.remove(&number).is_some());
                    if open.is_empty() {
                        self.open.remove(&canvas);
                    }
                }
            }
        }
        Some(delivery)
    }

    /// Takes the one out that came last of the canvas with the most that wait for room; of several, of whose came last.
    pub(super) fn take_last_open(&mut self) -> Option<(EventId, Delivery)> {
        let of_each = self.open.values().filter_map(|open| Some((open.len(), open.last_key_value()?)));
        let (_, (_, id)) = of_each.max()?;
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
        self.open_len = 0;
        self.waiting.clear();
    }
}
