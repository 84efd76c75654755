//! Tests of the machine: what it accepts, its chart, its tables, and that the order of the checks is free.

mod answers;
mod chart;
mod order;
mod tables;
mod walk;

use std::time::Duration;

use uuid::Uuid;

use super::{Policy, RetryPolicy, Schedule};
use crate::event::{Claim, EventId, RuleKind, Timestamp};

const LEASE: Duration = Duration::from_secs(60);
const HORIZON: Duration = Duration::from_secs(600);
const POLICY: Policy = Policy { lease: LEASE, horizon: HORIZON, losses_max: 5 };
const DAY: Duration = Duration::from_secs(24 * 3600);

/// The database's clock in all these tests.
fn now() -> Timestamp {
    Timestamp::from_timestamp_millis(1_700_000_000_000).unwrap()
}

/// A moment this many milliseconds from now.
fn moment(offset_ms: i64) -> Timestamp {
    now() + chrono::TimeDelta::milliseconds(offset_ms)
}

fn schedule(due_ms: i64, locked_ms: Option<i64>, rule: Option<RuleKind>) -> Schedule {
    Schedule { delay_until: moment(due_ms), locked_at: locked_ms.map(moment), rule, now: now() }
}

fn claim() -> Claim {
    Claim { id: EventId(Uuid::from_u128(1)), claims: 3 }
}

fn retry_policy(retries: u32, delay: Duration) -> RetryPolicy {
    RetryPolicy { retries, delay, ..RetryPolicy::default() }
}
