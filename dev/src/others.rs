//! Workers of other programs that take notifications from the emulator in this process.

use std::time::{Duration, Instant};

use tokio::time::sleep;
use wakeq_services::PubSub as Emulator;

/// A look reads a list in this process, and makes no request.
const BETWEEN_LOOKS: Duration = Duration::from_millis(200);
/// A worker that leaves may only be starting again.
const GONE_AFTER: Duration = Duration::from_secs(5);

/// The clients of the subscription.
pub(super) struct OtherWorkers<'a> {
    emulator: &'a Emulator,
    subscription: &'a str,
}

impl<'a> OtherWorkers<'a> {
    /// Takes the path of the subscription.
    pub(super) fn new(emulator: &'a Emulator, subscription: &'a str) -> Self {
        Self { emulator, subscription }
    }

    /// Waits for one beside this process's worker; without end if only another process knows.
    pub(super) async fn joined(&self) {
        while self.clients() <= 1 {
            sleep(BETWEEN_LOOKS).await;
        }
    }

    /// Waits until there was none for a while.
    pub(super) async fn left(&self) {
        let mut last_seen = Instant::now();
        while last_seen.elapsed() < GONE_AFTER {
            sleep(BETWEEN_LOOKS).await;
            if self.clients() > 0 {
                last_seen = Instant::now();
            }
        }
    }

    fn clients(&self) -> usize {
        self.emulator.clients(self.subscription).unwrap_or(0)
    }
}
