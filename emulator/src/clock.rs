//! The source of the emulator's time: the system, tokio, or a test.
//!
//! The broker never reads a clock; the server reads this one and sleeps by it.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::broker::Time;

/// The emulator's time; the system's by default.
///
/// It governs leases, back-offs, retention and expiry, but not how long a request waits for its
/// answer, which concerns the network.
#[derive(Clone, Debug, Default)]
pub struct Clock(Source);

#[derive(Clone, Debug, Default)]
enum Source {
    #[default]
    System,
    Tokio {
        began: Time,
        at: Instant,
    },
    Manual(ManualClock),
}

impl Clock {
    /// The machine's clock.
    pub fn system() -> Self {
        Self::default()
    }

    /// Tokio's clock: starts at the machine's time and then follows tokio's, so that a test that
    /// pauses and advances tokio's clock moves the emulator's time. Call it in the runtime in which
    /// the emulator is started.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> std::io::Result<()> {
    /// use wakeq_emulator::{Clock, Emulator, Options};
    ///
    /// let options = Options { clock: Clock::tokio(), ..Options::default() };
    /// let emulator = Emulator::start("127.0.0.1:0".parse().unwrap(), options).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn tokio() -> Self {
        Self(Source::Tokio { began: Time::now(), at: Instant::now() })
    }

    pub(crate) fn now(&self) -> Time {
        match &self.0 {
            Source::System => Time::now(),
            Source::Tokio { began, at } => *began + at.elapsed(),
            Source::Manual(clock) => clock.now(),
        }
    }

    /// Returns at that time or slightly sooner: timers have a resolution of milliseconds, and a
    /// machine's clock may be set.
    pub(crate) async fn sleep_until(&self, time: Time) {
        match &self.0 {
            Source::System | Source::Tokio { .. } => {
                tokio::time::sleep(time.since(self.now()).max(SHORTEST_SLEEP)).await;
            }
            Source::Manual(clock) => clock.reaches(time).await,
        }
    }
}

/// Prevents a busy loop while the clock says that something is due and the timer says that it is
/// not.
const SHORTEST_SLEEP: Duration = Duration::from_millis(1);

/// A clock that only moves when it is told to: a test can skip days in microseconds.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// use std::time::Duration;
/// use wakeq_emulator::broker::Time;
/// use wakeq_emulator::{Emulator, ManualClock, Options};
///
/// let clock = ManualClock::starting_at(Time::from_secs(1_700_000_000));
/// let options = Options { clock: clock.clone().into(), ..Options::default() };
/// let emulator = Emulator::start("127.0.0.1:0".parse().unwrap(), options).await?;
/// clock.advance(Duration::from_secs(7 * 24 * 60 * 60)); // what was published before is past its retention
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct ManualClock(Arc<watch::Sender<Time>>);

impl ManualClock {
    /// A clock that is stopped at this time.
    pub fn starting_at(time: Time) -> Self {
        Self(Arc::new(watch::Sender::new(time)))
    }

    /// Its current time.
    pub fn now(&self) -> Time {
        *self.0.borrow()
    }

    /// Moves it forward. Every later request sees the effects.
    pub fn advance(&self, by: Duration) {
        self.0.send_modify(|time| *time = *time + by);
    }

    async fn reaches(&self, due: Time) {
        let mut moves = self.0.subscribe();
        // This clock owns the sender, which therefore outlives the wait.
        let _reached = moves.wait_for(|time| *time >= due).await;
    }
}

impl From<ManualClock> for Clock {
    fn from(clock: ManualClock) -> Self {
        Self(Source::Manual(clock))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(24 * 60 * 60);

    #[tokio::test(start_paused = true)]
    async fn the_tokio_clock_follows_virtual_time() {
        let clock = Clock::tokio();
        let began = clock.now();
        tokio::time::advance(DAY).await;
        assert_eq!(clock.now().since(began), DAY);
        clock.sleep_until(began + DAY + DAY).await;
        assert!(clock.now().since(began) >= DAY + DAY);
    }

    #[tokio::test]
    async fn the_manual_clock_wakes_sleepers() {
        let manual = ManualClock::starting_at(Time::from_secs(1_000));
        let clock = Clock::from(manual.clone());
        let due = clock.now() + DAY;
        let sleeper = tokio::spawn(async move { clock.sleep_until(due).await });
        tokio::task::yield_now().await;
        assert!(!sleeper.is_finished());
        manual.advance(DAY);
        sleeper.await.unwrap();
    }
}
