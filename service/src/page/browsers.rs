//! How many browsers watch pages of which canvas. Counts only; `http/visitors.rs` limits them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use wakeq::CanvasId;

/// Browsers that watch, each of which holds its canvas's.
#[derive(Default)]
pub(super) struct Browsers(Mutex<HashMap<CanvasId, Weak<()>>>);

impl Browsers {
    /// One more, for as long as it holds this.
    pub(super) fn begin(&self, canvas: CanvasId) -> Arc<()> {
        let mut canvases = self.canvases();
        canvases.get(&canvas).and_then(Weak::upgrade).unwrap_or_else(|| {
            let browser = Arc::new(());
            canvases.insert(canvas, Arc::downgrade(&browser));
            browser
        })
    }

    /// How many watch pages of a canvas.
    pub(super) fn of(&self, canvas: CanvasId) -> usize {
        self.canvases().get(&canvas).map_or(0, Weak::strong_count)
    }

    /// Of how many canvases pages are watched.
    pub(super) fn count_canvases(&self) -> usize {
        self.canvases().len()
    }

    /// Those of which pages are watched.
    fn canvases(&self) -> MutexGuard<'_, HashMap<CanvasId, Weak<()>>> {
        let mut canvases = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        canvases.retain(|_, browsers| browsers.strong_count() > 0);
        canvases
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn browsers_count_for_their_canvas_until_they_go() {
        let (browsers, other) = (Browsers::default(), CanvasId(Uuid::from_u128(2)));
        let own = [browsers.begin(CanvasId::DEFAULT), browsers.begin(CanvasId::DEFAULT)];
        let theirs = browsers.begin(other);
        let counts = || (browsers.of(CanvasId::DEFAULT), browsers.of(other), browsers.count_canvases());
        assert_eq!(counts(), (2, 1, 2));
        drop(own);
        assert_eq!(counts(), (0, 1, 1));
        drop(theirs);
        assert_eq!(counts(), (0, 0, 0));
    }
}
