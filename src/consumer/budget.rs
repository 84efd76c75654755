//! How many bytes of events the consumers of a process hold at a time. It never makes a source wait for good: where nothing is
//! left, an event at a time is read.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// What a process has, unless it is said otherwise.
const PROCESS_BYTES: usize = 64 * 1024 * 1024;
/// Bytes of a permit of the semaphore.
const UNIT_BYTES: usize = 1024;
/// How long a source waits for its part.
const PATIENCE: Duration = Duration::from_secs(1);

static OF_PROCESS: LazyLock<ReadBudget> = LazyLock::new(|| ReadBudget::new(PROCESS_BYTES));

/// Bytes of events that consumers hold together, read and not handled yet. A source that finds nothing left for a second reads one event
/// at a time, so that slow ones hold up nobody; what they hold is this, and one event for each source.
///
/// The default is that of the process, 64 MiB, which all consumers share that are given no other.
///
/// ```
/// let budget = wakeq::ReadBudget::new(16 * 1024 * 1024);
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
    /// So many bytes, in steps of 1 KiB, for the consumers that are given this or a clone of it. With none, all of them read an event at a time.
    pub fn new(bytes: usize) -> Self {
        let units = (bytes / UNIT_BYTES).min(Semaphore::MAX_PERMITS);
        Self { permits: Arc::new(Semaphore::new(units)), units }
    }

    /// How many bytes of it nobody holds now.
    pub fn left_bytes(&self) -> usize {
        self.permits.available_permits() * UNIT_BYTES
    }

    /// A part for so many bytes, or all that there is; none, if others hold it for too long.
    pub(super) async fn part(&self, bytes: usize) -> Option<Part> {
        let units = u32::try_from(units(bytes).min(self.units)).unwrap_or(u32::MAX);
        if units == 0 {
            return None;
        }
        let permit = Arc::clone(&self.permits).acquire_many_owned(units);
        tokio::time::timeout(PATIENCE, permit).await.ok()?.ok().map(Part)
    }
}

/// A part of the budget, which goes back when it is dropped.
#[derive(Debug)]
pub(super) struct Part(OwnedSemaphorePermit);

impl Part {
    /// The bytes that it is for.
    pub(super) fn bytes(&self) -> usize {
        self.0.num_permits() * UNIT_BYTES
    }

    /// Gives back what these bytes do not need.
    pub(super) fn shrink(&mut self, bytes: usize) {
        let spare = self.0.num_permits().saturating_sub(units(bytes));
        drop(self.0.split(spare));
    }
}

fn units(bytes: usize) -> usize {
    bytes.div_ceil(UNIT_BYTES)
}
