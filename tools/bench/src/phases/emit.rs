//! Emits: one by one by many callers, and many in a call by one. A notification that an emit
//! publishes is part of it. Connections are open and statements prepared before it is measured.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;

use super::{CALL, Measured, Trial, WARMING, fill};
use crate::subject::{Job, Subject};

const CALLERS: usize = 32;

pub(super) async fn single(trial: &Trial, count: u64) -> Result<Measured> {
    one_by_one(&trial.subject, WARMING).await?;
    let running = trial.meter.start().await?;
    one_by_one(&trial.subject, count).await?;
    Ok(Measured::events(count, running.stop().await?, None))
}

/// By all callers, each of them a task.
async fn one_by_one(subject: &Arc<dyn Subject>, count: u64) -> Result<()> {
    let next = Arc::new(AtomicU64::new(0));
    let start = |_| {
        let (subject, next) = (Arc::clone(subject), Arc::clone(&next));
        tokio::spawn(async move {
            while next.fetch_add(1, Ordering::Relaxed) < count {
                subject.emit(Job::warm()).await?;
            }
            anyhow::Ok(())
        })
    };
    let callers: Vec<_> = (0..CALLERS).map(start).collect();
    for caller in callers {
        caller.await??;
    }
    Ok(())
}

pub(super) async fn bulk(trial: &Trial, count: u64) -> Result<Measured> {
    fill(trial.subject.as_ref(), CALL).await?;
    let running = trial.meter.start().await?;
    fill(trial.subject.as_ref(), count).await?;
    Ok(Measured::events(count, running.stop().await?, None))
}
