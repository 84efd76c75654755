//! Statistics: columns that are ready for a chart.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use wakeq::control::{DurationHistogram, Statistics, StatisticsPoint};

/// What happened to the events of a handler, or of a canvas, in steps of time. All arrays have an
/// element for each step.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = Statistics)]
pub(crate) struct StatisticsJson {
    /// The length of a step, in seconds.
    #[schema(minimum = 60)]
    pub(crate) step_s: u64,
    /// When each step begins.
    pub(crate) at: Vec<DateTime<Utc>>,
    /// Events that were emitted, by crons too.
    pub(crate) emitted: Vec<u64>,
    /// Events that completed, also with an error value.
    pub(crate) completed: Vec<u64>,
    /// Attempts that failed.
    pub(crate) failed: Vec<u64>,
    /// Attempts that failed and will be retried.
    pub(crate) retried: Vec<u64>,
    /// Events that became dead events.
    pub(crate) dead: Vec<u64>,
    /// How long events had been due when attempts at them began.
    pub(crate) wait: TimesJson,
    /// How long attempts took.
    pub(crate) run: TimesJson,
}

/// How long something took in each step. Quantiles are estimates, from bins of which each is twice
/// as wide as the one before.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[schema(as = StatisticsTimes)]
pub(crate) struct TimesJson {
    /// Number of attempts.
    pub(crate) count: Vec<u64>,
    /// The mean in seconds; null without attempts.
    pub(crate) mean_s: Vec<Option<f64>>,
    /// The median in seconds.
    pub(crate) p50_s: Vec<Option<f64>>,
    /// The 95th percentile in seconds.
    pub(crate) p95_s: Vec<Option<f64>>,
    /// The 99th percentile in seconds.
    pub(crate) p99_s: Vec<Option<f64>>,
}

impl From<Statistics> for StatisticsJson {
    fn from(Statistics { step, points, .. }: Statistics) -> Self {
        let column = |count: fn(&StatisticsPoint) -> u64| points.iter().map(count).collect();
        Self {
            step_s: step.as_secs(),
            at: points.iter().map(|point| point.at).collect(),
            emitted: column(|point| point.counts.emitted),
            completed: column(|point| point.counts.completed),
            failed: column(|point| point.counts.failed),
            retried: column(|point| point.counts.retried),
            dead: column(|point| point.counts.dead),
            wait: points.iter().map(|point| &point.counts.wait).collect(),
            run: points.iter().map(|point| &point.counts.run).collect(),
        }
    }
}

impl<'a> FromIterator<&'a DurationHistogram> for TimesJson {
    fn from_iter<T: IntoIterator<Item = &'a DurationHistogram>>(histograms: T) -> Self {
        let mut times = Self::default();
        for histogram in histograms {
            times.count.push(histogram.count());
            times.mean_s.push(seconds(histogram.mean()));
            times.p50_s.push(seconds(histogram.quantile(0.5)));
            times.p95_s.push(seconds(histogram.quantile(0.95)));
            times.p99_s.push(seconds(histogram.quantile(0.99)));
        }
        times
    }
}

/// To the microsecond.
fn seconds(duration: Option<Duration>) -> Option<f64> {
    let micros = duration.map(|duration| duration.as_micros())?;
    Some(micros as f64 / 1e6)
}
