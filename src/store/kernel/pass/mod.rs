//! How far this process's own passes of the minute's statement got, which raises the low-water
//! mark. No SQL.

mod parts;
mod slices;

use std::sync::{Mutex, PoisonError};

use crate::event::Timestamp;
pub(in crate::store) use parts::{Parts, Slice, TooLong};
pub(in crate::store) use slices::Portion;

/// This process's knowledge of its own passes.
#[derive(Debug, Default)]
pub(in crate::store) struct Probe(Mutex<PassProgress>);

#[derive(Clone, Copy, Debug, Default)]
pub(in crate::store) struct PassProgress {
    /// Where the next page of the current pass begins.
    pub(in crate::store) from: Option<Timestamp>,
    /// Every promise before this moment was kept by a completed pass.
    pub(in crate::store) kept_until: Option<Timestamp>,
    /// What `kept_until` will be once the current pass has completed.
    will_be_kept_until: Option<Timestamp>,
    /// While passes are taken in parts.
    parts: Option<Parts>,
}

impl Probe {
    pub(in crate::store) fn known(&self) -> PassProgress {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets everything, because the clock was moved.
    #[cfg(feature = "testing")]
    pub(in crate::store) fn forget(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = PassProgress::default();
    }

    /// The rest of the current pass, if passes are taken in parts.
    pub(in crate::store) fn parts(&self) -> Option<Parts> {
        self.known().parts
    }

    /// Whether a page is to be taken in parts; a pass that begins may try all at once again.
    pub(in crate::store) fn is_in_parts(&self, again: bool) -> bool {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.parts = known.parts.filter(|parts| again || !parts.is_over());
        known.parts.is_some()
    }

    /// Begins a pass in parts, unless this is a page of one that has begun.
    pub(in crate::store) fn begin(
        &self,
        again: bool,
        recent: (Option<Timestamp>, Timestamp),
        behind: Option<Timestamp>,
    ) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let parts = known.parts.unwrap_or(Parts::AFTER_ALL_AT_ONCE);
        if !again || !parts.has_begun() {
            known.parts = Some(parts.of_pass(recent, behind));
        }
    }

    /// Records how far a pass in parts has got.
    pub(in crate::store) fn keep(&self, parts: Parts) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).parts = Some(parts);
    }

    /// Records a page: `rest` is where it ended, if there may be more. Once the whole pass has
    /// completed, promises up to `kept_until` are kept; later ones may still be hidden in open
    /// transactions. A pass that skipped a promise does not count.
    pub(in crate::store) fn learn(
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
