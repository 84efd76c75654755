//! `wakeq stats --history`: what happened to the events of a handler or of the canvas, as a table.

use std::time::{Duration, SystemTime};

use clap::Args;

use crate::cli::arguments::HandlerName;
use crate::cli::client::{Client, Request};
use crate::cli::show::{JsonArg, moment, or_dash};
use crate::cli::table::Table;
use crate::resources::statistics::wire::{StatisticsJson, TimesJson};
use wakeq::Timestamp;
use wakeq::internals::Spelled;

/// Steps of which the shortest is taken that makes at most so many rows.
const STEPS_S: [u64; 6] = [60, 300, 900, 3_600, 6 * 3_600, 24 * 3_600];
const ROWS: u64 = 48;

const HEAD: [&str; 10] = [
    "AT",
    ">EMITTED",
    ">COMPLETED",
    ">FAILED",
    ">RETRIED",
    ">DEAD",
    ">WAIT p50",
    ">WAIT p99",
    ">RUN p50",
    "RUN p99",
];

#[derive(Args)]
pub(crate) struct HistoryArgs {
    /// Show what happened in the last DURATION (24h, up to 14d) instead, of the handler or else of
    /// the whole canvas
    #[arg(long, value_name = "DURATION", num_args = 0..=1, default_missing_value = "24h",
          value_parser = humantime::parse_duration, conflicts_with_all = ["watch", "limit", "cursor"])]
    history: Option<Duration>,
    /// The length of a step of the history: whole minutes, or whole hours beyond a day
    #[arg(long, value_name = "DURATION", requires = "history", value_parser = humantime::parse_duration)]
    step: Option<Duration>,
}

impl HistoryArgs {
    /// Whether the history is asked for.
    pub(crate) fn is_given(&self) -> bool {
        self.history.is_some()
    }

    /// Prints the history. It ends with this machine's time.
    pub(crate) async fn run(
        &self,
        client: &Client,
        handler: Option<&HandlerName>,
        json: JsonArg,
    ) -> anyhow::Result<()> {
        let (now, length) = (SystemTime::now(), self.history.unwrap_or_default());
        let epoch = SystemTime::UNIX_EPOCH;
        let from = now.checked_sub(length).unwrap_or(epoch).max(epoch);
        let step_s = self.step.map_or_else(|| usual_step_s(length), |step| step.as_secs());
        let request = match handler {
            Some(HandlerName { module, name }) => {
                Request::get(&["handlers", module.as_str(), name.as_str(), "statistics"])
            }
            None => Request::get(&["statistics"]),
        };
        let request = request
            .query("from", Some(Timestamp::from(from).to_rfc3339()))
            .query("to", Some(Timestamp::from(now).to_rfc3339()))
            .query("step_s", Some(step_s));
        json.print(&client.call(request).await?, print)
    }
}

/// The step of a history of this length, in seconds.
fn usual_step_s(length: Duration) -> u64 {
    let fits = |step_s: &u64| length.as_secs().div_ceil(*step_s) <= ROWS;
    STEPS_S.into_iter().find(fits).unwrap_or(24 * 3_600)
}

fn print(statistics: &StatisticsJson) -> anyhow::Result<()> {
    let rows = (0..statistics.at.len()).map(|step| row(statistics, step));
    // A step in which nothing happened.
    let rows = rows.filter(|row| row[1..].iter().any(|cell| !matches!(cell.as_str(), "0" | "-")));
    Table::of(HEAD, rows).print("nothing happened in that time")
}

fn row(statistics: &StatisticsJson, step: usize) -> [String; 10] {
    let StatisticsJson { at, emitted, completed, failed, retried, dead, wait, run, .. } = statistics;
    let count = |counts: &[u64]| counts.get(step).copied().unwrap_or(0).to_string();
    let spelled = |seconds: &[Option<f64>]| or_dash(seconds.get(step).copied().flatten().map(spelled));
    let TimesJson { p50_s: wait_p50, p99_s: wait_p99, .. } = wait;
    let TimesJson { p50_s: run_p50, p99_s: run_p99, .. } = run;
    let [emitted, completed, failed, retried, dead] =
        [emitted, completed, failed, retried, dead].map(|counts| count(counts));
    let [wait_p50, wait_p99, run_p50, run_p99] =
        [wait_p50, wait_p99, run_p50, run_p99].map(|seconds| spelled(seconds));
    let at = at.get(step).copied().map(moment).unwrap_or_default();
    [at, emitted, completed, failed, retried, dead, wait_p50, wait_p99, run_p50, run_p99]
}

/// A number of seconds as a duration of two digits or so, since it is an estimate.
fn spelled(seconds: f64) -> Spelled {
    let exact = Duration::try_from_secs_f64(seconds).unwrap_or_default();
    let unit_ms = [(100, 1), (10_000, 100), (600_000, 1_000)]
        .into_iter()
        .find_map(|(below, unit_ms)| (exact < Duration::from_millis(below)).then_some(unit_ms));
    let unit_us = u128::from(unit_ms.unwrap_or(60_000_u32)) * 1_000;
    let units = (exact.as_micros() + unit_us / 2) / unit_us;
    Spelled(Duration::from_micros(u64::try_from(units * unit_us).unwrap_or(u64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_history_has_few_rows() {
        let hour = Duration::from_secs(3_600);
        for (hours, step_s) in
            [(0.5, 60), (4.0, 300), (12.0, 900), (24.0, 3_600), (48.0, 3_600), (336.0, 24 * 3_600)]
        {
            assert_eq!(usual_step_s(hour.mul_f64(hours)), step_s, "{hours} h");
        }
    }

    #[test]
    fn estimates_are_printed_with_few_digits() {
        for (seconds, printed) in [
            (0.0, "0s"),
            (0.0034, "3ms"),
            (0.003_98, "4ms"),
            (0.1234, "100ms"),
            (2.46, "2s 500ms"),
            (75.4, "1m 15s"),
            (7_300.0, "2h 2m"),
        ] {
            assert_eq!(spelled(seconds).to_string(), printed);
        }
    }
}
