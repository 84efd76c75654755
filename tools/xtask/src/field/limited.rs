//! A receiver that takes 20 requests a second and refuses the others with 429 and `Retry-After`,
//! with the usual retry policy.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::deployment::{OTHER, Site};
use super::receiver::Receiver;
use super::{figure, until};

const EVENTS: usize = 600;
const LEFT: &str = "select count(*) from wakeq.events_v2 where name = 'limited'";

pub(super) async fn run(site: &Site) -> Result<()> {
    let receiver = Receiver::start().await?;
    site.target(OTHER, "limited", &receiver.url("limited"), &[])?;
    let server = site.start(&[]).await?;
    let began = Instant::now();
    server.emit(OTHER, "limited", EVENTS).await?;
    let ended = until(Duration::from_secs(900), async || Ok(site.number(LEFT).await? == 0)).await?;
    let (left, dead) =
        (site.number(LEFT).await?, site.number("select count(*) from wakeq.dead_events").await?);
    let (taken, took) = (receiver.taken("limited").len(), began.elapsed());
    figure("after", format!("{took:.1?}: {taken} taken, {left} left, {dead} dead"));
    ensure!(ended && dead == 0 && taken >= EVENTS, "{left} of {EVENTS} are left, {dead} are dead");
    Ok(())
}
