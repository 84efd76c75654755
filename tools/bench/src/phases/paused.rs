//! Live traffic beside a million events that wait under a pause.

use anyhow::Result;

use super::{Measured, Sizes, Trial, rate};

const RATE: u32 = 500;

pub(super) async fn run(trial: &Trial, sizes: &Sizes) -> Result<Measured> {
    trial.subject.park(sizes.paused).await?;
    rate::run(trial, RATE, sizes.length).await
}
