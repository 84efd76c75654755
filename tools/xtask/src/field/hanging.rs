//! A target that never answers, and a healthy one of the same canvas, with the usual settings.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::deployment::{OTHER, Site};
use super::receiver::Receiver;
use super::{at_most, until};

const HEALTHY: usize = 20;

pub(super) async fn run(site: &Site) -> Result<()> {
    let receiver = Receiver::start().await?;
    site.target(OTHER, "hangs", &receiver.url("hang"), &[])?;
    site.target(OTHER, "ok", &receiver.url("ok"), &[])?;
    let server = site.start(&[]).await?;
    server.emit(OTHER, "hangs", 300).await?;
    let hangs = until(Duration::from_secs(30), async || Ok(!receiver.taken("hang").is_empty())).await?;
    ensure!(hangs, "the hanging target was not called");
    let began = Instant::now();
    server.emit(OTHER, "ok", HEALTHY).await?;
    let arrived = until(Duration::from_secs(600), async || Ok(receiver.taken("ok").len() >= HEALTHY)).await?;
    ensure!(arrived, "the healthy target got {} of {HEALTHY}", receiver.taken("ok").len());
    at_most("seconds until the healthy target had all", began.elapsed().as_secs_f64(), 1.0)
}
