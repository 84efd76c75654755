//! How often a process looks for copies that became due in pulled queues.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::event::Name;

/// After a look that took too long, the next one comes after this time.
const PUT_OFF: Duration = Duration::from_secs(60);

/// When this process next looks for copies that became due in each queue.
#[derive(Debug, Default)]
pub(super) struct DueChecks(Mutex<HashMap<Name, Check>>);

#[derive(Clone, Copy, Debug)]
struct Check {
    at: Instant,
    /// The last look took too long.
    is_put_off: bool,
}

impl DueChecks {
    /// Maximum number of queues that are remembered. For others a look comes too early.
    const KNOWN_MAX: usize = 1000;

    /// Whether a call looks now. If it has found `nothing` to lease it does so at any time, unless
    /// looks take too long: then one call in [`PUT_OFF`] does.
    pub(super) fn is_due(&self, queue: &Name, nothing: bool) -> bool {
        let mut known = self.known();
        let Some(check) = known.get_mut(queue) else { return true };
        let now = Instant::now();
        if check.at > now {
            return nothing && !check.is_put_off;
        }
        if check.is_put_off {
            check.at = now + PUT_OFF;
        }
        true
    }

    /// After copies were leased: the next look is due after this time, unless it was put off.
    pub(super) fn next(&self, queue: &Name, wait: Duration) {
        let mut known = self.known();
        let now = Instant::now();
        let stands = |check: &Check| check.is_put_off || (check.at > now && !wait.is_zero());
        if known.get(queue).is_some_and(stands) {
            return;
        }
        known.remove(queue);
        if !wait.is_zero() && known.len() < Self::KNOWN_MAX {
            known.insert(queue.clone(), Check { at: now + wait, is_put_off: false });
        }
    }

    /// After a look that took too long.
    pub(super) fn put_off(&self, queue: &Name) {
        let mut known = self.known();
        if known.len() < Self::KNOWN_MAX || known.contains_key(queue) {
            known.insert(queue.clone(), Check { at: Instant::now() + PUT_OFF, is_put_off: true });
        }
    }

    /// After a look that did not take too long.
    pub(super) fn answered(&self, queue: &Name) {
        let mut known = self.known();
        if known.get(queue).is_some_and(|check| check.is_put_off) {
            known.remove(queue);
        }
    }

    fn known(&self) -> MutexGuard<'_, HashMap<Name, Check>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Once a look is due, one call looks, and concurrent calls do not until it is answered. Other
    /// queues are looked at as before.
    #[tokio::test(start_paused = true)]
    async fn one_call_looks_again_after_its_time() {
        let (checks, second) = (DueChecks::default(), Duration::from_secs(1));
        let [slow, quick] = ["slow", "quick"].map(|name| name.parse::<Name>().unwrap());
        let due = |queue| [false, true].map(|nothing| checks.is_due(queue, nothing));
        checks.put_off(&slow);
        checks.next(&slow, Duration::ZERO);
        checks.next(&quick, second);
        assert_eq!((due(&slow), due(&quick)), ([false, false], [false, true]));
        tokio::time::advance(PUT_OFF).await;
        assert_eq!((due(&slow), due(&quick)), ([true, false], [true, true]));
        checks.answered(&slow);
        assert_eq!(due(&slow), [true, true]);
        checks.next(&slow, second);
        checks.next(&slow, Duration::ZERO);
        assert_eq!(due(&slow), [true, true]);
    }
}
