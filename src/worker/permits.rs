//! Permits of semaphores: a run has to hold them before it may claim.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::places::{PlaceRequest, Places, TakenPlace};
use crate::event::{CanvasId, Notification};

/// The permits that a run holds.
#[derive(Debug, Default)]
pub(super) struct Permits {
    handler: Option<OwnedSemaphorePermit>,
    place: Option<TakenPlace>,
    suspect: Option<OwnedSemaphorePermit>,
    value: Option<OwnedSemaphorePermit>,
}

/// Which semaphore the permits are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PermitKind {
    Handler,
    Suspect,
    /// The bytes of a large value.
    Value,
}

/// Something that a run has to wait for before it may claim.
#[derive(Debug)]
pub(super) enum Shortage {
    /// This many permits of a semaphore that has too few left.
    Permits(PermitKind, Arc<Semaphore>, u32),
    /// A place that has to be left to others for now.
    Place(Places, PlaceRequest),
}

impl Shortage {
    /// Waits until it is over; returns the permits that the run then holds. Cancel safe: only the
    /// place in the queue is lost.
    pub(super) async fn over(
        self,
        queues: &PermitQueues,
        notification: Notification,
        mut permits: Permits,
    ) -> Option<Permits> {
        permits.give_up_for(&self);
        match self {
            Self::Permits(kind, semaphore, count) => {
                *permits.permit(kind) = Some(queues.acquire(notification, semaphore, count).await?);
            }
            Self::Place(places, request) => {
                permits.place = Some(places.wait(request, notification.urgent).await?)
            }
        }
        Some(permits)
    }
}

impl Permits {
    /// Tries to take this many permits of a semaphore, unless the run already holds some; returns
    /// whether it does now.
    pub(super) fn try_acquire(&mut self, kind: PermitKind, semaphore: &Arc<Semaphore>, permits: u32) -> bool {
        let permit = self.permit(kind);
        if permit.is_none() {
            *permit = Arc::clone(semaphore).try_acquire_many_owned(permits).ok();
        }
        permit.is_some()
    }

    /// Tries to take a place, an urgent run also one that is kept, unless the run already has one;
    /// returns whether it does now.
    pub(super) fn try_take_place(&mut self, places: &Places, request: &PlaceRequest, urgent: bool) -> bool {
        if self.place.is_none() {
            self.place = places.try_take(request);
        }
        if self.place.is_none() && urgent {
            self.place = places.try_take_kept(request);
        }
        self.place.is_some()
    }

    /// Before a run waits for something that others may hold for long, gives up what those need
    /// that wait for the same: the turn of a suspect while it waits for a place, and a place while
    /// it waits for that turn.
    fn give_up_for(&mut self, shortage: &Shortage) {
        match shortage {
            Shortage::Place(..) => self.suspect = None,
            Shortage::Permits(PermitKind::Suspect, ..) => self.place = None,
            Shortage::Permits(PermitKind::Handler | PermitKind::Value, ..) => {}
        }
    }

    pub(super) fn has_place(&self) -> bool {
        self.place.is_some()
    }

    fn permit(&mut self, kind: PermitKind) -> &mut Option<OwnedSemaphorePermit> {
        match kind {
            PermitKind::Handler => &mut self.handler,
            PermitKind::Suspect => &mut self.suspect,
            PermitKind::Value => &mut self.value,
        }
    }
}

/// Queues for permits. The first waiter of each canvas waits at the semaphore itself, the canvas's
/// others behind that one. So canvases take turns at a semaphore that they share, however many of
/// one of them wait. A canvas's urgent waiters have a queue of their own, so they take turns with
/// its others.
#[derive(Debug, Default)]
pub(super) struct PermitQueues {
    /// A waiter keeps its semaphore alive, so addresses are unique.
    queues: Mutex<HashMap<QueueKey, Arc<Semaphore>>>,
}

/// The address of a semaphore, a canvas, and whether the waiters are urgent.
type QueueKey = (usize, CanvasId, bool);

impl PermitQueues {
    /// Waits for this many permits. Cancel safe: only the place in the queue is lost.
    pub(super) async fn acquire(
        &self,
        Notification { canvas, urgent, .. }: Notification,
        semaphore: Arc<Semaphore>,
        permits: u32,
    ) -> Option<OwnedSemaphorePermit> {
        let queued = Queued::at(self, (Arc::as_ptr(&semaphore) as usize, canvas, urgent));
        // Neither semaphore is ever closed.
        let _first = queued.queue.acquire().await.ok()?;
        semaphore.acquire_many_owned(permits).await.ok()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<QueueKey, Arc<Semaphore>>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A waiter in the queue of its canvas. The queue is removed with its last waiter.
struct Queued<'a> {
    queues: &'a PermitQueues,
    key: QueueKey,
    queue: Arc<Semaphore>,
}

impl<'a> Queued<'a> {
    fn at(queues: &'a PermitQueues, key: QueueKey) -> Self {
        let queue = Arc::clone(queues.lock().entry(key).or_insert_with(|| Arc::new(Semaphore::new(1))));
        Self { queues, key, queue }
    }
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        let mut queues = self.queues.lock();
        // Only this waiter's and the map's.
        if Arc::strong_count(&self.queue) == 2 {
            queues.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::task::JoinSet;

    use super::*;
    use crate::event::EventId;

    fn of(canvas: u128) -> Notification {
        Notification::new(EventId::new(), CanvasId(uuid::Uuid::from_u128(canvas)))
    }

    /// Lets all waiting tasks advance as far as they can.
    async fn settle() {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn canvases_take_turns_at_a_full_handler() {
        let (queues, semaphore) = (Arc::new(PermitQueues::default()), Arc::new(Semaphore::new(1)));
        let held = Arc::clone(&semaphore).try_acquire_owned().unwrap();
        let (mut waiting, acquired) = (JoinSet::new(), Arc::new(Mutex::new(Vec::new())));
        for (number, count) in [(1, 10), (2, 2), (3, 1)] {
            for _ in 0..count {
                let (queues, semaphore, acquired) =
                    (Arc::clone(&queues), Arc::clone(&semaphore), Arc::clone(&acquired));
                waiting.spawn(async move {
                    let permit = queues.acquire(of(number), semaphore, 1).await;
                    acquired.lock().unwrap().push(number);
                    drop(permit);
                });
                settle().await;
            }
        }
        assert_eq!(queues.lock().len(), 3);
        drop(held);
        waiting.join_all().await;
        assert_eq!(acquired.lock().unwrap()[..6], [1, 2, 3, 1, 2, 1]);
        assert!(queues.lock().is_empty(), "nothing is kept of what nobody waits for");
    }

    /// However many of a canvas's events wait for their handler, its urgent one is next but one,
    /// and so is another canvas's; a flood of urgent ones leaves every other turn to the rest.
    #[tokio::test]
    async fn urgent_waiters_do_not_wait_behind_the_others() {
        let (queues, semaphore) = (Arc::new(PermitQueues::default()), Arc::new(Semaphore::new(1)));
        let held = Arc::clone(&semaphore).try_acquire_owned().unwrap();
        let (mut waiting, acquired) = (JoinSet::new(), Arc::new(Mutex::new(Vec::new())));
        for (canvas, urgent, count) in [(1, false, 10), (1, true, 3), (2, false, 2)] {
            for _ in 0..count {
                let (queues, semaphore, acquired) =
                    (Arc::clone(&queues), Arc::clone(&semaphore), Arc::clone(&acquired));
                waiting.spawn(async move {
                    let permit = queues.acquire(of(canvas).urgent_if(urgent), semaphore, 1).await;
                    acquired.lock().unwrap().push((canvas, urgent));
                    drop(permit);
                });
                settle().await;
            }
        }
        drop(held);
        waiting.join_all().await;
        let round = [(1, false), (1, true), (2, false)];
        assert_eq!(acquired.lock().unwrap()[..6], [round, round].concat());
    }

    /// A waiter that gives up passes its turn on within its canvas; rooms have separate queues.
    #[tokio::test]
    async fn a_waiter_that_gives_up_blocks_no_other() {
        let (queues, semaphore) = (Arc::new(PermitQueues::default()), Arc::new(Semaphore::new(2)));
        let held = Arc::clone(&semaphore).try_acquire_many_owned(2).unwrap();
        let mut waiting = JoinSet::new();
        let acquire = |permits| {
            let (queues, semaphore) = (Arc::clone(&queues), Arc::clone(&semaphore));
            async move { queues.acquire(of(1), semaphore, permits).await.is_some() }
        };
        let gives_up = waiting.spawn(acquire(2));
        settle().await;
        waiting.spawn(acquire(1));
        settle().await;
        let elsewhere = Arc::new(Semaphore::new(1));
        assert!(queues.acquire(of(1), elsewhere, 1).await.is_some());
        gives_up.abort();
        settle().await;
        drop(held);
        let mut acquired = 0;
        while let Some(ended) = waiting.join_next().await {
            acquired += usize::from(ended.unwrap_or(false));
        }
        assert_eq!((acquired, queues.lock().len()), (1, 0));
    }
}
