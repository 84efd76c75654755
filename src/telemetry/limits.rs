//! The gauges of limits. They name a limit without its canvas, and a family without its keys, so
//! that the keys that events name can't make this process grow.

use std::collections::BTreeMap;
use std::sync::Arc;

use opentelemetry::KeyValue;
use opentelemetry::metrics::ObservableGauge;

use super::labels::Labels;
use super::metrics::observed;
use crate::event::CanvasId;

/// A limit in the gauges.
#[derive(Clone, Debug)]
pub struct LimitGauge {
    /// The canvas on which it is counted.
    pub canvas: CanvasId,
    /// Its name, without the keys of a family.
    pub name: String,
    /// How many events hold a place.
    pub running: u64,
    /// How many events wait for a place.
    pub waiting: u64,
}

/// Gauges that are read only when metrics are collected.
pub struct LimitGauges {
    _kept: [ObservableGauge<u64>; 2],
}

impl LimitGauges {
    /// Shows what the function returns whenever metrics are collected: the limits that are in use.
    /// It must not block for long.
    #[doc(hidden)]
    pub fn over(limits: impl Fn() -> Vec<LimitGauge> + Clone + Send + Sync + 'static) -> Self {
        let labels = Arc::new(Labels::default());
        let gauge = |name, description, number: fn(&LimitGauge) -> u64| {
            let (limits, labels) = (limits.clone(), Arc::clone(&labels));
            observed(name, "{event}", description, move |observer| {
                for (label, number) in sums(&limits(), &labels, number) {
                    observer.observe(number, &[KeyValue::new("limit", label)]);
                }
            })
        };
        let running =
            gauge("wakeq.limit.running", "Events that hold a place of a limit", |limit| limit.running);
        let waiting = gauge(
            "wakeq.limit.waiting",
            "Events that wait for a place of a limit; 20,000 at most",
            |limit| limit.waiting,
        );
        Self { _kept: [running, waiting] }
    }
}

/// One number per name, which stands for many canvases, and `other` for many limits.
fn sums(limits: &[LimitGauge], labels: &Labels, number: fn(&LimitGauge) -> u64) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    for limit in limits {
        *sums.entry(labels.of_limit(limit.canvas, &limit.name).to_string()).or_default() += number(limit);
    }
    sums
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn a_limit_has_one_number_over_all_canvases() {
        let limit = |canvas, name: &str, running| LimitGauge {
            canvas: CanvasId(Uuid::from_u128(canvas)),
            name: name.to_owned(),
            running,
            waiting: 10 * running,
        };
        let limits = [limit(1, "customer", 2), limit(2, "customer", 3), limit(2, "canvas", 1)];
        let labels = Labels::default();
        let expected =
            |factor| BTreeMap::from([("canvas".to_owned(), factor), ("customer".to_owned(), 5 * factor)]);
        assert_eq!(sums(&limits, &labels, |limit| limit.running), expected(1));
        assert_eq!(sums(&limits, &labels, |limit| limit.waiting), expected(10));
    }
}
