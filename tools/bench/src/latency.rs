//! Latency free of coordinated omission: each event has an intended start, fixed before the run,
//! and its latency counts from then, even if the emitter was late because the system was slow.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::subject::{Seen, WARM};

/// Closer starts share a moment: a thread that wakes more often would compete with Postgres.
const SHORTEST: Duration = Duration::from_millis(1);

/// Longer latencies are recorded as this one: ten minutes.
const LONGEST_US: u64 = 600_000_000;

/// When events are intended to start: some at each tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pace {
    tick: Duration,
    each: u64,
}

impl Pace {
    /// All at the beginning.
    pub(crate) const AT_ONCE: Self = Self { tick: Duration::ZERO, each: 1 };

    pub(crate) fn per_second(rate: u32) -> Self {
        let tick = (Duration::from_secs(1) / rate).max(SHORTEST);
        Self { tick, each: u64::from(rate).div_ceil(1000) }
    }

    /// How long after the beginning an event is intended to start.
    fn due(self, number: u64) -> Duration {
        self.tick * u32::try_from(number / self.each).unwrap_or(u32::MAX)
    }
}

/// The latencies of the events with the numbers from 0 up to a count.
pub(crate) struct Latencies {
    pace: Pace,
    began: OnceLock<Instant>,
    seen: Vec<AtomicBool>,
    left: AtomicU64,
    histogram: Mutex<Histogram<u64>>,
}

/// In milliseconds.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Percentiles {
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    pub(crate) max_ms: f64,
}

impl Latencies {
    pub(crate) fn new(count: u64, pace: Pace) -> anyhow::Result<Arc<Self>> {
        Ok(Arc::new(Self {
            pace,
            began: OnceLock::new(),
            seen: (0..count).map(|_| AtomicBool::new(false)).collect(),
            left: AtomicU64::new(count),
            histogram: Mutex::new(Histogram::new_with_max(LONGEST_US, 3)?),
        }))
    }

    pub(crate) fn begin(&self) {
        self.began.get_or_init(Instant::now);
    }

    /// What handlers call as they start. Events for warming up are not counted, nor is an event's
    /// second start.
    pub(crate) fn seen(self: &Arc<Self>) -> Seen {
        let latencies = Arc::clone(self);
        Arc::new(move |number| {
            if number < WARM {
                latencies.started(number);
            }
        })
    }

    fn started(&self, number: u64) {
        let now = Instant::now();
        let (Some(began), Some(seen)) = (self.began.get(), self.seen.get(number as usize)) else { return };
        if seen.swap(true, Ordering::Relaxed) {
            return;
        }
        let latency = now.saturating_duration_since(*began + self.pace.due(number));
        let mut histogram = self.histogram.lock().unwrap_or_else(PoisonError::into_inner);
        histogram.saturating_record(latency.as_micros() as u64);
        drop(histogram);
        self.left.fetch_sub(1, Ordering::Release);
    }

    pub(crate) fn count(&self) -> u64 {
        self.seen.len() as u64
    }

    /// How many have not started.
    pub(crate) fn left(&self) -> u64 {
        self.left.load(Ordering::Acquire)
    }

    pub(crate) fn percentiles(&self) -> Percentiles {
        let histogram = self.histogram.lock().unwrap_or_else(PoisonError::into_inner);
        let ms = |micros: u64| micros as f64 / 1000.0;
        Percentiles {
            p50_ms: ms(histogram.value_at_quantile(0.5)),
            p99_ms: ms(histogram.value_at_quantile(0.99)),
            max_ms: ms(histogram.max()),
        }
    }

    /// Begins, and calls `start` with each number at its moment, on a thread of its own: it never
    /// waits for what it started.
    pub(crate) fn pace(self: &Arc<Self>, start: impl Fn(u64) + Send + 'static) -> JoinHandle<()> {
        self.begin();
        let latencies = Arc::clone(self);
        thread::spawn(move || {
            let Some(began) = latencies.began.get() else { return };
            for number in 0..latencies.count() {
                let due = *began + latencies.pace.due(number);
                while let Some(wait) =
                    due.checked_duration_since(Instant::now()).filter(|wait| !wait.is_zero())
                {
                    thread::park_timeout(wait);
                }
                start(number);
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_are_spread_evenly() {
        let due = |rate, number| Pace::per_second(rate).due(number);
        assert_eq!(due(100, 1), Duration::from_millis(10));
        assert_eq!(due(500, 500), Duration::from_secs(1));
        assert_eq!((due(10_000, 9), due(10_000, 10)), (Duration::ZERO, Duration::from_millis(1)));
        assert_eq!(due(10_000, 10_000), Duration::from_secs(1));
        assert_eq!(Pace::AT_ONCE.due(99), Duration::ZERO);
    }

    #[test]
    fn a_late_emitter_counts_as_latency_and_a_second_start_does_not() {
        let latencies = Latencies::new(2, Pace::per_second(1000)).unwrap();
        latencies.began.set(Instant::now() - Duration::from_millis(20)).unwrap();
        let seen = latencies.seen();
        for number in [0, 0, 1, WARM] {
            seen(number);
        }
        assert_eq!(latencies.left(), 0);
        assert!(latencies.percentiles().p50_ms >= 19.0);
        assert_eq!(latencies.histogram.lock().unwrap().len(), 2);
    }
}
