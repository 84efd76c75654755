//! The canvases that are near their quotas, as far as this process knows, for a gauge. Runs no
//! statement.

use std::sync::{Arc, PoisonError};

use crate::event::{CanvasId, Quota};
use crate::store::kernel::Store;

/// Maximum number of canvases that are reported.
const NEAR_MAX: usize = 100;
/// The share of its limit from which a canvas is near it.
const NEAR: f64 = 0.8;

impl Store {
    /// The canvases that this process emits on and last saw near or over a quota, and what share of
    /// it they use: the largest first, at most 100.
    #[doc(hidden)]
    pub fn near_quotas(&self) -> Vec<(CanvasId, Quota, f64)> {
        let known: Vec<_> = {
            let known = self.quotas.known.lock().unwrap_or_else(PoisonError::into_inner);
            known.iter().map(|(key, known)| (*key, Arc::clone(known))).collect()
        };
        let mut near = Vec::new();
        for ((canvas, measured), known) in known {
            let seen = known.with(|headroom| Some((headroom.used()?, headroom.measurement()?.limits)));
            let Some((used, limits)) = seen else { continue };
            for (which, quota) in measured.quotas().into_iter().enumerate() {
                // Exact enough for a gauge.
                let share = used[which] as f64 / limits[which].max(1) as f64;
                if let (Some(quota), true) = (quota, share >= NEAR) {
                    near.push((canvas, quota, share));
                }
            }
        }
        near.sort_by(|one, other| other.2.total_cmp(&one.2));
        near.truncate(NEAR_MAX);
        near
    }
}
