//! One canvas has 3,000 events whose handler takes 3 s, on a worker with the usual capacity;
//! another canvas comes later.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::deployment::{NIL, OTHER, Site};
use super::receiver::{Receiver, SLOW};
use super::{at_most, until};

const OTHERS: usize = 10;

pub(super) async fn run(site: &Site) -> Result<()> {
    let receiver = Receiver::start().await?;
    site.target(NIL, "slow", &receiver.url("slow"), &[])?;
    site.target(OTHER, "ok", &receiver.url("ok"), &[])?;
    let server = site.start(&[]).await?;
    server.emit(NIL, "slow", 3_000).await?;
    let runs = until(Duration::from_secs(30), async || Ok(!receiver.taken("slow").is_empty())).await?;
    ensure!(runs, "no slow event has started");
    let began = Instant::now();
    server.emit(OTHER, "ok", OTHERS).await?;
    let arrived = until(Duration::from_secs(300), async || Ok(receiver.taken("ok").len() >= OTHERS)).await?;
    ensure!(arrived, "the other canvas got {} of {OTHERS}", receiver.taken("ok").len());
    at_most("seconds until the other canvas had all", began.elapsed().as_secs_f64(), SLOW.as_secs_f64() + 1.0)
}
