//! Limits how many bytes of events the consumers of a process hold. It never blocks a source for
//! good: a source that gets no share reads one event at a time.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The default budget of a process.
const PROCESS_BYTES: usize = 64 * 1024 * 1024;
/// Bytes per permit of the semaphore.
const UNIT_BYTES: usize = 1024;
/// How long a source waits for its share before it reads a single event.
const PATIENCE: Duration = Duration::from_secs(1);

static OF_PROCESS: LazyLock<ReadBudget> = LazyLock::new(|| ReadBudget::new(PROCESS_BYTES));

/// Limits the bytes of events that consumers have read and not handled yet.
///
/// A source that gets no share within a second reads one event at a time, so slow consumers do not
/// block others. The most that is held is this budget plus one event per source.
///
/// The default is the budget of the process, 64 MiB, shared by all consumers that have none of
/// their own.
///
/// ```
/// let budget = wakeq_streams::consumers::ReadBudget::new(16 * 1024 * 1024);
/// assert_eq!(budget.left_bytes(), 16 * 1024 * 1024);
/// ```
#[derive(Clone, Debug)]
pub struct ReadBudget {
    permits: Arc<Semaphore>,
    units: usize,
}

impl Default for ReadBudget {
    fn default() -> Self {
        OF_PROCESS.clone()
    }
}

impl ReadBudget {
    /// A budget of this many bytes, rounded down to 1 KiB, for the consumers that are given it or a
    /// clone of it. With a budget of zero, each of them reads one event at a time.
    pub fn new(bytes: usize) -> Self {
        let units = (bytes / UNIT_BYTES).min(Semaphore::MAX_PERMITS);
        Self { permits: Arc::new(Semaphore::new(units)), units }
    }

    /// How many bytes are free now.
    pub fn left_bytes(&self) -> usize {
        self.permits.available_permits() * UNIT_BYTES
    }

    /// Takes a share of this many bytes, or of the whole budget if that is smaller. `None` if
    /// others hold it for longer than a second, or if the budget is zero.
    pub(super) async fn share(&self, bytes: usize) -> Option<BudgetShare> {
        let units = u32::try_from(units(bytes).min(self.units)).unwrap_or(u32::MAX);
        if units == 0 {
            return None;
        }
        let permit = Arc::clone(&self.permits).acquire_many_owned(units);
        tokio::time::timeout(PATIENCE, permit).await.ok()?.ok().map(BudgetShare)
    }
}

/// A share of the budget, which is returned when it is dropped.
#[derive(Debug)]
pub(super) struct BudgetShare(OwnedSemaphorePermit);

impl BudgetShare {
    /// The size of the share.
    pub(super) fn bytes(&self) -> usize {
        self.0.num_permits() * UNIT_BYTES
    }

    /// Returns what exceeds this many bytes.
    pub(super) fn shrink(&mut self, bytes: usize) {
        let spare = self.0.num_permits().saturating_sub(units(bytes));
        drop(self.0.split(spare));
    }
}

fn units(bytes: usize) -> usize {
    bytes.div_ceil(UNIT_BYTES)
}
