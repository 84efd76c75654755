//! How far this process's own passes of the minute's statement came: what raises the low-water mark. No SQL.

use std::sync::{Mutex, PoisonError};

use crate::event::Timestamp;

/// What this process knows of the passes that it made itself.
#[derive(Debug, Default)]
pub(super) struct Probe(Mutex<Known>);

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Known {
    /// Where the next page of the running pass begins.
    pub(super) from: Option<Timestamp>,
    /// Every promise before this moment was kept by a pass that came to its end.
    pub(super) kept_until: Option<Timestamp>,
    /// The same for the running pass, once it has come to its end.
    will_be_kept_until: Option<Timestamp>,
}

impl Probe {
    pub(super) fn known(&self) -> Known {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Knows nothing any more: the clock was moved.
    #[cfg(feature = "testing")]
    pub(super) fn forget(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Known::default();
    }

    /// A page was read: `rest` is where it ended, if there may be more. Promises that were written up to `kept_until`
    /// are kept when the whole pass is over; later ones may still be hidden in open transactions. A pass that passed over
    /// a promise did not keep them.
    pub(super) fn learn(
        &self,
        (again, passed_over): (bool, bool),
        rest: Option<Timestamp>,
        kept_until: Timestamp,
    ) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !again {
            known.will_be_kept_until = Some(kept_until);
        }
        if passed_over {
            known.will_be_kept_until = None;
        }
        known.from = rest;
        if rest.is_none() {
            known.kept_until = known.will_be_kept_until.or(known.kept_until);
        }
    }
}
