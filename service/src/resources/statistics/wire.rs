//! Statistics: columns that are ready for a chart.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use wakeq::control::{DurationHistogram, EventCounts, Statistics, StatisticsPoint};

/// What happened to the events of a handler, or of a canvas, in steps of time. All arrays but those
/// of `bins` have an element for each step.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
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
    /// How both are spread over the whole time.
    #[serde(default)]
    pub(crate) bins: BinsJson,
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

/// How many attempts waited, and took, how long in the whole time. Of the bins each is twice as
/// wide as the one before, and those after the last that has something are left out.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = StatisticsBins)]
pub(crate) struct BinsJson {
    /// Where each bin ends, in milliseconds, and the next one begins; null for the 28th, which has
    /// no end.
    pub(crate) below_ms: Vec<Option<u64>>,
    /// Attempts whose events had been due for so long when they began.
    pub(crate) wait: Vec<u64>,
    /// Attempts that took so long.
    pub(crate) run: Vec<u64>,
}

impl From<Statistics> for StatisticsJson {
    fn from(statistics: Statistics) -> Self {
        let bins = BinsJson::of(&statistics.whole());
        let Statistics { step, points, .. } = statistics;
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
            bins,
        }
    }
}

impl BinsJson {
    fn of(EventCounts { wait, run, .. }: &EventCounts) -> Self {
        let (wait, run) = (wait.bins(), run.bins());
        let last = wait.iter().zip(run).rposition(|(waited, ran)| *waited > 0 || *ran > 0);
        let count = last.map_or(0, |last| last + 1);
        let below_ms = |bin: usize| {
            let end = (bin + 1 < wait.len()).then(|| DurationHistogram::bin_start(bin + 1))?;
            u64::try_from(end.as_millis()).ok()
        };
        let below_ms = (0..count).map(below_ms).collect();
        Self { below_ms, wait: wait[..count].to_vec(), run: run[..count].to_vec() }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_say_where_they_end() {
        let mut counts = EventCounts::default();
        assert_eq!(BinsJson::of(&counts), BinsJson::default());
        for ms in [0, 3, 3] {
            counts.wait.record(Duration::from_millis(ms));
        }
        counts.run.record(Duration::from_millis(1));
        let expected =
            BinsJson { below_ms: vec![Some(1), Some(2), Some(4)], wait: vec![1, 0, 2], run: vec![0, 1, 0] };
        assert_eq!(BinsJson::of(&counts), expected);
        counts.run.record(Duration::from_secs(100 * 3_600));
        let ends = BinsJson::of(&counts).below_ms;
        assert_eq!((ends.len(), ends[26], ends[27]), (28, Some(1 << 26), None));
    }
}
