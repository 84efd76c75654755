//! The job that all peers run, and what is measured as it starts.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Instant;

use anyhow::Result;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);
static STARTED: AtomicU64 = AtomicU64::new(0);
static LATENCIES: LazyLock<Mutex<Option<Histogram<u64>>>> =
    LazyLock::new(|| Mutex::new(Histogram::new_with_max(LONGEST_US, 3).ok()));
/// Longer latencies are recorded as this one: ten minutes.
const LONGEST_US: u64 = 600_000_000;
const PADDING: &str = "eighty bytes of an ordinary payload, such as a few ids, a name and an address...";

/// A job, with the fields that the payload of every other queue has. Its number is its intended
/// start in microseconds; if that is 0, its latency is not measured.
#[derive(Clone, Debug, Deserialize, Serialize, riverqueue::JobArgs)]
#[river(kind = "bench")]
pub(crate) struct Job {
    number: String,
    padding: String,
}

impl Job {
    pub(crate) fn new(due_us: u64) -> Self {
        Self { number: format!("{due_us:020}"), padding: PADDING.to_owned() }
    }

    /// The length of every job's JSON.
    pub(crate) fn bytes() -> Result<usize> {
        Ok(serde_json::to_string(&Self::new(0))?.len())
    }

    fn due_us(&self) -> u64 {
        self.number.parse().unwrap_or(0)
    }
}

pub(crate) fn now_us() -> u64 {
    ORIGIN.elapsed().as_micros() as u64 + 1
}

/// Called as a job starts.
pub(crate) fn start(job: &Job) {
    let due_us = job.due_us();
    if due_us > 0 {
        let latency = now_us().saturating_sub(due_us);
        if let Some(latencies) = &mut *LATENCIES.lock().unwrap_or_else(PoisonError::into_inner) {
            latencies.saturating_record(latency);
        }
    }
    STARTED.fetch_add(1, Ordering::Relaxed);
}

pub(crate) fn started() -> u64 {
    STARTED.load(Ordering::Relaxed)
}

/// Of all latencies so far.
pub(crate) fn percentiles() -> Value {
    let latencies = LATENCIES.lock().unwrap_or_else(PoisonError::into_inner);
    let ms = |of: fn(&Histogram<u64>) -> u64| latencies.as_ref().map_or(0.0, |all| of(all) as f64 / 1000.0);
    json!({
        "p50_ms": ms(|all| all.value_at_quantile(0.5)),
        "p99_ms": ms(|all| all.value_at_quantile(0.99)),
        "max_ms": ms(|all| all.max()),
    })
}
