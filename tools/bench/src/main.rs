//! How fast the queue is and what it costs, on a private durable Postgres, beside a handwritten
//! queue in the same run: `cargo xtask bench`.
//!
//! Every trial has a database of its own. Rounds are interleaved, so that all subjects suffer the
//! same noise. It must never use a server that it did not start.
#![allow(clippy::print_stdout, reason = "a benchmark prints")]

mod api;
mod baseline;
mod check;
mod growth;
mod latency;
mod live_sql;
mod meter;
mod own;
mod peers;
mod phases;
mod plot;
mod report;
mod server;
mod subject;

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use clap::Parser;

use api::Program;
use check::Recorded;
use peers::Peers;
use phases::{Phase, Sizes};
use report::{Report, ReportRow};
use server::Server;
use subject::Kind;

/// Measures the queue.
#[derive(Parser)]
struct Options {
    /// Run only the phases whose names begin with one of these words.
    phases: Vec<String>,
    /// How many times each phase but `idle` runs for each subject; medians are reported.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Run a tenth of the events and of the time, to try it out; the figures are not reliable.
    #[arg(long)]
    quick: bool,
    /// Where to write all figures as JSON.
    #[arg(long, default_value = "target/bench/figures.json")]
    json: PathBuf,
    /// Compare with the recorded ratios, and fail on a regression.
    #[arg(long, value_name = "FILE")]
    check: Option<PathBuf>,
    /// Record the ratios of this run.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["check", "quick", "phases"])]
    record: Option<PathBuf>,
    /// Draw charts into this folder.
    #[arg(long, value_name = "FOLDER")]
    plots: Option<PathBuf>,
    #[command(flatten)]
    others: Others,
}

// Not a doc comment: clap would take it for what the command does.
#[derive(clap::Args)]
struct Others {
    #[command(flatten)]
    api: Program,
    #[command(flatten)]
    peers: Peers,
}

#[tokio::main]
async fn main() -> Result<()> {
    let options = Options::parse();
    let mut phases = Phase::chosen(&options.phases);
    if options.phases.is_empty() {
        phases.retain(|phase| *phase != Phase::EmitHttp || options.others.api.is_given());
    }
    ensure!(!phases.is_empty(), "no phase begins with these words: use {}", Phase::names());
    let recorded = options.check.as_deref().map(Recorded::read).transpose()?;
    let sizes = if options.quick { Sizes::quick() } else { Sizes::full() };
    let server = Server::start().await?;
    println!("{server}");
    let mut rows = Vec::new();
    for round in 1..=options.rounds {
        for phase in phases.iter().filter(|phase| round == 1 || phase.varies()) {
            rows.extend(trials(&server, *phase, &sizes, &options.others, round).await?);
        }
    }
    let report = Report::new(&server, options.rounds, options.quick, rows);
    server.stop().await?;
    report.print();
    report.write(&options.json)?;
    if let Some(folder) = &options.plots {
        plot::write(&report, folder)?;
    }
    if let Some(file) = &options.record {
        Recorded::of(&report).write(file)?;
    }
    recorded.map_or(Ok(()), |recorded| recorded.compare(&report))
}

/// One round of a phase: all subjects, one after the other.
async fn trials(
    server: &Server,
    phase: Phase,
    sizes: &Sizes,
    others: &Others,
    round: u32,
) -> Result<Vec<ReportRow>> {
    let mut rows = Vec::new();
    for kind in Kind::ALL.into_iter().filter(|kind| phase.has(*kind)) {
        let database = server.database().await?;
        let measured = if phase == Phase::EmitHttp {
            others.api.trial(server, &database, kind, sizes.singles).await
        } else {
            phase.run(server, &database, kind, sizes).await
        };
        let measured = measured.with_context(|| format!("{} of {}", phase.name(), kind.name()))?;
        rows.push(ReportRow::new(phase, kind.name(), round, measured));
        server.drop_database(&database).await?;
    }
    rows.extend(others.peers.trials(server, phase, sizes, round).await?);
    rows.iter().for_each(|row| println!("round {round}: {row}"));
    Ok(rows)
}
