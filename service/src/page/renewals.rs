//! Which canvases' answers are being renewed for those who look next. One of a canvas at a time: a
//! canvas has few connections to read with, and somebody may be waiting for one now.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use wakeq::CanvasId;

/// The canvases with a renewal under way.
#[derive(Clone, Default)]
pub(super) struct Renewals(Arc<Mutex<HashSet<CanvasId>>>);

impl Renewals {
    /// Begins one, unless another of this canvas is under way.
    pub(super) fn begin(&self, canvas: CanvasId) -> Option<Renewal> {
        self.under_way().insert(canvas).then(|| Renewal { all: self.clone(), canvas })
    }

    fn under_way(&self) -> MutexGuard<'_, HashSet<CanvasId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A renewal, until it has ended in whatever way.
pub(super) struct Renewal {
    all: Renewals,
    canvas: CanvasId,
}

impl Drop for Renewal {
    fn drop(&mut self) {
        self.all.under_way().remove(&self.canvas);
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn one_of_a_canvas_is_under_way_beside_those_of_others() {
        let (renewals, canvas) = (Renewals::default(), |number| CanvasId(Uuid::from_u128(number)));
        let first = renewals.begin(canvas(1));
        assert!(first.is_some() && renewals.begin(canvas(1)).is_none());
        assert!(renewals.begin(canvas(2)).is_some());
        drop(first);
        assert!(renewals.begin(canvas(1)).is_some());
    }
}
