//! How often a process looks for events that became due in pulled queues.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::event::Name;

/// When this process next looks for events that became due in each queue.
#[derive(Debug, Default)]
pub(super) struct DueChecks(Mutex<HashMap<Name, Instant>>);

impl DueChecks {
    /// Most queues that are remembered; for others a look comes too early.
    const KNOWN_MAX: usize = 1000;

    pub(super) fn is_due(&self, queue: &Name) -> bool {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(queue).is_none_or(|next| *next <= Instant::now())
    }

    pub(super) fn next(&self, queue: &Name, wait: Duration) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if wait.is_zero() {
            known.remove(queue);
        } else if known.len() < Self::KNOWN_MAX || known.contains_key(queue) {
            let next = known.entry(queue.clone()).or_insert(now);
            if *next <= now {
                *next = now + wait;
            }
        }
    }
}
