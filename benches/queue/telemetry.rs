//! Metrics and traces that are recorded in full and then discarded, switched on and off between
//! rounds.

use std::sync::atomic::{AtomicBool, Ordering};

use opentelemetry::global;
use opentelemetry::metrics::noop::NoopMeterProvider;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::metrics::{ManualReader, SdkMeterProvider};
use opentelemetry_sdk::trace::{SdkTracerProvider, SpanData, SpanExporter};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::dynamic_filter_fn;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

static TRACES: AtomicBool = AtomicBool::new(false);

#[derive(Debug)]
struct DiscardingExporter;

impl SpanExporter for DiscardingExporter {
    async fn export(&self, _: Vec<SpanData>) -> OTelSdkResult {
        Ok(())
    }
}

/// Called once, before anything else.
pub(crate) fn start() {
    let tracers = SdkTracerProvider::builder().with_batch_exporter(DiscardingExporter).build();
    let layer = tracing_opentelemetry::layer().with_tracer(tracers.tracer("bench"));
    let wanted = dynamic_filter_fn(|metadata, _| {
        metadata.target() == "wakeq::trace" && TRACES.load(Ordering::Relaxed)
    });
    tracing_subscriber::registry().with(layer.with_filter(wanted)).init();
}

/// Switches metrics and traces on or off.
pub(crate) fn switch(metrics: bool, traces: bool) {
    TRACES.store(traces, Ordering::Relaxed);
    if metrics {
        global::set_meter_provider(
            SdkMeterProvider::builder().with_reader(ManualReader::builder().build()).build(),
        );
    } else {
        global::set_meter_provider(NoopMeterProvider::new());
    }
}
