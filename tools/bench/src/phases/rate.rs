//! Steady traffic.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;

use super::{Measured, Trial};
use crate::latency::{Latencies, Pace};
use crate::subject::Load;

pub(super) async fn run(trial: &Trial, rate: u32, length: Duration) -> Result<Measured> {
    let latencies = latencies(rate, length)?;
    let working = trial.subject.work(Load::live(), latencies.seen()).await?;
    trial.warm_up(&working).await?;
    let measured = trial.live(&working, &latencies, |_| 0).await?;
    working.stop().await?;
    Ok(measured)
}

/// For traffic at this rate that lasts this long.
pub(super) fn latencies(rate: u32, length: Duration) -> Result<Arc<Latencies>> {
    Latencies::new(u64::from(rate) * length.as_secs(), Pace::per_second(rate))
}
