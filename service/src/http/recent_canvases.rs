//! Whether a canvas has this process to itself.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use wakeq::CanvasId;

/// How long a canvas counts as recent after its last request.
const RECENT: Duration = Duration::from_secs(600);

/// The two canvases with the latest requests, the latest first.
#[derive(Debug, Default)]
pub(crate) struct RecentCanvases(Mutex<[Option<(CanvasId, Instant)>; 2]>);

impl RecentCanvases {
    /// Records a request of a canvas, and returns whether another canvas had one within the last
    /// ten minutes.
    pub(super) fn record(&self, canvas: CanvasId) -> bool {
        let now = Instant::now();
        let mut latest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let [first, second] = *latest;
        let other = if first.is_some_and(|(id, _)| id != canvas) { first } else { second };
        *latest = [Some((canvas, now)), other];
        other.is_some_and(|(_, asked)| now.duration_since(asked) < RECENT)
    }

    /// Whether another canvas had a request within the last ten minutes.
    pub(crate) fn has_other(&self, canvas: CanvasId) -> bool {
        let (now, latest) = (Instant::now(), *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        let others = latest.into_iter().flatten().filter(|(id, _)| *id != canvas);
        others.into_iter().any(|(_, asked)| now.duration_since(asked) < RECENT)
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_canvas_that_asked_within_ten_minutes_is_recent() {
        let recent = RecentCanvases::default();
        let record = |canvas: u128| recent.record(CanvasId(Uuid::from_u128(canvas)));
        assert!(!record(1) && !record(1), "it is alone");
        let has_other = |canvas: u128| recent.has_other(CanvasId(Uuid::from_u128(canvas)));
        assert_eq!([1, 2].map(has_other), [false, true]);
        assert!(record(2) && record(1) && record(1) && record(3) && record(2));
        tokio::time::sleep(RECENT / 2).await;
        assert!(record(2), "another was there not long ago");
        tokio::time::sleep(RECENT / 2).await;
        assert!(!has_other(2) && !record(2), "it has been alone for ten minutes");
        assert!(record(1));
    }
}
