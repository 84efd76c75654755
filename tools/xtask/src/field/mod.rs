//! `cargo xtask field`: the release binary where the field is rougher than a laboratory: stale
//! statistics, old snapshots, hostile roles, receivers that hang or refuse, half-open connections.
//!
//! Each scenario has a deployment of its own on a private Postgres, prints its figures and fails if
//! one is beyond its bound. It must never reach anything but this machine.

mod burst;
mod deployment;
mod flood;
mod function;
mod half_open;
mod handlers;
mod hanging;
mod hostile;
mod limited;
mod operation;
mod outrun;
mod page;
mod receiver;
mod relay;
mod slow;
mod snapshot;
mod urgent;

use std::fmt::Display;
use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use self::deployment::{OTHER, Server, Site};
use self::receiver::Receiver;
use crate::{cargo, succeed};

type Running<'a> = Pin<Box<dyn Future<Output = Result<()>> + 'a>>;
type Scenario = (&'static str, &'static str, for<'a> fn(&'a Site, u64) -> Running<'a>);

/// The short name of each, what it shows, and what runs it. The minutes are for one that watches.
const SCENARIOS: [Scenario; 15] = [
    (
        "burst",
        "150,000 events after a quiet hour, by the statistics of an empty table and of one row",
        |site, _| Box::pin(burst::run(site, 150_000)),
    ),
    ("million", "the same with 1,000,000 events", |site, _| Box::pin(burst::run(site, 1_000_000))),
    (
        "snapshot",
        "a snapshot held over ten million events: crons tick, plain SQL and retries start",
        |site, minutes| Box::pin(snapshot::run(site, minutes)),
    ),
    ("hostile", "a role with CONNECT alone listens, forges and floods", |site, _| {
        Box::pin(hostile::run(site))
    }),
    (
        "hanging",
        "300 events for a target that hangs, and 20 for a healthy one of the same canvas",
        |site, _| Box::pin(hanging::run(site)),
    ),
    ("slow", "3,000 slow events of one canvas, and ten of another", |site, _| Box::pin(slow::run(site))),
    ("function", "3,000 events of one canvas for a slow function, and ten of another", |site, _| {
        Box::pin(function::run(site))
    }),
    ("outrun", "1,000 events a second of one canvas over HTTP, and others of another", |site, _| {
        Box::pin(outrun::run(site))
    }),
    ("flood", "200,000 events of one canvas by one statement of SQL, and others of another", |site, _| {
        Box::pin(flood::run(site))
    }),
    ("limited", "600 events for a receiver that takes 20 a second", |site, _| Box::pin(limited::run(site))),
    ("handlers", "100,000 handlers: the list is whole and its pages are quick", |site, _| {
        Box::pin(handlers::run(site))
    }),
    (
        "urgent",
        "others under a flood of urgent events, and urgent ones behind 100,000 that have all places but one",
        |site, _| Box::pin(urgent::run(site)),
    ),
    ("operation", "an operation over 1,000,000 events, whose process is killed twice", |site, _| {
        Box::pin(operation::run(site))
    }),
    (
        "page",
        "every page with a million events waiting and a million kept, and what ten open pages cost",
        |site, _| Box::pin(page::run(site)),
    ),
    ("half-open", "every connection to Postgres half-open, then SIGTERM", |site, _| {
        Box::pin(half_open::run(site))
    }),
];

/// The short names, separated by commas.
pub(crate) fn names() -> String {
    SCENARIOS.iter().map(|(short, ..)| *short).collect::<Vec<_>>().join(", ")
}

/// Builds the binary and runs one of them, or all. One that watches does so for these minutes.
pub(crate) fn run(name: Option<&str>, minutes: u64) -> Result<()> {
    let chosen: Vec<_> =
        SCENARIOS.iter().filter(|(short, ..)| name.is_none_or(|name| name == *short)).collect();
    if chosen.is_empty() {
        bail!("there is no such scenario: use one of {}", names());
    }
    succeed(cargo().args(["build", "--release", "--bin", "wakeq"]))?;
    let runtime = tokio::runtime::Runtime::new().context("a runtime")?;
    let mut failed = Vec::new();
    for (short, shows, scenario) in chosen {
        println!("\n{short}: {shows}");
        let ended = runtime.block_on(async {
            let site = Site::new().await?;
            scenario(&site, minutes).await
        });
        if let Err(error) = ended {
            eprintln!("error: {error:#}");
            failed.push(*short);
        }
    }
    if failed.is_empty() { Ok(()) } else { bail!("failed: {}", failed.join(", ")) }
}

/// Prints a figure.
fn figure(name: &str, value: impl Display) {
    println!("    {name}: {value}");
}

/// Prints a figure that must not be above its bound.
fn at_most(name: &str, value: f64, bound: f64) -> Result<()> {
    figure(name, format!("{value:.2} (at most {bound:.2})"));
    ensure!(value <= bound, "{name}: {value:.2} is above {bound:.2}");
    Ok(())
}

/// Asks until the answer is yes; `false` if that takes too long.
async fn until(limit: Duration, mut ask: impl AsyncFnMut() -> Result<bool>) -> Result<bool> {
    let began = tokio::time::Instant::now();
    while !ask().await? {
        if began.elapsed() > limit {
            return Ok(false);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(true)
}

/// Emits so many events of the other canvas for `ok`, one after the other, and returns how long the
/// slowest of them waited for its start.
async fn slowest_start(server: &Server, receiver: &Receiver, count: usize) -> Result<Duration> {
    let mut worst = Duration::ZERO;
    for already in 0..count {
        let began = Instant::now();
        server.emit(OTHER, "ok", 1).await?;
        let started =
            until(Duration::from_secs(300), async || Ok(receiver.taken("ok").len() > already)).await?;
        ensure!(started, "after {already} events of the other canvas none started within 300 s");
        worst = worst.max(began.elapsed());
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    Ok(worst)
}

/// The part of sorted values that are below it, such as 0.99.
fn percentile(values: &mut [Duration], part: f64) -> Duration {
    values.sort_unstable();
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
    let at = (values.len() as f64 * part) as usize;
    values.get(at.min(values.len().saturating_sub(1))).copied().unwrap_or_default()
}
