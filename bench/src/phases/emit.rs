//! Emits: one by one by many callers, and many in a call by one. A notification that an emit
//! publishes is part of it.

use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;
use futures_util::future::try_join_all;

use super::{Measured, Trial, fill};
use crate::subject::Job;

const CALLERS: usize = 32;

pub(super) async fn single(trial: &Trial, count: u64) -> Result<Measured> {
    try_join_all((0..CALLERS).map(|_| trial.subject.emit(Job::warm()))).await?;
    let next = AtomicU64::new(0);
    let running = trial.meter.start().await?;
    let callers = (0..CALLERS).map(|_| async {
        while next.fetch_add(1, Ordering::Relaxed) < count {
            trial.subject.emit(Job::warm()).await?;
        }
        anyhow::Ok(())
    });
    try_join_all(callers).await?;
    Ok(Measured::events(count, running.stop().await?, None))
}

pub(super) async fn bulk(trial: &Trial, count: u64) -> Result<Measured> {
    trial.subject.emit(Job::warm()).await?;
    let running = trial.meter.start().await?;
    fill(trial.subject.as_ref(), count).await?;
    Ok(Measured::events(count, running.stop().await?, None))
}
