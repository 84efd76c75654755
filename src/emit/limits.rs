//! Places of limits that an emit leaves to others: it has replaced or postponed an event that was
//! told to come for one.

use super::Queue;
use crate::event::HeldLimit;
use crate::store::InsertOutcome;

impl Queue {
    /// Wakes what waits at such limits, after the commit. What can't be woken is left to the
    /// minute's pass.
    pub(super) async fn wake_at_left(&self, inserted: &[InsertOutcome]) {
        let left: Vec<HeldLimit> = inserted.iter().filter_map(InsertOutcome::left_limit).collect();
        if left.is_empty() || !self.notifier.wakes() {
            return;
        }
        // Boxed, since it is rare, and each emit would have room for it.
        match Box::pin(self.store.wake_waiting(&left)).await {
            Ok(woken) => {
                self.publish(&woken).await;
            }
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, "the next events at limits wait for the minute's pass");
            }
        }
    }
}
