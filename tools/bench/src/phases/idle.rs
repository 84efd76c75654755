//! A worker without work: what a minute of it costs.

use std::time::Duration;

use anyhow::Result;

use super::{Measured, Trial};
use crate::latency::{Latencies, Pace};
use crate::report::Unit;
use crate::subject::Load;

/// What a worker does at its start is not measured.
const SETTLING: Duration = Duration::from_secs(5);

pub(super) async fn run(trial: &Trial, length: Duration) -> Result<Measured> {
    let seen = Latencies::new(0, Pace::AT_ONCE)?.seen();
    let working = trial.subject.work(Load::live(), seen).await?;
    trial.warm_up(&working).await?;
    tokio::time::sleep(SETTLING).await;
    let running = trial.meter.start().await?;
    tokio::time::sleep(length).await;
    let usage = running.stop().await?;
    working.stop().await?;
    Ok(Measured { count: usage.secs / 60.0, unit: Unit::Minute, usage, latency: None })
}
