//! The connections that requests of one canvas may hold at a time: what waits for one of these waits behind its own canvas's
//! requests, and nobody else does. Statements that many canvases share, such as those of emits, take none of these places.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::event::CanvasId;

tokio::task_local! {
    static CANVAS: CanvasId;
}

/// Runs something on behalf of a canvas: the connections that it takes are of that canvas's share.
#[cfg(feature = "http")]
pub(crate) async fn on_behalf_of<F: Future>(canvas: CanvasId, work: F) -> F::Output {
    CANVAS.scope(canvas, work).await
}

/// Who holds places.
#[derive(Debug)]
pub(super) struct Places {
    /// Of one canvas.
    share: usize,
    /// Of all canvases together: what is left is for statements that many share.
    all: Arc<Semaphore>,
    canvases: Mutex<HashMap<CanvasId, Weak<Semaphore>>>,
}

/// A connection's place; left when it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    _own: OwnedSemaphorePermit,
    _all: OwnedSemaphorePermit,
    _share: Arc<Semaphore>,
}

impl Places {
    /// A third of the connections for one canvas, and all but two for all of them; one at least.
    pub(super) fn among(connections: u32) -> Self {
        let connections = usize::try_from(connections).unwrap_or(1);
        let all = Arc::new(Semaphore::new(connections.saturating_sub(2).max(1)));
        Self { share: connections.div_ceil(3).max(1), all, canvases: Mutex::default() }
    }

    /// A place for whom this task works on behalf of; none is needed if that is nobody. Waits for one.
    pub(super) async fn take(&self) -> Option<Place> {
        let canvas = CANVAS.try_with(|canvas| *canvas).ok()?;
        let share = self.of(canvas);
        // Nobody closes them. Of one canvas no more than its share wait for the others' places.
        let own = Arc::clone(&share).acquire_owned().await.ok()?;
        let all = Arc::clone(&self.all).acquire_owned().await.ok()?;
        Some(Place { _own: own, _all: all, _share: share })
    }

    fn of(&self, canvas: CanvasId) -> Arc<Semaphore> {
        let mut canvases = self.canvases.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(share) = canvases.get(&canvas).and_then(Weak::upgrade) {
            return share;
        }
        canvases.retain(|_, share| share.strong_count() > 0);
        let share = Arc::new(Semaphore::new(self.share));
        canvases.insert(canvas, Arc::downgrade(&share));
        share
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use uuid::Uuid;

    use super::*;

    async fn take(places: &Places, canvas: u128) -> Option<Place> {
        CANVAS.scope(CanvasId(Uuid::from_u128(canvas)), places.take()).await
    }

    #[tokio::test]
    async fn a_canvas_holds_its_share_and_leaves_the_rest() {
        let places = Places::among(6);
        assert!(places.take().await.is_none(), "on behalf of nobody");
        let mut held = vec![take(&places, 1).await.unwrap(), take(&places, 1).await.unwrap()];
        assert!(take(&places, 1).now_or_never().is_none(), "it has its share");
        held.push(take(&places, 2).now_or_never().flatten().expect("another canvas does not wait"));
        held.push(take(&places, 3).now_or_never().flatten().unwrap());
        assert!(take(&places, 4).now_or_never().is_none(), "two connections are left for what many share");
        held.remove(0);
        held.push(take(&places, 4).now_or_never().flatten().unwrap());
        drop(held);
        drop(take(&places, 1).await);
        assert_eq!(places.canvases.lock().unwrap().len(), 1, "who left is forgotten");
    }

    #[tokio::test]
    async fn one_connection_is_enough() {
        let places = Places::among(1);
        let held = take(&places, 1).await.unwrap();
        assert!(take(&places, 2).now_or_never().is_none());
        drop(held);
        assert!(take(&places, 2).await.is_some());
    }
}
