//! The gauge about what canvases keep: how near those are to their quotas that are near. The only metric that names
//! canvases, and so few of them.

use opentelemetry::metrics::ObservableGauge;
use opentelemetry::{KeyValue, global};

use crate::event::{CanvasId, Quota};

/// What is only looked at when somebody asks for it.
pub(crate) struct QuotaGauge {
    _kept: ObservableGauge<f64>,
}

impl QuotaGauge {
    /// Shows what the function says, whenever somebody collects: canvases, and what part of which quota they use. It must
    /// neither wait nor name many.
    pub(crate) fn over(near: impl Fn() -> Vec<(CanvasId, Quota, f64)> + Send + Sync + 'static) -> Self {
        let gauge = global::meter("wakeq")
            .f64_observable_gauge("wakeq.quota.used")
            .with_unit("1")
            .with_description("What part of a quota a canvas uses, from 0.8 on; the 100 largest")
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
