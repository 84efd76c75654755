//! A backlog, from the start of the worker until the last row is gone.

use anyhow::Result;

use super::{Measured, PATIENCE, Trial, fill, until_ended};
use crate::latency::{Latencies, Pace};
use crate::subject::Load;

pub(super) async fn run(trial: &Trial, count: u64, capacity: usize) -> Result<Measured> {
    fill(trial.subject.as_ref(), count).await?;
    let seen = Latencies::new(0, Pace::AT_ONCE)?.seen();
    let running = trial.meter.start().await?;
    let working = trial.subject.work(Load::drain(capacity), seen).await?;
    until_ended([&working], count, PATIENCE).await?;
    let usage = running.stop().await?;
    working.stop().await?;
    Ok(Measured::events(count, usage, None))
}
