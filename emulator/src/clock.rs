//! Where the emulator's time comes from: the system, tokio, or a hand.
//!
//! The broker never reads a clock; the server reads this one and waits by it.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::broker::Time;

/// The emulator's time. The default is the system's.
///
/// Leases, back-offs, retention and expiry go by it. How long a request waits for its answer does not: that is a
/// matter of the network, whose patience is real.
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
    /// The time of the machine.
    pub fn system() -> Self {
        Self::default()
    }

    /// Tokio's: begins at the machine's time and goes on as tokio's clock does, so that a test which pauses tokio's
    /// clock and advances it moves the emulator's time. Call it in the runtime that the emulator is started in.
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

    /// Until it is that time or, by a hair, sooner: timers count in milliseconds, and a machine's clock may be set.
    pub(crate) async fn sleep_until(&self, time: Time) {
        match &self.0 {
            Source::System | Source::Tokio { .. } => {
                tokio::time::sleep(time.since(self.now()).max(SHORTEST_SLEEP)).await;
            }
            Source::Manual(clock) => clock.reaches(time).await,
        }
    }
}

/// A clock that says something is due while the timer says it isn't must not become a busy loop.
const SHORTEST_SLEEP: Duration = Duration::from_millis(1);

/// A clock that stands still until it is moved: a test moves days in microseconds.
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
    /// Stands at that time.
    pub fn starting_at(time: Time) -> Self {
        Self(Arc::new(watch::Sender::new(time)))
    }

    /// What it says.
    pub fn now(&self) -> Time {
        *self.0.borrow()
    }

    /// Moves it on. Every request that is made afterwards sees what became of that.
    pub fn advance(&self, by: Duration) {
        self.0.send_modify(|time| *time = *time + by);
    }

    async fn reaches(&self, due: Time) {
        let mut moves = self.0.subscribe();
        // The sender is this clock's own and outlives the wait.
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
    async fn tokio_s_clock_moves_it() {
        let clock = Clock::tokio();
        let began = clock.now();
        tokio::time::advance(DAY).await;
        assert_eq!(clock.now().since(began), DAY);
        clock.sleep_until(began + DAY + DAY).await;
        assert!(clock.now().since(began) >= DAY + DAY);
    }

    #[tokio::test]
    async fn a_hand_moves_it() {
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
