//! The waits of a reader that follows a source: until the source has grown, or it is time to look
//! again. The reader decides what is read, and what an error means.

use std::time::Duration;

use tokio::sync::watch;
use wakeq::internals::spread;

/// The waits of a reader. Delays after failures, and before looks for what an open transaction
/// holds back, double each time, up to the longest one.
pub(crate) struct Waits {
    grown: watch::Receiver<u64>,
    poll_interval: Duration,
    longest: Duration,
    /// Half the first delay after a failure, and before a look for what is held back.
    first: (Duration, Duration),
    last: (Duration, Duration),
}

impl Waits {
    pub(crate) fn new(
        grown: watch::Receiver<u64>,
        poll_interval: Duration,
        longest: Duration,
        first: (Duration, Duration),
    ) -> Self {
        Self { grown, poll_interval, longest, first, last: first }
    }

    /// Begins a look. Events that are appended from here on are read by it, or end the next wait.
    pub(crate) fn looks(&mut self) {
        self.grown.mark_unchanged();
    }

    /// The wait after everything was read, but for what an open transaction holds back.
    pub(crate) fn after_all(&mut self, held: bool) -> Duration {
        let doubled = self.doubled(self.last.1);
        self.last = (self.first.0, if held { doubled } else { self.first.1 });
        if held { doubled } else { self.poll_interval }
    }

    /// The wait after a failure, with its jitter.
    pub(crate) fn after_failure(&mut self) -> Duration {
        self.last.0 = self.doubled(self.last.0);
        spread(self.last.0)
    }

    fn doubled(&self, wait: Duration) -> Duration {
        wait.saturating_mul(2).min(self.longest)
    }

    /// Returns once the source has grown.
    pub(crate) async fn grown(&mut self) {
        grown(&mut self.grown).await;
    }
}

/// Returns at the next signal. Without a sender there are none.
pub(crate) async fn grown(signals: &mut watch::Receiver<u64>) {
    if signals.changed().await.is_err() {
        std::future::pending().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_after_failures_double_and_differ() {
        let (_sender, grown) = watch::channel(0);
        let (poll, first) = (Duration::from_secs(1), Duration::from_millis(100));
        let mut waits = Waits::new(grown, poll, poll, (first, first));
        for least_ms in [200, 400, 800, 1_000, 1_000] {
            let (least, wait) = (Duration::from_millis(least_ms), waits.after_failure());
            assert!((least..=least + least / 5).contains(&wait), "{wait:?} after {least:?}");
        }
    }
}
