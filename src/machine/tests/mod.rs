//! Tests of the machine: what it accepts, its chart, its tables, and that checks can be reordered.

mod answers;
mod asked;
mod chart;
mod consuming;
mod order;
mod tables;
mod walk;

use std::time::Duration;

use crate::event::{Claim, EventId, RuleKind, Schedule, Timestamp, Turn};
use crate::machine::{Policy, RetryPolicy};

const LEASE: Duration = Duration::from_secs(60);
const HORIZON: Duration = Duration::from_secs(600);
const POLICY: Policy =
    Policy { lease: LEASE, horizon: HORIZON, losses_max: 5, retry_delay_max: Duration::MAX, spreads: true };
const DAY: Duration = Duration::from_secs(24 * 3600);

/// The database's clock in all these tests.
fn now() -> Timestamp {
    Timestamp::from_timestamp_millis(1_700_000_000_000).unwrap()
}

/// The moment this many milliseconds after `now`.
fn moment(offset_ms: i64) -> Timestamp {
    Timestamp::from_timestamp_millis(now().timestamp_millis() + offset_ms).unwrap()
}

fn schedule(due_ms: i64, locked_ms: Option<i64>, rule: Option<RuleKind>) -> Schedule {
    let turn = Turn::First;
    Schedule { delay_until: moment(due_ms), locked_at: locked_ms.map(moment), rule, turn, now: now() }
}

fn claim() -> Claim {
    let id: EventId = "00000000-0000-7000-8000-000000000001".parse().unwrap();
    Claim { id, claims: 3, nonce: 0 }
}

fn retry_policy(retries: u32, delay: Duration) -> RetryPolicy {
    RetryPolicy { retries, delay, jitter_percent: 0, ..RetryPolicy::default() }
}
