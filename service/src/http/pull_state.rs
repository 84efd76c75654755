//! What requests on pulled queues and handlers share in this process: permits for those that wait
//! for copies or events, and metrics.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::telemetry::PullMetrics;
use wakeq::CanvasId;

/// Maximum number of requests in this process that wait for copies.
const WAITING_MAX: usize = 100;

/// Maximum number of requests in this process that wait for events of pulled handlers: of one
/// canvas, and of all.
const OF_CANVAS_MAX: usize = 100;
const OF_ALL_MAX: usize = 1000;
/// How many of each canvas may wait however many others do.
const OF_CANVAS_LEAST: usize = 4;

/// Permits for requests that wait for copies, and metrics. Cheap to clone.
#[derive(Clone)]
pub(crate) struct PullState {
    pub(crate) waiting: Arc<Semaphore>,
    pub(crate) room: WaitingRoom,
    pub(crate) metrics: PullMetrics,
    /// Ends the waiting requests.
    pub(crate) stop: CancellationToken,
}

impl PullState {
    pub(crate) fn new(stop: CancellationToken) -> Self {
        let waiting = Arc::new(Semaphore::new(WAITING_MAX));
        let (room, metrics) = (WaitingRoom::default(), PullMetrics::new());
        Self { waiting, room, metrics, stop }
    }
}

/// The requests that wait for events of pulled handlers, by canvas: no canvas takes the room of
/// another. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct WaitingRoom(Arc<Mutex<HashMap<CanvasId, usize>>>);

/// A request's place in the room, until it is dropped.
pub(crate) struct WaitingPlace {
    room: WaitingRoom,
    canvas: CanvasId,
}

impl WaitingRoom {
    /// A place for a request of this canvas; `None` if too many wait already, of the canvas or
    /// in all.
    pub(crate) fn enter(&self, canvas: CanvasId) -> Option<WaitingPlace> {
        let mut waiting = self.waiting();
        let (own, all) = (waiting.get(&canvas).copied().unwrap_or(0), waiting.values().sum::<usize>());
        if own >= OF_CANVAS_MAX || (all >= OF_ALL_MAX && own >= OF_CANVAS_LEAST) {
            return None;
        }
        waiting.insert(canvas, own + 1);
        Some(WaitingPlace { room: self.clone(), canvas })
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<CanvasId, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for WaitingPlace {
    fn drop(&mut self) {
        let mut waiting = self.room.waiting();
        let left = waiting.get(&self.canvas).map_or(0, |own| own.saturating_sub(1));
        if left == 0 {
            waiting.remove(&self.canvas);
        } else {
            waiting.insert(self.canvas, left);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_canvas_that_waits_much_leaves_room_for_others() {
        let room = WaitingRoom::default();
        let canvas = |number: u128| CanvasId(uuid::Uuid::from_u128(number));
        let mut places: Vec<_> = (0..OF_CANVAS_MAX).map(|_| room.enter(canvas(0)).unwrap()).collect();
        assert!(room.enter(canvas(0)).is_none());
        places.extend((0..OF_ALL_MAX - OF_CANVAS_MAX).map(|number| {
            let number = u128::try_from(number / OF_CANVAS_MAX).unwrap();
            room.enter(canvas(1 + number)).unwrap()
        }));
        let late: Vec<_> = (0..OF_CANVAS_LEAST).map(|_| room.enter(canvas(77)).unwrap()).collect();
        assert!(room.enter(canvas(77)).is_none());
        drop((places, late));
        assert!(room.waiting().is_empty());
    }
}
