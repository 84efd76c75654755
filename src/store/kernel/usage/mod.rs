//! What this process knows of how much canvases keep: the last measurements, what it has added
//! since, and how it measures next. No SQL: what is measured is decided elsewhere.

mod headroom;
mod method;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::event::CanvasId;
use headroom::Headroom;
pub(in crate::store) use headroom::{Measurement, Pair, Verdict};
use method::Bounds;
pub(in crate::store) use method::Method;

/// Maximum number of remembered measurements, one per canvas and pair of quotas.
const KNOWN_MAX: usize = 50_000;

/// Maximum number of attempts of a canvas that have rows, about.
pub const ATTEMPTS_MAX: u64 = 5_000_000;

/// Two quotas that are measured together, or what is bounded like them without a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::store) enum QuotaPair {
    Waiting,
    Objects,
    Remembered,
    Log,
    Entities,
    Record,
    /// Rows of attempts. It has a bound, and no quota: nothing is refused for it.
    Attempts,
}

impl QuotaPair {
    /// Those with quotas.
    pub(in crate::store) const ALL: [Self; 6] =
        [Self::Waiting, Self::Objects, Self::Remembered, Self::Log, Self::Entities, Self::Record];
}

/// This process's knowledge of how much canvases keep.
#[derive(Debug)]
pub(in crate::store) struct Quotas {
    pub(in crate::store) known: Mutex<HashMap<(CanvasId, QuotaPair), Arc<KnownUsage>>>,
    /// Held while it is tried whether a canvas can be counted again: one canvas at a time.
    pub(in crate::store) trial: Arc<tokio::sync::Mutex<()>>,
    pub(in crate::store) bounds: Bounds,
    /// [`ATTEMPTS_MAX`], or fewer in tests.
    pub(in crate::store) attempts_max: u64,
}

impl Default for Quotas {
    fn default() -> Self {
        Self {
            known: Mutex::default(),
            trial: Arc::default(),
            bounds: Bounds::default(),
            attempts_max: ATTEMPTS_MAX,
        }
    }
}

/// What it knows of one pair of a canvas.
#[derive(Debug, Default)]
pub(in crate::store) struct KnownUsage {
    headroom: Mutex<Headroom>,
    /// How it is measured. Held while measuring.
    pub(in crate::store) method: tokio::sync::Mutex<Method>,
}

impl KnownUsage {
    pub(in crate::store) fn with<T>(&self, act: impl FnOnce(&mut Headroom) -> T) -> T {
        act(&mut self.headroom.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Quotas {
    /// For tests, whose machine may be busy: only what the server stops is too slow.
    #[cfg(test)]
    pub(in crate::store) fn patient() -> Self {
        Self { bounds: Bounds::PATIENT, ..Self::default() }
    }

    pub(in crate::store) fn of(&self, canvas: CanvasId, measured: QuotaPair) -> Arc<KnownUsage> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = known.get(&(canvas, measured)) {
            return Arc::clone(found);
        }
        if known.len() >= KNOWN_MAX {
            // Forgotten canvases are measured again once they have added something.
            known.clear();
        }
        Arc::clone(known.entry((canvas, measured)).or_default())
    }

    /// Makes sure that a canvas is measured again before anything is added.
    pub(in crate::store) fn forget(&self, canvas: CanvasId) {
        for measured in QuotaPair::ALL {
            self.of(canvas, measured).with(Headroom::forget);
        }
    }
}
