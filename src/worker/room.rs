//! Rooms: semaphores of which a run has to hold permits before it may claim.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::event::CanvasId;

/// The permits that a run holds.
#[derive(Debug, Default)]
pub(super) struct Room {
    handler: Option<OwnedSemaphorePermit>,
    canvas: Option<OwnedSemaphorePermit>,
    suspect: Option<OwnedSemaphorePermit>,
    value: Option<OwnedSemaphorePermit>,
}

/// Which room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RoomKind {
    Handler,
    Canvas,
    Suspect,
    /// The bytes of a large value.
    Value,
}

impl Room {
    /// Tries to take this many permits of a room, unless the run already holds some; returns
    /// whether it does now.
    pub(super) fn enter(&mut self, kind: RoomKind, room: &Arc<Semaphore>, places: u32) -> bool {
        let place = self.place(kind);
        if place.is_none() {
            *place = Arc::clone(room).try_acquire_many_owned(places).ok();
        }
        place.is_some()
    }

    /// Also holds a permit that was waited for.
    pub(super) fn hold(&mut self, kind: RoomKind, entered: Option<OwnedSemaphorePermit>) {
        *self.place(kind) = entered;
    }

    fn place(&mut self, kind: RoomKind) -> &mut Option<OwnedSemaphorePermit> {
        match kind {
            RoomKind::Handler => &mut self.handler,
            RoomKind::Canvas => &mut self.canvas,
            RoomKind::Suspect => &mut self.suspect,
            RoomKind::Value => &mut self.value,
        }
    }
}

/// Queues for rooms. The first waiter of each canvas waits at the semaphore itself, the canvas's
/// others behind that one. So canvases take turns at a room that they share, however many of one of
/// them wait.
#[derive(Debug, Default)]
pub(super) struct RoomQueues {
    /// By room and canvas. A waiter keeps its room alive, so addresses are unique.
    queues: Mutex<HashMap<(usize, CanvasId), Arc<Semaphore>>>,
}

impl RoomQueues {
    /// Waits for this many permits. Cancel safe: only the place in the queue is lost.
    pub(super) async fn enter(
        &self,
        canvas: CanvasId,
        room: Arc<Semaphore>,
        places: u32,
    ) -> Option<OwnedSemaphorePermit> {
        let queued = Queued::at(self, (Arc::as_ptr(&room) as usize, canvas));
        // Neither semaphore is ever closed.
        let _first = queued.queue.acquire().await.ok()?;
        room.acquire_many_owned(places).await.ok()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<(usize, CanvasId), Arc<Semaphore>>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A waiter in the queue of its canvas. The queue is removed with its last waiter.
struct Queued<'a> {
    queues: &'a RoomQueues,
    key: (usize, CanvasId),
    queue: Arc<Semaphore>,
}

impl<'a> Queued<'a> {
    fn at(queues: &'a RoomQueues, key: (usize, CanvasId)) -> Self {
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

    fn canvas(number: u128) -> CanvasId {
        CanvasId(uuid::Uuid::from_u128(number))
    }

    /// Lets all waiting tasks advance as far as they can.
    async fn settle() {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn canvases_have_their_turns_at_a_room() {
        let (queues, room) = (Arc::new(RoomQueues::default()), Arc::new(Semaphore::new(1)));
        let held = Arc::clone(&room).try_acquire_owned().unwrap();
        let (mut waiting, entered) = (JoinSet::new(), Arc::new(Mutex::new(Vec::new())));
        for (number, count) in [(1, 10), (2, 2), (3, 1)] {
            for _ in 0..count {
                let (queues, room, entered) = (Arc::clone(&queues), Arc::clone(&room), Arc::clone(&entered));
                waiting.spawn(async move {
                    let permit = queues.enter(canvas(number), room, 1).await;
                    entered.lock().unwrap().push(number);
                    drop(permit);
                });
                settle().await;
            }
        }
        assert_eq!(queues.lock().len(), 3);
        drop(held);
        waiting.join_all().await;
        assert_eq!(entered.lock().unwrap()[..6], [1, 2, 3, 1, 2, 1]);
        assert!(queues.lock().is_empty(), "nothing is kept of what nobody waits for");
    }

    /// A waiter that gives up passes its turn on within its canvas; rooms have separate queues.
    #[tokio::test]
    async fn one_that_gives_up_holds_nobody_up() {
        let (queues, room) = (Arc::new(RoomQueues::default()), Arc::new(Semaphore::new(2)));
        let held = Arc::clone(&room).try_acquire_many_owned(2).unwrap();
        let mut waiting = JoinSet::new();
        let enter = |places| {
            let (queues, room) = (Arc::clone(&queues), Arc::clone(&room));
            async move { queues.enter(canvas(1), room, places).await.is_some() }
        };
        let gives_up = waiting.spawn(enter(2));
        settle().await;
        waiting.spawn(enter(1));
        settle().await;
        let elsewhere = Arc::new(Semaphore::new(1));
        assert!(queues.enter(canvas(1), elsewhere, 1).await.is_some());
        gives_up.abort();
        settle().await;
        drop(held);
        let mut entered = 0;
        while let Some(ended) = waiting.join_next().await {
            entered += usize::from(ended.unwrap_or(false));
        }
        assert_eq!((entered, queues.lock().len()), (1, 0));
    }
}
