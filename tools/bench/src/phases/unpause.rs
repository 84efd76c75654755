//! A pause is lifted: how long until all that waited has ended.

use anyhow::Result;

use super::{Measured, PATIENCE, Trial, until_ended};
use crate::latency::{Latencies, Pace};
use crate::subject::Load;

pub(super) async fn run(trial: &Trial, count: u64) -> Result<Measured> {
    trial.subject.park(count).await?;
    let latencies = Latencies::new(count, Pace::AT_ONCE)?;
    let working = trial.subject.work(Load::drain(1_000), latencies.seen()).await?;
    trial.warm_up(&working).await?;
    let ended = (working.ended)();
    let running = trial.meter.start().await?;
    latencies.begin();
    trial.subject.unpark().await?;
    until_ended([&working], ended + count, PATIENCE).await?;
    let usage = running.stop().await?;
    working.stop().await?;
    Ok(Measured::events(count, usage, Some(latencies.percentiles())))
}
