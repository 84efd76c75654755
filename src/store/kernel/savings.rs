//! For how much longer than usual each canvas may read before its reads rest. Somebody who opens a
//! page of numbers now and then does not wait; whoever reads without end has nothing left. Decides
//! only.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::event::CanvasId;

/// How much a canvas saves at most, and which part of the time.
const MOST: Duration = Duration::from_secs(3);
const PART: u32 = 20;
/// How many canvases are remembered. One that is forgotten has saved all, so those that have saved
/// most are forgotten first.
const REMEMBERED_MAX: usize = 1_000;

/// The savings of all canvases.
#[derive(Debug, Default)]
pub(super) struct Savings(Mutex<HashMap<CanvasId, Saved>>);

/// What was left at some time.
#[derive(Clone, Copy, Debug)]
struct Saved {
    left: Duration,
    at: Instant,
}

impl Saved {
    fn now(&self) -> Duration {
        (self.left + self.at.elapsed() / PART).min(MOST)
    }
}

impl Savings {
    /// Takes this much from what a canvas has saved; returns how much of it was not there.
    pub(super) fn spend(&self, canvas: CanvasId, wanted: Duration) -> Duration {
        let mut canvases = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let left = canvases.get(&canvas).map_or(MOST, Saved::now);
        if canvases.len() >= REMEMBERED_MAX && !canvases.contains_key(&canvas) {
            canvases.retain(|_, saved| saved.now() < MOST);
            if canvases.len() >= REMEMBERED_MAX {
                let mut remembered: Vec<_> = canvases.drain().collect();
                remembered.sort_by_cached_key(|(_, saved)| saved.now());
                remembered.truncate(REMEMBERED_MAX / 2);
                canvases.extend(remembered);
            }
        }
        canvases.insert(canvas, Saved { left: left.saturating_sub(wanted), at: Instant::now() });
        wanted.saturating_sub(left)
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn canvas(number: u128) -> CanvasId {
        CanvasId(Uuid::from_u128(number))
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_spent_is_saved_again_and_no_other_canvas_spends_it() {
        let (savings, second) = (Savings::default(), Duration::from_secs(1));
        assert_eq!(savings.spend(canvas(1), 2 * second), Duration::ZERO);
        assert_eq!(savings.spend(canvas(1), 2 * second), second);
        assert_eq!(savings.spend(canvas(2), 3 * second), Duration::ZERO);
        tokio::time::advance(PART * second).await;
        assert_eq!(savings.spend(canvas(1), 2 * second), second);
        tokio::time::advance(1_000 * PART * second).await;
        assert_eq!(savings.spend(canvas(1), 4 * second), second, "no more than the most is saved");
    }

    #[tokio::test(start_paused = true)]
    async fn few_canvases_are_remembered() {
        let savings = Savings::default();
        savings.spend(canvas(0), MOST);
        for number in 1..3 * REMEMBERED_MAX as u128 {
            savings.spend(canvas(number), Duration::from_millis(1));
        }
        assert!(savings.0.lock().unwrap().len() <= REMEMBERED_MAX);
        assert_eq!(savings.spend(canvas(0), MOST), MOST, "who has spent most is not forgotten");
    }
}
