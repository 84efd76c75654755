//! One canvas that always has a backlog beside 49 quiet ones: the latency is that of the quiet
//! ones, the costs are those of all events.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use tokio_util::sync::CancellationToken;

use super::{CALL, LOOK, Measured, PATIENCE, Trial, rate, until_ended};
use crate::subject::{Job, Load, Subject, Working};

/// Of all quiet canvases together.
const RATE: u32 = 500;
const NOISY: u128 = 1_000;
const QUIET: u64 = 49;
const BACKLOG: u64 = 20_000;

pub(super) async fn run(trial: &Trial, length: Duration) -> Result<Measured> {
    let latencies = rate::latencies(RATE, length)?;
    let working = Arc::new(trial.subject.work(Load::live(), latencies.seen()).await?);
    trial.warm_up(&working).await?;
    let stop = CancellationToken::new();
    let noise = make_noise(Arc::clone(&trial.subject), Arc::clone(&working), stop.clone());
    let noise = tokio::spawn(noise);
    until_ended([&*working], BACKLOG / 2, PATIENCE).await?;
    let measured = trial.live(&working, &latencies, |number| u128::from(1 + number % QUIET)).await;
    stop.cancel();
    noise.await??;
    if let Some(working) = Arc::into_inner(working) {
        working.stop().await?;
    }
    measured
}

/// Keeps the backlog of the noisy canvas up.
async fn make_noise(subject: Arc<dyn Subject>, working: Arc<Working>, stop: CancellationToken) -> Result<()> {
    let mut emitted = 0;
    while !stop.is_cancelled() {
        if emitted < (working.ended)() + BACKLOG {
            let jobs = (0..CALL).map(|_| Job { canvas: NOISY, ..Job::warm() }).collect();
            subject.emit_all(jobs).await?;
            emitted += CALL;
        } else {
            tokio::time::sleep(LOOK).await;
        }
    }
    Ok(())
}
