//! The figures of a run: a table of medians, and all rounds as JSON.

use std::fmt;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Serialize;

use crate::phases::{Measured, Phase};
use crate::server::Server;

/// The phases of limited events, and the one that they are compared with.
const LIMITED: &str = "grow-limits-";
const UNLIMITED: &str = "grow-limits-none";

/// What costs are given for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Unit {
    Event,
    Minute,
}

/// A run.
#[derive(Serialize)]
pub(crate) struct Report {
    postgres: String,
    processors: usize,
    rounds: u32,
    quick: bool,
    pub(crate) rows: Vec<ReportRow>,
}

/// A round of a phase, for one subject.
#[derive(Clone, Serialize)]
pub(crate) struct ReportRow {
    pub(crate) phase: String,
    pub(crate) subject: String,
    pub(crate) round: u32,
    pub(crate) unit: Unit,
    pub(crate) count: f64,
    pub(crate) figures: Figures,
}

/// Costs are for each unit, except for the memory. `process_…` is all of the client's process, with
/// what emits and what measures.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Figures {
    pub(crate) per_second: f64,
    pub(crate) p50_ms: Option<f64>,
    pub(crate) p99_ms: Option<f64>,
    pub(crate) max_ms: Option<f64>,
    pub(crate) statements: f64,
    pub(crate) pg_cpu_us: f64,
    pub(crate) exec_us: f64,
    pub(crate) plan_us: f64,
    pub(crate) wal_bytes: f64,
    pub(crate) process_cpu_us: f64,
    pub(crate) emulator_cpu_us: f64,
    pub(crate) process_peak_mib: Option<f64>,
}

/// A figure by its name.
type Column = (&'static str, fn(&Figures) -> Option<f64>);

pub(crate) const COLUMNS: [Column; 12] = [
    ("per_second", |figures| Some(figures.per_second)),
    ("p50_ms", |figures| figures.p50_ms),
    ("p99_ms", |figures| figures.p99_ms),
    ("max_ms", |figures| figures.max_ms),
    ("statements", |figures| Some(figures.statements)),
    ("pg_cpu_us", |figures| Some(figures.pg_cpu_us)),
    ("exec_us", |figures| Some(figures.exec_us)),
    ("plan_us", |figures| Some(figures.plan_us)),
    ("wal_bytes", |figures| Some(figures.wal_bytes)),
    ("process_cpu_us", |figures| Some(figures.process_cpu_us)),
    ("emulator_us", |figures| Some(figures.emulator_cpu_us)),
    ("process_mib", |figures| figures.process_peak_mib),
];

impl ReportRow {
    pub(crate) fn new(phase: Phase, subject: &str, round: u32, measured: Measured) -> Self {
        let Measured { count, unit, usage, latency } = measured;
        let micros = |secs: f64| secs * 1_000_000.0 / count;
        let figures = Figures {
            per_second: count / usage.secs,
            p50_ms: latency.map(|latency| latency.p50_ms),
            p99_ms: latency.map(|latency| latency.p99_ms),
            max_ms: latency.map(|latency| latency.max_ms),
            statements: usage.statements / count,
            pg_cpu_us: micros(usage.pg_cpu_s),
            exec_us: micros(usage.exec_s),
            plan_us: micros(usage.plan_s),
            wal_bytes: usage.wal_bytes / count,
            process_cpu_us: micros(usage.process_cpu_s),
            emulator_cpu_us: micros(usage.emulator_cpu_s),
            process_peak_mib: usage.process_peak_mib,
        };
        Self { phase: phase.name(), subject: subject.to_owned(), round, unit, count, figures }
    }
}

impl fmt::Display for ReportRow {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values = COLUMNS.map(|(_, figure)| figure(&self.figures));
        write!(formatter, "{}", line(&self.phase, &self.subject, &values))
    }
}

impl Report {
    pub(crate) fn new(server: &Server, rounds: u32, quick: bool, rows: Vec<ReportRow>) -> Self {
        let processors = std::thread::available_parallelism().map_or(0, usize::from);
        Self { postgres: server.version().to_owned(), processors, rounds, quick, rows }
    }

    #[cfg(test)]
    pub(crate) fn of(rows: Vec<ReportRow>) -> Self {
        Self { postgres: String::new(), processors: 1, rounds: 1, quick: false, rows }
    }

    pub(crate) fn is_quick(&self) -> bool {
        self.quick
    }

    /// The phases with their subjects, in the order in which they were first run.
    pub(crate) fn trials(&self) -> Vec<(&str, &str)> {
        let mut trials = Vec::new();
        for row in &self.rows {
            let trial = (row.phase.as_str(), row.subject.as_str());
            if !trials.contains(&trial) {
                trials.push(trial);
            }
        }
        trials
    }

    pub(crate) fn rounds_of(&self, phase: &str, subject: &str) -> Vec<&ReportRow> {
        self.rows.iter().filter(|row| row.phase == phase && row.subject == subject).collect()
    }

    /// Of all rounds.
    pub(crate) fn median_of(
        &self,
        phase: &str,
        subject: &str,
        figure: fn(&Figures) -> Option<f64>,
    ) -> Option<f64> {
        median(self.rounds_of(phase, subject).into_iter().filter_map(|row| figure(&row.figures)))
    }

    pub(crate) fn print(&self) {
        println!("\nmedians of {} rounds; costs are per event, or per minute of `idle`", self.rounds);
        let names: String = COLUMNS.iter().map(|(name, _)| format!(" {name:>14}")).collect();
        println!("{}{names}", " ".repeat(42));
        for (phase, subject) in self.trials() {
            let values = COLUMNS.map(|(_, figure)| self.median_of(phase, subject, figure));
            println!("{}", line(phase, subject, &values));
        }
        self.print_limits();
    }

    /// What limited events cost, as a multiple of those without a limit in the same run.
    fn print_limits(&self) {
        let shown = ["per_second", "statements", "pg_cpu_us", "wal_bytes", "process_cpu_us"];
        for (phase, subject) in self.trials() {
            if phase == UNLIMITED || !phase.starts_with(LIMITED) {
                continue;
            }
            let ratios =
                COLUMNS.into_iter().filter(|(name, _)| shown.contains(name)).map(|(name, figure)| {
                    let [own, none] = [phase, UNLIMITED].map(|phase| self.median_of(phase, subject, figure));
                    let ratio = own.zip(none).filter(|(_, none)| *none > 0.0).map(|(own, none)| own / none);
                    format!("{name} {}", shown_ratio(ratio))
                });
            println!("{phase} as a multiple of {UNLIMITED}: {}", ratios.collect::<Vec<_>>().join(", "));
        }
    }

    pub(crate) fn write(&self, file: &Path) -> Result<()> {
        write_json(file, self)
    }
}

/// Writes a file, and its folder if that is missing.
pub(crate) fn write_json(file: &Path, value: &impl Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(value)? + "\n";
    let folder = file.parent().unwrap_or(Path::new(""));
    fs::create_dir_all(folder)
        .and_then(|()| fs::write(file, text))
        .with_context(|| format!("{} can't be written", file.display()))
}

fn line(phase: &str, subject: &str, values: &[Option<f64>]) -> String {
    let values: String = values.iter().map(|value| format!(" {:>14}", shown(*value))).collect();
    format!("{phase:<21} {subject:<20}{values}")
}

fn shown_ratio(ratio: Option<f64>) -> String {
    ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"))
}

/// Three digits, or all before the point.
pub(crate) fn shown(value: Option<f64>) -> String {
    match value {
        None => "-".to_owned(),
        Some(value) if value >= 100.0 => format!("{value:.0}"),
        Some(value) if value >= 1.0 => format!("{value:.1}"),
        Some(value) => format!("{value:.4}"),
    }
}

pub(crate) fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}
