//! One canvas has 3,000 events for a function that takes 3 s, on a worker of a user's own program
//! with the usual capacity; another canvas comes later.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::deployment::{NIL, OTHER, Site};
use super::receiver::SLOW;
use super::{at_most, until};
use crate::{cargo, succeed};

const PROGRAM: &str = "function_worker";
const OTHERS: usize = 10;
const RUNNING: &str = "select count(*) from wakeq.events_v2 where name = 'slow' and locked_at is not null";
const LEFT: &str = "select count(*) from wakeq.events_v2 where name = 'quick'";

pub(super) async fn run(site: &Site) -> Result<()> {
    // Apart from the stock binary, as it would be built with other features together with it.
    succeed(cargo().args(["build", "--release", "--package", "wakeq-bench", "--bin", PROGRAM]))?;
    let server = site.serve(&[]).await?;
    let worker = site.start_program(PROGRAM)?;
    server.emit(NIL, "slow", 3_000).await?;
    let runs = until(Duration::from_secs(60), async || Ok(site.number(RUNNING).await? > 0)).await?;
    ensure!(runs, "no slow event has started: {}", worker.last_lines());
    let mut worst = Duration::ZERO;
    for _ in 0..OTHERS {
        let began = Instant::now();
        server.emit(OTHER, "quick", 1).await?;
        let ended = until(Duration::from_secs(300), async || Ok(site.number(LEFT).await? == 0)).await?;
        ensure!(ended, "an event of the other canvas did not run within 300 s: {}", worker.last_lines());
        worst = worst.max(began.elapsed());
    }
    ensure!(site.number(RUNNING).await? > 0, "the slow ones were over before the other canvas came");
    let bound = SLOW.as_secs_f64() + 1.0;
    at_most("seconds until an event of the other canvas had run", worst.as_secs_f64(), bound)
}
