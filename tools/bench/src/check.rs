//! The gate: ratios to the handwritten queue in the same run, compared with recorded ones.
//!
//! A machine's speed cancels out where both queues do the same kind of work. In a latency it does
//! not: the handwritten queue's is half of its pause of 10 ms on every machine, and ours consists
//! of round trips, which a faster machine shortens. So latencies are not compared, nor is `idle`,
//! where the handwritten queue only counts its pauses.
//!
//! At low rates the processor time of either queue varies by a fifth from round to round. So what
//! is recorded is the median of the rounds, and what is compared with it the best of them: a
//! regression is in each round.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use crate::report::{COLUMNS, Figures, Report, ReportRow, Unit, median, write_json};
use crate::subject::Kind;

/// By how much a ratio may be worse.
const TOLERANCE: f64 = 0.10;
/// The figures that are compared; higher is better only for the first.
const COMPARED: [&str; 4] = ["per_second", "statements", "pg_cpu_us", "wal_bytes"];
/// What is compared with the handwritten queue.
const SUBJECTS: [Kind; 4] = [Kind::Statements, Kind::Memory, Kind::Postgres, Kind::Emulator];

/// Ratios by phase and subject, such as `drain-64 memory`, and by figure.
#[derive(Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(transparent)]
pub(crate) struct Recorded(BTreeMap<String, BTreeMap<String, f64>>);

impl Recorded {
    pub(crate) fn read(file: &Path) -> Result<Self> {
        let text = fs::read_to_string(file)
            .with_context(|| format!("{} can't be read: record the ratios first", file.display()))?;
        serde_json::from_str(&text).with_context(|| format!("{} has no valid ratios", file.display()))
    }

    pub(crate) fn write(&self, file: &Path) -> Result<()> {
        write_json(file, self)
    }

    /// The ratios of a run, to be recorded.
    pub(crate) fn of(report: &Report) -> Self {
        Self::by(report, |_, rounds| median(rounds.into_iter()))
    }

    /// The best ratios of a run, to be compared.
    fn best_of(report: &Report) -> Self {
        Self::by(report, |figure, rounds| match is_better_if_higher(figure) {
            true => rounds.into_iter().max_by(f64::total_cmp),
            false => rounds.into_iter().min_by(f64::total_cmp),
        })
    }

    fn by(report: &Report, choose: impl Fn(&str, Vec<f64>) -> Option<f64>) -> Self {
        let subjects = SUBJECTS.map(Kind::name);
        let trials = report.trials().into_iter().filter(|(_, subject)| subjects.contains(subject));
        let ratios = trials
            .map(|(phase, subject)| (format!("{phase} {subject}"), ratios(report, phase, subject, &choose)));
        Self(ratios.filter(|(_, ratios)| !ratios.is_empty()).collect())
    }

    /// Fails on a regression, and on a figure that is only in one of the two. Phases that this run
    /// left out are not compared.
    pub(crate) fn compare(&self, report: &Report) -> Result<()> {
        ensure!(!report.is_quick(), "a quick run can't be compared: leave `--quick` out");
        let now = Self::best_of(report);
        ensure!(!now.0.is_empty(), "no phase of this run is compared: add one with events");
        let ran = report.trials().into_iter().map(|(phase, _)| phase).collect();
        let regressions = [self.regressions(&now), self.missing(&now, &ran)].concat();
        if regressions.is_empty() {
            println!(
                "\nno ratio is worse than recorded by more than {:.0} % in each round",
                TOLERANCE * 100.0
            );
            return Ok(());
        }
        bail!("worse than recorded, as a ratio to the handwritten queue:\n{}", regressions.join("\n"))
    }

    fn regressions(&self, now: &Self) -> Vec<String> {
        let mut regressions = Vec::new();
        for (trial, ratios) in &now.0 {
            for (figure, ratio) in ratios {
                let recorded = self.0.get(trial).and_then(|ratios| ratios.get(figure));
                match recorded {
                    None => regressions.push(format!("{trial}, {figure}: nothing was recorded")),
                    Some(recorded) if is_worse(figure, *ratio, *recorded) => regressions
                        .push(format!("{trial}, {figure}: {ratio:.3} times, recorded {recorded:.3}")),
                    Some(_) => {}
                }
            }
        }
        regressions
    }

    /// What was recorded for a phase that was run, but was not measured this time.
    fn missing(&self, now: &Self, ran: &BTreeSet<&str>) -> Vec<String> {
        let mut missing = Vec::new();
        for (trial, ratios) in &self.0 {
            let phase = trial.split_once(' ').map_or(trial.as_str(), |(phase, _)| phase);
            let measured = now.0.get(trial);
            let is_missing =
                |figure: &&String| measured.is_none_or(|ratios| !ratios.contains_key(figure.as_str()));
            if ran.contains(phase) {
                let lost = ratios.keys().filter(is_missing);
                missing.extend(lost.map(|figure| format!("{trial}, {figure}: was recorded and is missing")));
            }
        }
        missing
    }
}

fn is_better_if_higher(figure: &str) -> bool {
    figure == COMPARED[0]
}

fn is_worse(figure: &str, ratio: f64, recorded: f64) -> bool {
    if is_better_if_higher(figure) {
        ratio < recorded * (1.0 - TOLERANCE)
    } else {
        ratio > recorded * (1.0 + TOLERANCE)
    }
}

/// The ratios of a subject by figure, each chosen among those of the rounds.
fn ratios(
    report: &Report,
    phase: &str,
    subject: &str,
    choose: impl Fn(&str, Vec<f64>) -> Option<f64>,
) -> BTreeMap<String, f64> {
    let baseline = report.rounds_of(phase, Kind::Handwritten.name());
    let own = report.rounds_of(phase, subject);
    let pairs: Vec<(&ReportRow, &ReportRow)> = own
        .into_iter()
        .filter(|row| row.unit == Unit::Event)
        .filter_map(|row| Some((row, *baseline.iter().find(|baseline| baseline.round == row.round)?)))
        .collect();
    let compared = COLUMNS.into_iter().filter(|(name, _)| COMPARED.contains(name));
    let ratio = |(name, figure): (&str, fn(&Figures) -> Option<f64>)| {
        let of_rounds = pairs.iter().filter_map(|(own, baseline)| {
            let baseline = figure(&baseline.figures).filter(|baseline| *baseline > 0.0)?;
            Some(figure(&own.figures)? / baseline)
        });
        Some((name.to_owned(), choose(name, of_rounds.collect())?))
    };
    compared.filter_map(ratio).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded(figure: &str, ratio: f64) -> Recorded {
        let ratios = BTreeMap::from([(figure.to_owned(), ratio)]);
        Recorded(BTreeMap::from([("drain-64 memory".to_owned(), ratios)]))
    }

    #[test]
    fn a_ratio_may_be_a_tenth_worse_and_any_better() {
        let cost = recorded("pg_cpu_us", 0.5);
        assert!(cost.regressions(&recorded("pg_cpu_us", 0.54)).is_empty());
        assert!(cost.regressions(&recorded("pg_cpu_us", 0.1)).is_empty());
        assert_eq!(
            cost.regressions(&recorded("pg_cpu_us", 0.56)),
            ["drain-64 memory, pg_cpu_us: 0.560 times, recorded 0.500"]
        );
        let speed = recorded("per_second", 2.0);
        assert!(speed.regressions(&recorded("per_second", 1.81)).is_empty());
        assert_eq!(speed.regressions(&recorded("per_second", 1.79)).len(), 1);
        assert_eq!(speed.regressions(&recorded("statements", 1.0)).len(), 1, "nothing was recorded");
        assert!(speed.regressions(&Recorded::default()).is_empty(), "it was not run");
    }

    /// Three rounds in which the handwritten queue has 100 of everything.
    fn report(own: [f64; 3]) -> Report {
        let row = |subject: Kind, round, value| ReportRow {
            phase: "rate-500".to_owned(),
            subject: subject.name().to_owned(),
            round,
            unit: Unit::Event,
            count: 1.0,
            figures: Figures {
                per_second: value,
                p50_ms: None,
                p99_ms: None,
                max_ms: None,
                statements: value,
                pg_cpu_us: value,
                exec_us: value,
                plan_us: value,
                wal_bytes: value,
                process_cpu_us: value,
                emulator_cpu_us: value,
                process_peak_mib: None,
            },
        };
        let rounds = (1..).zip(own);
        let rows = rounds.flat_map(|(round, value)| {
            [row(Kind::Handwritten, round, 100.0), row(Kind::Memory, round, value)]
        });
        Report::of(rows.collect())
    }

    #[test]
    fn the_median_is_recorded_and_the_best_round_compared() {
        let rounds = report([180.0, 120.0, 150.0]);
        let ratio = |ratios: &Recorded, figure: &str| ratios.0["rate-500 memory"][figure];
        let (recorded, best) = (Recorded::of(&rounds), Recorded::best_of(&rounds));
        assert_eq!((ratio(&recorded, "pg_cpu_us"), ratio(&best, "pg_cpu_us")), (1.5, 1.2));
        assert_eq!((ratio(&recorded, "per_second"), ratio(&best, "per_second")), (1.5, 1.8));
        recorded.compare(&rounds).unwrap();
        // Almost a tenth slower, and almost a tenth costlier.
        recorded.compare(&report([136.0; 3])).unwrap();
        recorded.compare(&report([164.0; 3])).unwrap();
        let slower = recorded.compare(&report([134.0, 134.0, 134.0])).unwrap_err().to_string();
        assert!(slower.contains("per_second") && !slower.contains("pg_cpu_us"), "{slower}");
        let costlier = recorded.compare(&report([166.0, 170.0, 190.0])).unwrap_err().to_string();
        assert!(costlier.contains("rate-500 memory, pg_cpu_us: 1.660 times"), "{costlier}");
    }

    #[test]
    fn a_figure_that_a_phase_no_longer_has_is_missed() {
        let (cost, drained) = (recorded("pg_cpu_us", 0.5), BTreeSet::from(["drain-64"]));
        let complaint = ["drain-64 memory, pg_cpu_us: was recorded and is missing"];
        assert_eq!(cost.missing(&recorded("wal_bytes", 0.5), &drained), complaint, "one figure");
        assert_eq!(cost.missing(&Recorded::default(), &drained), complaint, "the whole trial");
        assert!(cost.missing(&recorded("pg_cpu_us", 9.0), &drained).is_empty());
        assert!(cost.missing(&Recorded::default(), &BTreeSet::from(["drain-1000"])).is_empty(), "not run");
    }
}
