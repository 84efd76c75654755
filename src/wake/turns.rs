//! A canvas's turn to publish a page: once workers have taken enough of what was published before.

use std::time::Duration;

use super::Waker;
use super::pace::Turn;
use crate::event::CanvasId;

/// How often those that wait for a canvas's turn look at what workers have taken.
const LOOK_PERIOD: Duration = Duration::from_millis(100);

impl Waker {
    /// The canvas's turn to publish this many events; `None` if it does not come within the time
    /// limit.
    pub(super) async fn turn(&self, canvas: CanvasId, events: usize) -> Option<Turn> {
        let turn = self.turn_with_room(canvas, events);
        match self.until {
            Some(until) => tokio::time::timeout_at(until, turn).await.ok(),
            None => Some(turn.await),
        }
    }

    /// The canvas's turn once workers have taken so many of the events that were published before
    /// that there is room for as many more.
    async fn turn_with_room(&self, canvas: CanvasId, events: usize) -> Turn {
        let mut turn = self.pace.turn(canvas).await;
        while turn.wait(events).is_some() {
            match self.store.still_waiting(&turn.published()).await {
                Ok(waiting) => turn.still_wait(&waiting),
                Err(error) => {
                    let error = &error as &dyn std::error::Error;
                    tracing::debug!(error, "it is not known what workers have taken");
                }
            }
            tokio::time::sleep(turn.wait(events).unwrap_or_default().min(LOOK_PERIOD)).await;
        }
        self.pace.page().await;
        turn
    }
}
