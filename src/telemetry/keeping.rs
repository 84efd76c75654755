//! The gauge of the quotas that canvases have nearly used up. It is the only metric that names
//! canvases, and so it names few.

use opentelemetry::metrics::ObservableGauge;
use opentelemetry::{KeyValue, global};

use crate::event::{CanvasId, Quota};

/// A gauge that is read only when metrics are collected.
pub struct QuotaGauge {
    _kept: ObservableGauge<f64>,
}

impl QuotaGauge {
    /// Shows what the function returns whenever metrics are collected: canvases, quotas, and the
    /// used part of each. The function must not block, and must return few.
    #[doc(hidden)]
    pub fn over(near: impl Fn() -> Vec<(CanvasId, Quota, f64)> + Send + Sync + 'static) -> Self {
        let gauge = global::meter("wakeq")
            .f64_observable_gauge("wakeq.quota.used")
            .with_unit("1")
            .with_description("The fraction of a quota that a canvas uses, from 0.8 on; the 100 largest")
            .with_callback(move |observer| {
                for (canvas, quota, share) in near() {
                    let labels =
                        [KeyValue::new("canvas", canvas.to_string()), KeyValue::new("quota", quota.as_str())];
                    observer.observe(share, &labels);
                }
            })
            .build();
        Self { _kept: gauge }
    }
}
