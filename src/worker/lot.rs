//! The parking lot: notifications that wait here for their time or for room. Bounded, one per
//! event; when it is full, the canvas with the most gives way to others.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use futures_util::StreamExt;
use tokio::task::AbortHandle;
use tokio::time::Instant;
use tokio_util::time::{DelayQueue, delay_queue};

use crate::event::{CanvasId, EventId, Notification};
use crate::notify::Delivery;

#[derive(Debug)]
pub(super) struct ParkingLot {
    size_max: usize,
    waiting: HashMap<EventId, (Delivery, WaitReason)>,
    times: DelayQueue<EventId>,
    /// By canvas; entries are never empty.
    canvases: HashMap<CanvasId, CanvasEntries>,
    /// The canvases, ordered by how many notifications they have here.
    sizes: BTreeSet<(usize, CanvasId)>,
    permit_waiters: usize,
    last_number: u64,
}

/// The waiting notifications of one canvas.
#[derive(Debug, Default)]
struct CanvasEntries {
    /// Those that wait for a time, ordered by it.
    timed: BTreeSet<(Instant, EventId)>,
    /// Those that wait for room, in order of arrival.
    for_permit: BTreeMap<u64, EventId>,
}

impl CanvasEntries {
    fn len(&self) -> usize {
        self.timed.len() + self.for_permit.len()
    }
}

/// The time or the room that a notification waits for.
#[derive(Debug)]
enum WaitReason {
    Time(CanvasId, Instant, delay_queue::Key),
    /// With its canvas, its number, and the task that waits for the permit.
    Permit(CanvasId, u64, AbortHandle),
}

impl ParkingLot {
    pub(super) fn new(size_max: usize) -> Self {
        Self {
            size_max,
            waiting: HashMap::new(),
            times: DelayQueue::new(),
            canvases: HashMap::new(),
            sizes: BTreeSet::new(),
            permit_waiters: 0,
            last_number: 0,
        }
    }

    pub(super) fn contains(&self, id: EventId) -> bool {
        self.waiting.contains_key(&id)
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// How many notifications wait for room.
    pub(super) fn permit_waiters(&self) -> usize {
        self.permit_waiters
    }

    /// Whether another notification of a canvas may wait, for this time or for room. If the lot is
    /// full, space is made for it: the canvas with the most gives up its last, if it has more than
    /// this canvas would then have; otherwise this canvas gives up its latest, if that waits for a
    /// later time.
    pub(super) fn make_room(&mut self, canvas: CanvasId, wait: Option<Duration>) -> bool {
        if self.waiting.len() < self.size_max {
            return true;
        }
        let own = self.canvases.get(&canvas);
        let len = own.map_or(0, CanvasEntries::len);
        let latest = own.and_then(|own| own.timed.last().copied());
        if let Some(&(most, other)) = self.sizes.last()
            && most > len + 1
        {
            self.give_up_last(other);
            return true;
        }
        match (wait, latest) {
            (Some(wait), Some((time, id))) if Instant::now() + wait < time => {
                self.leave_to_promise(id);
                true
            }
            _ => false,
        }
    }

    /// Gives up the last notification of the kind that the canvas has more of. One that waits for
    /// room is put back, because another worker may have room.
    fn give_up_last(&mut self, canvas: CanvasId) {
        let Some(entries) = self.canvases.get(&canvas) else { return };
        match (entries.timed.last(), entries.for_permit.last_key_value()) {
            (Some(&(_, id)), _) if entries.timed.len() >= entries.for_permit.len() => {
                self.leave_to_promise(id)
            }
            (_, Some((_, &id))) => drop(self.take(id).map(Delivery::put_back)),
            (_, None) => {}
        }
    }

    fn leave_to_promise(&mut self, id: EventId) {
        if let Some(delivery) = self.take(id) {
            delivery.acknowledge();
        }
    }

    /// Keeps a notification for a while. The caller has checked for space and duplicates.
    pub(super) fn park(&mut self, notification: Notification, delivery: Delivery, wait: Duration) {
        let Notification { id, canvas, .. } = notification;
        let time = Instant::now() + wait;
        let key = self.times.insert_at(id, time);
        self.change(canvas, |entries| entries.timed.insert((time, id)));
        self.waiting.insert(id, (delivery, WaitReason::Time(canvas, time, key)));
    }

    /// Keeps a notification until [`ParkingLot::take`] is called for it, once the task that waits
    /// for its permit has ended.
    pub(super) fn park_for_permit(
        &mut self,
        notification: Notification,
        delivery: Delivery,
        acquiring: AbortHandle,
    ) {
        let Notification { id, canvas, .. } = notification;
        self.last_number += 1;
        let number = self.last_number;
        self.change(canvas, |entries| entries.for_permit.insert(number, id));
        self.permit_waiters += 1;
        self.waiting.insert(id, (delivery, WaitReason::Permit(canvas, number, acquiring)));
    }

    /// Whether the event waits for something other than a time.
    pub(super) fn waits_for_permit(&self, id: EventId) -> bool {
        matches!(self.waiting.get(&id), Some((_, WaitReason::Permit(..))))
    }

    /// Makes an event that waits for a later time come up after `wait`: of two looks at it the
    /// earlier one decides, and coming up early only costs another look.
    pub(super) fn hasten(&mut self, id: EventId, wait: Duration) {
        let sooner = Instant::now() + wait;
        if let Some((_, WaitReason::Time(canvas, time, key))) = self.waiting.get_mut(&id)
            && sooner < *time
        {
            self.times.reset_at(key, sooner);
            let (canvas, later) = (*canvas, std::mem::replace(time, sooner));
            self.change(canvas, |entries| {
                entries.timed.remove(&(later, id));
                entries.timed.insert((sooner, id))
            });
        }
    }

    /// Removes a notification before its time.
    pub(super) fn take(&mut self, id: EventId) -> Option<Delivery> {
        let (delivery, reason) = self.waiting.remove(&id)?;
        match reason {
            WaitReason::Time(canvas, time, key) => {
                self.times.try_remove(&key);
                self.change(canvas, |entries| entries.timed.remove(&(time, id)));
            }
            WaitReason::Permit(canvas, number, acquiring) => {
                acquiring.abort();
                self.change(canvas, |entries| entries.for_permit.remove(&number));
                self.permit_waiters -= 1;
            }
        }
        Some(delivery)
    }

    /// Changes what a canvas has here, and keeps the order by size up to date.
    fn change<T>(&mut self, canvas: CanvasId, change: impl FnOnce(&mut CanvasEntries) -> T) {
        let entries = self.canvases.entry(canvas).or_default();
        let before = entries.len();
        change(entries);
        let after = entries.len();
        self.sizes.remove(&(before, canvas));
        if after > 0 {
            self.sizes.insert((after, canvas));
        } else {
            self.canvases.remove(&canvas);
        }
    }

    /// Removes the latest notification that waits for room, of the canvas with the most of these;
    /// among several such canvases, the latest.
    pub(super) fn take_last_permit_waiter(&mut self) -> Option<(EventId, Delivery)> {
        let for_permit = self.canvases.values().map(|entries| &entries.for_permit);
        let (_, (_, id)) = for_permit
            .filter_map(|for_permit| Some((for_permit.len(), for_permit.last_key_value()?)))
            .max()?;
        let id = *id;
        self.take(id).map(|delivery| (id, delivery))
    }

    /// The next notification whose time has come. Cancel safe; pending while none waits for a time.
    pub(super) async fn due(&mut self) -> (EventId, Delivery) {
        loop {
            let Some(expired) = self.times.next().await else {
                std::future::pending::<()>().await;
                continue;
            };
            let id = expired.into_inner();
            if let Some(delivery) = self.take(id) {
                return (id, delivery);
            }
        }
    }

    /// Puts back everything that waits.
    pub(super) fn clear(&mut self) {
        self.times.clear();
        self.canvases.clear();
        self.sizes.clear();
        self.permit_waiters = 0;
        self.waiting.clear();
    }
}
