//! The end of a test that does not end by itself: its process stops, and says which test it was.
//!
//! The harness runs tests as threads, which nothing can stop. It must never end a test that still
//! has time.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::choice::say;

/// Many times what the longest test takes on a busy machine, and less than all tests may take.
const USUAL: Duration = Duration::from_secs(420);
const BETWEEN_LOOKS: Duration = Duration::from_secs(1);
/// As after a failed test.
const EXIT_CODE: i32 = 101;

static RUNNING: LazyLock<Mutex<HashMap<u64, (String, Instant)>>> = LazyLock::new(|| {
    std::thread::spawn(watch);
    Mutex::default()
});

/// A test that has begun; it has ended when this is dropped. If that takes more than 7 minutes, or
/// `TEST_LIMIT_S` seconds, the process ends with the test's name.
///
/// A [`TestDatabase`](crate::TestDatabase) has one. Tests without a database begin it themselves.
#[derive(Debug)]
pub struct TestTime(u64);

impl TestTime {
    /// Begins the time of the test that this thread runs.
    pub fn begin() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = std::thread::current().name().unwrap_or("a test").to_owned();
        running().insert(id, (name, Instant::now()));
        Self(id)
    }
}

impl Drop for TestTime {
    fn drop(&mut self) {
        running().remove(&self.0);
    }
}

fn running() -> MutexGuard<'static, HashMap<u64, (String, Instant)>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

// It is a thread of its own that no test waits for, and there is no other way to end one.
#[allow(clippy::disallowed_methods, reason = "it ends the process while a test hangs")]
fn watch() {
    let limit = limit(std::env::var("TEST_LIMIT_S").ok().as_deref());
    loop {
        std::thread::sleep(BETWEEN_LOOKS);
        let late = overdue(&running(), limit, Instant::now());
        if let Some(name) = late {
            say(&format!(
                "{name} has not ended after {} s, so all tests of its binary end here; TEST_LIMIT_S allows more",
                limit.as_secs()
            ));
            std::process::exit(EXIT_CODE);
        }
    }
}

fn limit(chosen: Option<&str>) -> Duration {
    chosen.and_then(|seconds| seconds.parse().ok()).map_or(USUAL, Duration::from_secs)
}

/// The name of a test that has run for longer than it may.
fn overdue(running: &HashMap<u64, (String, Instant)>, limit: Duration, now: Instant) -> Option<String> {
    let mut late = running.values().filter(|(_, began)| now.duration_since(*began) > limit);
    late.next().map(|(name, _)| name.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_test_beyond_its_limit_is_overdue() {
        let began = Instant::now();
        let running = HashMap::from([
            (1, ("early".to_owned(), began)),
            (2, ("late".to_owned(), began + Duration::from_secs(5))),
        ]);
        let after = |seconds| overdue(&running, USUAL, began + Duration::from_secs(seconds));
        assert_eq!(after(420), None);
        assert_eq!(after(421).as_deref(), Some("early"));
        assert_eq!(limit(Some("7200")), Duration::from_secs(7200));
        assert_eq!(limit(Some("soon")), USUAL);
    }
}
