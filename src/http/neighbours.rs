//! Whether a canvas has this process to itself.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::event::CanvasId;

/// How long a canvas counts as a neighbour after its last request.
const THERE: Duration = Duration::from_secs(600);

/// The two canvases with the latest requests, the latest first.
#[derive(Debug, Default)]
pub(super) struct Neighbours(Mutex<[Option<(CanvasId, Instant)>; 2]>);

impl Neighbours {
    /// Records a request of a canvas, and returns whether another canvas had one within the last
    /// ten minutes.
    pub(super) fn meet(&self, canvas: CanvasId) -> bool {
        let now = Instant::now();
        let mut latest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let [one, other] = *latest;
        let neighbour = if one.is_some_and(|(id, _)| id != canvas) { one } else { other };
        *latest = [Some((canvas, now)), neighbour];
        neighbour.is_some_and(|(_, asked)| now.duration_since(asked) < THERE)
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_canvas_that_asked_within_ten_minutes_is_a_neighbour() {
        let neighbours = Neighbours::default();
        let meet = |canvas: u128| neighbours.meet(CanvasId(Uuid::from_u128(canvas)));
        assert!(!meet(1) && !meet(1), "it is alone");
        assert!(meet(2) && meet(1) && meet(1) && meet(3) && meet(2));
        tokio::time::sleep(THERE / 2).await;
        assert!(meet(2), "another was there not long ago");
        tokio::time::sleep(THERE / 2).await;
        assert!(!meet(2), "it has been alone for ten minutes");
        assert!(meet(1));
    }
}
