//! Measures an attempt's time, and knows for which canvas it is. The clock is stopped while the
//! attempt waits for capacity in its own process, which does not count towards the target's
//! timeout.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use wakeq::CanvasId;

tokio::task_local! {
    /// The clock of the current task's attempt: the HTTP client between the attempt and its
    /// connections can't pass it on.
    static CURRENT: AttemptClock;
}

/// Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct AttemptClock {
    canvas: CanvasId,
    waits: Arc<watch::Sender<Waits>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Waits {
    active: u32,
    since: Option<Instant>,
    total: Duration,
}

/// The attempt exceeded its time limit.
#[derive(Debug)]
pub(super) struct AttemptTimedOut;

impl AttemptClock {
    pub(super) fn new(canvas: CanvasId) -> Self {
        Self { canvas, waits: Arc::new(watch::Sender::new(Waits::default())) }
    }

    /// The canvas of the attempt.
    pub(super) fn canvas(&self) -> CanvasId {
        self.canvas
    }

    /// The clock of the current task's attempt.
    pub(super) fn current() -> Self {
        CURRENT.try_with(Clone::clone).unwrap_or_else(|_| Self::new(CanvasId::DEFAULT))
    }

    /// Runs an attempt until its time limit, which is extended by the time that the clock is
    /// stopped.
    pub(super) async fn within<F: Future>(
        &self,
        limit: Duration,
        work: F,
    ) -> Result<F::Output, AttemptTimedOut> {
        let begun = Instant::now();
        let mut work = pin!(CURRENT.scope(self.clone(), work));
        let mut waits = self.waits.subscribe();
        loop {
            let Waits { since, total, .. } = *waits.borrow_and_update();
            tokio::select! {
                biased;
                done = &mut work => return Ok(done),
                Ok(()) = waits.changed() => {}
                () = sleep_until(begun + limit + total), if since.is_none() => return Err(AttemptTimedOut),
            }
        }
    }

    /// The total time that the clock was stopped, not counting a stop in progress.
    pub(super) fn waited(&self) -> Duration {
        self.waits.borrow().total
    }

    /// Stops the clock until the guard is dropped.
    pub(super) fn pause(&self) -> ClockPause {
        self.waits.send_modify(|waits| {
            waits.active += 1;
            waits.since.get_or_insert_with(Instant::now);
        });
        ClockPause { clock: self.clone() }
    }
}

/// Keeps the clock stopped until it is dropped.
pub(super) struct ClockPause {
    clock: AttemptClock,
}

impl Drop for ClockPause {
    fn drop(&mut self) {
        self.clock.waits.send_modify(|waits| {
            waits.active -= 1;
            if waits.active == 0 {
                waits.total += waits.since.take().map(|since| since.elapsed()).unwrap_or_default();
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::sleep;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(30);

    async fn ends_in_time(waits_s: u64, works_s: u64) -> bool {
        let work = async {
            sleep(Duration::from_secs(works_s / 2)).await;
            let pause = AttemptClock::current().pause();
            sleep(Duration::from_secs(waits_s)).await;
            drop(pause);
            sleep(Duration::from_secs(works_s - works_s / 2)).await;
        };
        AttemptClock::new(CanvasId::DEFAULT).within(LIMIT, work).await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_for_capacity_does_not_use_up_the_timeout() {
        assert!(ends_in_time(0, 29).await);
        assert!(!ends_in_time(0, 31).await);
        assert!(ends_in_time(100, 29).await, "it has worked for 29 s");
        assert!(!ends_in_time(100, 31).await, "it has worked for 31 s");
    }

    #[tokio::test(start_paused = true)]
    async fn the_clock_runs_when_no_wait_is_in_progress() {
        let clock = AttemptClock::new(CanvasId::DEFAULT);
        let (first, second) = (clock.pause(), clock.pause());
        sleep(Duration::from_secs(1)).await;
        drop(first);
        sleep(Duration::from_secs(2)).await;
        drop(second);
        assert_eq!(clock.waited(), Duration::from_secs(3));
        assert!(clock.within(LIMIT, std::future::pending::<()>()).await.is_err());
    }
}
