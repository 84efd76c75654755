//! The periodic work of a worker: the minute's pass. A row in the database lets one process at a time through.

use std::time::Duration;

use crate::store::Retention;
use crate::wake::{Pass, Waker};

/// Runs the pass every period, from a moment that differs between processes.
pub(super) async fn run(waker: Waker, period: Duration, retention: Retention) {
    loop {
        match waker.pass(Some(retention)).await {
            Ok(pass) if pass == Pass::default() => {}
            Ok(pass) => tracing::info!(woken = pass.woken, jobs = pass.jobs, "woke what was overdue"),
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "the minute's pass failed; tried again"
                );
            }
        }
        tokio::time::sleep(jittered(period)).await;
    }
}

/// Up to a tenth longer than the period, and never shorter: who looks a moment before the pass is due finds nothing to
/// do, and would be late by a whole period.
fn jittered(period: Duration) -> Duration {
    let share = uuid::Uuid::new_v4().as_u128() % 91;
    period.mul_f64(1.01 + 0.001 * share as f64)
}
