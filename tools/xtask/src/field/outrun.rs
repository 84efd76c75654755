//! One canvas emits 1,000 events a second over HTTP for a quick target, which is more than a worker
//! of 16 places delivers; another canvas comes meanwhile.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::deployment::{NIL, OTHER, Server, Site};
use super::receiver::{BRIEF, Receiver};
use super::{at_most, figure, slowest_start};

/// How many events a second, for how many seconds.
const RATE: usize = 1_000;
const SECONDS: u64 = 60;
const OTHERS: usize = 20;

pub(super) async fn run(site: &Site) -> Result<()> {
    let receiver = Receiver::start().await?;
    site.target(NIL, "brief", &receiver.url("brief"), &[])?;
    site.target(OTHER, "ok", &receiver.url("ok"), &[])?;
    let server = site.start(&[("WAKEQ_CAPACITY", "16")]).await?;
    let (emitted, worst) = tokio::join!(emit(&server), others(&server, &receiver));
    let (emitted, worst) = (emitted?, worst?);
    let delivered = receiver.taken("brief").len();
    figure("events of the quick canvas", format!("{emitted} emitted, {delivered} delivered meanwhile"));
    ensure!(delivered < emitted, "the worker kept up, so that this shows nothing");
    let bound = BRIEF.as_secs_f64() + 1.0;
    at_most("seconds until an event of the other canvas had started", worst.as_secs_f64(), bound)
}

/// Emits at the rate, or as far behind as the server takes them.
async fn emit(server: &Server) -> Result<usize> {
    let began = Instant::now();
    let mut emitted = 0;
    for second in 1..=SECONDS {
        server.emit(NIL, "brief", RATE).await?;
        emitted += RATE;
        tokio::time::sleep(Duration::from_secs(second).saturating_sub(began.elapsed())).await;
    }
    Ok(emitted)
}

/// How long the slowest event of the other canvas waited for its start, once the first canvas is
/// ahead of the worker.
async fn others(server: &Server, receiver: &Receiver) -> Result<Duration> {
    tokio::time::sleep(Duration::from_secs(SECONDS / 6)).await;
    slowest_start(server, receiver, OTHERS).await
}
