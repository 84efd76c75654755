//! How long connections are held, for callers who judge statements by their time. Waits for a
//! permit or for a free connection are not included, since they tell nothing about a statement, and
//! callers can make each other wait.

use std::cell::Cell;
use std::time::Duration;

use tokio::time::Instant;

tokio::task_local! {
    static HELD: Cell<Duration>;
}

/// Runs a future; also returns for how long it held connections in this task, added up, without
/// what is timed within it.
pub(in crate::store) async fn timed<F: Future>(work: F) -> (F::Output, Duration) {
    let timing = async move {
        let output = work.await;
        (output, HELD.with(Cell::get))
    };
    HELD.scope(Cell::default(), timing).await
}

/// Exists as long as a connection is held.
pub(super) struct Held(Instant);

impl Held {
    pub(super) fn begin() -> Self {
        Self(Instant::now())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // Most tasks are not timed.
        let _ = HELD.try_with(|held| held.set(held.get().saturating_add(self.0.elapsed())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn hold(millis: u64) {
        let _held = Held::begin();
        tokio::time::sleep(Duration::from_millis(millis)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn only_what_is_held_is_timed() {
        hold(1).await;
        let work = async {
            tokio::time::sleep(Duration::from_secs(60)).await;
            hold(20).await;
            let ((), within) = timed(hold(3_000)).await;
            hold(4).await;
            within
        };
        let (within, took) = timed(work).await;
        assert_eq!((within.as_millis(), took.as_millis()), (3_000, 24));
    }
}
