//! Interruptions: one of the processes that were interrupted together looks for the messages that
//! were sent while they did not listen.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

/// The least pause after an interruption before a process looks for what was missed.
const PAUSE: Duration = Duration::from_millis(250);
/// The longest is this much longer, so that of many processes one is the first.
const SPREAD: Duration = Duration::from_secs(2);
/// How much longer than another's an interruption may be and still count as the same.
const ROUNDING: Duration = Duration::from_secs(2);

/// A time in which this process may have missed messages.
#[derive(Clone, Copy, Debug)]
struct Gap {
    began: Instant,
    ended: Instant,
}

/// The interruptions of this process that were not looked into.
#[derive(Debug, Default)]
pub(super) struct Gaps {
    state: Mutex<GapState>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct GapState {
    gap: Option<Gap>,
    /// When another process last said that it looks for what was missed, and since when.
    looked: Option<Gap>,
}

impl Gaps {
    /// Messages may have been missed for this long until now.
    pub(super) fn add(&self, missed: Duration) {
        let ended = Instant::now();
        let began = ended.checked_sub(missed).unwrap_or(ended);
        let mut state = self.state();
        let began = state.gap.map_or(began, |gap| gap.began.min(began));
        state.gap = Some(Gap { began, ended });
        drop(state);
        self.changed.notify_one();
    }

    /// Another process publishes, from now on, what was missed for this long.
    pub(super) fn looked(&self, missed: Duration) {
        let ended = Instant::now();
        self.state().looked = Some(Gap { began: ended.checked_sub(missed).unwrap_or(ended), ended });
    }

    /// Waits until this process is to publish what was missed; returns since when. One of several
    /// that were interrupted together does so, after a random pause; the others hear what it
    /// publishes. Cancel safe.
    pub(super) async fn next(&self) -> Duration {
        loop {
            if self.state().gap.is_none() {
                self.changed.notified().await;
                continue;
            }
            sleep(pause()).await;
            let mut state = self.state();
            let looked = state.looked;
            let Some(gap) = state.gap.take() else { continue };
            if looked.is_none_or(|looked| looked.ended < gap.ended || looked.began > gap.began + ROUNDING) {
                return gap.began.elapsed();
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, GapState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A random pause.
pub(super) fn pause() -> Duration {
    let share = uuid::Uuid::new_v4().as_u128() % 1_000;
    PAUSE + SPREAD.mul_f64(share as f64 / 1_000.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::timeout;

    const LONG: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn an_interruption_is_looked_into_once_and_soon() {
        let gaps = Gaps::default();
        assert!(timeout(LONG, gaps.next()).await.is_err(), "there was none");
        let begun = Instant::now();
        gaps.add(Duration::from_secs(3));
        gaps.add(Duration::from_secs(1));
        let missed = gaps.next().await;
        let pause = begun.elapsed();
        assert!((PAUSE..=PAUSE + SPREAD).contains(&pause), "{pause:?}");
        assert_eq!(missed, Duration::from_secs(3) + pause, "the longer one, until now");
        assert!(timeout(LONG, gaps.next()).await.is_err(), "once");
    }

    #[tokio::test(start_paused = true)]
    async fn one_interrupted_process_looks_for_all() {
        let gaps = Gaps::default();
        gaps.looked(LONG);
        tokio::time::advance(Duration::from_millis(1)).await;
        gaps.add(LONG);
        gaps.next().await;
        gaps.add(LONG);
        gaps.looked(LONG);
        assert!(timeout(LONG, gaps.next()).await.is_err(), "another looks, and this one hears");
        gaps.add(2 * LONG);
        gaps.looked(LONG);
        assert!(gaps.next().await > 2 * LONG, "the other was interrupted for a shorter time");
    }
}
