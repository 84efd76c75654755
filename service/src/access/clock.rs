//! The clock against which credentials are checked: this machine's, which tests can advance. Its
//! times are never stored, nor compared with times in the database.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

/// This machine's clocks: the monotonic one for the age of cached entries, the wall clock for
/// timestamps that Google signed.
///
/// ```
/// use std::time::Duration;
///
/// let clock = wakeq_service::access::Clock::default();
/// clock.advance(Duration::from_secs(60)); // for tests: nothing has to wait
/// ```
#[derive(Clone, Debug, Default)]
pub struct Clock {
    ahead_ms: Arc<AtomicU64>,
}

impl Clock {
    /// Advances this clock and all its clones.
    pub fn advance(&self, by: Duration) {
        let by_ms = u64::try_from(by.as_millis()).unwrap_or(u64::MAX);
        self.ahead_ms.fetch_add(by_ms, Ordering::SeqCst);
    }

    /// Monotonic time, for measuring ages.
    pub(super) fn now(&self) -> Instant {
        Instant::now() + self.ahead()
    }

    /// Seconds since 1970, for comparison with another machine's timestamps.
    pub(super) fn unix_seconds(&self) -> u64 {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        (since + self.ahead()).as_secs()
    }

    fn ahead(&self) -> Duration {
        Duration::from_millis(self.ahead_ms.load(Ordering::SeqCst))
    }
}
