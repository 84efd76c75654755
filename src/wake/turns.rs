//! A canvas's turn to publish a page: once workers have taken enough of what was published before.

use std::time::Duration;

use super::Waker;
use super::pace::CanvasTurn;
use crate::event::CanvasId;

/// How soon those that wait for a canvas's turn look again at what workers have taken.
const LOOK_PERIOD: Duration = Duration::from_millis(100);
/// How seldom they look where workers take nothing: the pause is doubled until it is this long.
const LOOK_PERIOD_MAX: Duration = Duration::from_secs(2);

impl Waker {
    /// The canvas's turn to publish this many events; `None` if it does not come within the time
    /// limit.
    pub(super) async fn turn(&self, canvas: CanvasId, events: usize) -> Option<CanvasTurn> {
        let turn = self.turn_with_room(canvas, events);
        match self.until {
            Some(until) => tokio::time::timeout_at(until, turn).await.ok(),
            None => Some(turn.await),
        }
    }

    /// The canvas's turn, once workers have taken enough of the events that were published before
    /// to leave room for this many more.
    async fn turn_with_room(&self, canvas: CanvasId, events: usize) -> CanvasTurn {
        let mut turn = self.pace.turn(canvas).await;
        let mut pause = LookPause::default();
        while let Some(wait) = turn.wait(events) {
            let taken = self.look(&mut turn, wait).await;
            let longest = pause.after(taken);
            tokio::time::sleep(turn.wait(events).unwrap_or_default().min(longest)).await;
        }
        self.pace.page().await;
        turn
    }

    /// Looks at what workers have taken; returns how many events those are. One canvas looks at a
    /// time, so that however many wait, the pool is free for others. A canvas waits for that no
    /// longer than until there is room without a look.
    async fn look(&self, turn: &mut CanvasTurn, patience: Duration) -> usize {
        let asked = turn.asked();
        if asked.is_empty() {
            return 0;
        }
        let Ok(_looking) = tokio::time::timeout(patience, self.pace.looking.lock()).await else { return 0 };
        match self.store.still_waiting(&asked).await {
            Ok(waiting) => turn.still_wait(&waiting),
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::debug!(error, "could not find out which events workers have taken");
                0
            }
        }
    }
}

/// How long a canvas waits between two looks.
struct LookPause {
    next: Duration,
}

impl Default for LookPause {
    fn default() -> Self {
        Self { next: LOOK_PERIOD }
    }
}

impl LookPause {
    /// The pause after a look that saw this many events taken.
    fn after(&mut self, taken: usize) -> Duration {
        let pause = if taken > 0 { LOOK_PERIOD } else { self.next };
        self.next = (2 * pause).min(LOOK_PERIOD_MAX);
        pause
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{Instant, timeout};

    use super::*;
    use crate::event::{EventId, Notification};
    use crate::store::tests::Table;
    use crate::store::tests::crowds::{FEW, MANY};
    use crate::wake::backlog::tests::waker;

    #[test]
    fn looks_become_rare_where_workers_take_nothing() {
        let mut pause = LookPause::default();
        let pauses = [0, 0, 0, 0, 0, 0, 0, 7, 0].map(|taken| pause.after(taken).as_millis());
        assert_eq!(pauses, [100, 200, 400, 800, 1_600, 2_000, 2_000, 100, 200]);
    }

    /// While one canvas looks, however long that takes, others have the turns that come without a
    /// look, and none of them uses a connection.
    #[tokio::test]
    async fn one_canvas_looks_at_a_time_and_the_others_have_their_turns() {
        let table = Table::new().await;
        let (waker, _) = waker(&table, 100);
        let start = Instant::now();
        for canvas in [MANY, FEW] {
            let told: Vec<_> = (0..200).map(|_| Notification::new(EventId::new(), canvas)).collect();
            waker.pace.turn(canvas).await.took(&told);
        }
        let looking = waker.pace.looking.lock().await;
        let both = async { tokio::join!(waker.turn(MANY, 10), waker.turn(FEW, 10)) };
        let turns = timeout(Duration::from_secs(20), both).await;
        assert!(turns.is_ok(), "a look of another canvas holds them up");
        assert!(start.elapsed() > Duration::from_millis(500), "they looked: {:?}", start.elapsed());
        drop((turns, looking));
        let turn = timeout(Duration::from_secs(5), waker.turn(MANY, 200)).await;
        assert!(turn.is_ok(), "the next look sees that all of them were taken");
    }
}
