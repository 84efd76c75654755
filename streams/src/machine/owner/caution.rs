//! How many events are processed together: fewer after trouble, and one at a time where one may
//! have ended an owner.

/// How careful an owner is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Caution {
    /// Most events of a batch.
    batch: usize,
    /// The previous owner was lost: what it may have been processing is processed one event at a
    /// time.
    is_wary: bool,
    /// Events up to this `seq` are processed one at a time.
    single_through: i64,
}

impl Caution {
    /// That of an owner whose batches may have this many events.
    pub(super) fn new(batch: usize) -> Self {
        Self { batch, is_wary: false, single_through: 0 }
    }

    /// Most events of a batch.
    pub(super) fn batch(&self) -> usize {
        self.batch
    }

    /// Events up to this `seq` are processed one at a time.
    pub(super) fn single_through(&self) -> i64 {
        self.single_through
    }

    /// The position was opened. That the previous owner was lost is remembered until a page was
    /// read.
    pub(super) fn open(&mut self, was_lost: bool) {
        self.is_wary |= was_lost;
    }

    /// A page was read. The first one after a lost owner may be what that was processing.
    pub(super) fn read(&mut self, through: i64) {
        if std::mem::take(&mut self.is_wary) {
            self.single_through = through;
        }
    }

    /// A batch of this many events would have written too much, or has hung.
    pub(super) fn halve(&mut self, events: usize) {
        self.batch = (events / 2).max(1);
    }

    /// A batch was committed.
    pub(super) fn double(&mut self, most: usize) {
        self.batch = self.batch.saturating_mul(2).min(most);
    }

    /// Events up to this `seq` may hang.
    pub(super) fn single_out(&mut self, through: i64) {
        self.single_through = self.single_through.max(through);
    }
}

/// Why an event dies with which this many owners were lost, this time included; `None` if it is to
/// be tried.
pub(crate) fn failure_after_losses(losses: u32, attempts: u32) -> Option<(String, u32)> {
    let times = losses.saturating_sub(1);
    let why = format!("its processor hung, or its process ended, {times} times while it was processed alone");
    (losses > attempts).then_some((why, times))
}
