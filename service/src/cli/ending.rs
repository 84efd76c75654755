//! The end of a long-running process: when it was told to end, and by when all of it has to be
//! over.
//!
//! Only keeps the time, and must not know what there is to end.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::Context as _;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use wakeq::shutdown_signal;

/// The longest time from the grace's end to the end of the parts. Some of the whole is left for
/// what comes after them.
const PARTS: Duration = Duration::from_millis(1_700);
/// The longest time from the grace's end to the end of all: the platform's limit is 2 s after the
/// grace, of which the runtime needs the rest.
const WHOLE: Duration = Duration::from_millis(1_900);

/// The end of a process.
#[derive(Clone, Default)]
pub(crate) struct Ending {
    stop: CancellationToken,
    /// Cancelled by a signal only, and not by a part or the program.
    told: CancellationToken,
    /// When it was told to stop.
    begun: Arc<OnceLock<Instant>>,
    /// How long work may go on then: not at all before it was begun.
    grace: Arc<OnceLock<Duration>>,
}

impl Ending {
    /// Cancelled once the process has to stop.
    pub(crate) fn stop(&self) -> &CancellationToken {
        &self.stop
    }

    /// Cancelled once a signal has told the process to stop.
    pub(crate) fn told(&self) -> &CancellationToken {
        &self.told
    }

    /// Listens for SIGTERM until the handle is dropped.
    pub(crate) fn listen(&self) -> anyhow::Result<AbortOnDropHandle<()>> {
        let signal = shutdown_signal().context("listen for SIGTERM")?;
        let ending = self.clone();
        Ok(AbortOnDropHandle::new(tokio::spawn(async move {
            signal.await;
            tracing::info!("asked to stop");
            ending.begin();
        })))
    }

    fn begin(&self) {
        self.begun.get_or_init(Instant::now);
        self.told.cancel();
        self.stop.cancel();
    }

    /// Sets the grace, once it is known.
    pub(crate) fn grant(&self, grace: Duration) {
        self.grace.get_or_init(|| grace);
    }

    fn grace(&self) -> Duration {
        self.grace.get().copied().unwrap_or_default()
    }

    /// Returns when the parts have to be over.
    pub(crate) async fn over(&self) {
        self.stop.cancelled().await;
        // A part that has ended, or the program itself, stops the others without a signal.
        let begun = *self.begun.get_or_init(Instant::now);
        tokio::time::sleep_until(begun + self.grace() + PARTS).await;
    }

    /// Does the last work, for as long as the whole end may take.
    pub(crate) async fn within(&self, last: impl Future<Output = ()>) {
        let Some(begun) = self.begun.get() else { return last.await };
        if tokio::time::timeout_at(*begun + self.grace() + WHOLE, last).await.is_err() {
            tracing::warn!("the process ends before its last broadcasts, metrics and traces were sent");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    /// The time that the platform adds to the grace.
    const LIMIT: Duration = Duration::from_secs(2);

    #[tokio::test(start_paused = true)]
    async fn all_of_it_is_over_in_time_whatever_holds_it_up() {
        for grace in [None, Some(Duration::from_secs(10))] {
            let (ending, begun) = (Ending::default(), Instant::now());
            if let Some(grace) = grace {
                ending.grant(grace);
            }
            ending.begin();
            ending.over().await;
            ending.within(pending()).await;
            let (grace, lasted) = (grace.unwrap_or_default(), begun.elapsed());
            assert!(grace < lasted && lasted < grace + LIMIT, "{lasted:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_command_that_was_not_told_to_stop_takes_its_time() {
        let (ending, begun) = (Ending::default(), Instant::now());
        ending.within(tokio::time::sleep(LIMIT * 10)).await;
        assert!(begun.elapsed() >= LIMIT * 10);
    }
}
