//! Where metrics and traces of a process that stays go: to who scrapes them, to a collector, to nobody.
//!
//! What is measured is decided where it happens; here are only the ways out. No trouble on them may stop or hold up the queue.

mod otlp;
mod program;
mod scrape;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use opentelemetry::global;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::metrics::SdkMeterProvider;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tokio_util::task::AbortOnDropHandle;
use tracing_subscriber::{Layer, Registry};

pub use program::Metrics;

use super::logging;
use crate::observe::Observer;

/// Where metrics are scraped, unless told otherwise: the port that OpenTelemetry uses for it, for this machine alone.
const SCRAPED_AT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9464);
/// How long the end of a process waits for a collector.
const FLUSH_WAIT: Duration = Duration::from_secs(2);

#[derive(Args, Clone)]
#[command(next_help_heading = "Telemetry")]
pub(super) struct TelemetryArgs {
    /// Where metrics and traces go; several with commas
    #[arg(long, env = "WAKEQ_TELEMETRY", value_delimiter = ',', default_value = "prometheus")]
    telemetry: Vec<Way>,
    /// Where metrics are scraped [default: 127.0.0.1:9464, if nobody else has it]
    #[arg(long, env = "WAKEQ_METRICS_LISTEN", value_name = "ADDRESS:PORT")]
    metrics_listen: Option<SocketAddr>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Way {
    /// Nowhere
    Off,
    /// Metrics are scraped: GET /metrics
    Prometheus,
    /// Metrics and traces are sent to an OpenTelemetry collector: OTEL_EXPORTER_OTLP_ENDPOINT and its like
    Otlp,
}

/// The observer of the process's queue, once it has one.
#[derive(Clone, Default)]
pub(super) struct Observed(Arc<Mutex<Option<Arc<Observer>>>>);

impl Observed {
    /// `None` when the queue is not to be asked any more.
    pub(super) fn set(&self, observer: Option<Observer>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = observer.map(Arc::new);
    }

    async fn refresh(&self) {
        let observer = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(observer) = observer {
            observer.refresh().await;
        }
    }
}

/// What makes spans into traces, beside the log.
pub(super) type Traces = Box<dyn Layer<Registry> + Send + Sync>;

/// The ways out of a process.
#[derive(Default)]
pub(super) struct Telemetry {
    meters: Option<SdkMeterProvider>,
    tracers: Option<SdkTracerProvider>,
    scraped: Option<(prometheus::Registry, Option<SocketAddr>)>,
}

impl Telemetry {
    /// Opens the ways, for a process that has any. Must be called inside a tokio runtime, before anything is made that
    /// measures.
    pub(super) fn start(arguments: Option<&TelemetryArgs>) -> anyhow::Result<Self> {
        let Some(arguments) = arguments else { return Ok(Self::default()) };
        let goes = |way| arguments.telemetry.contains(&way);
        anyhow::ensure!(
            !goes(Way::Off) || arguments.telemetry.len() == 1,
            "--telemetry (WAKEQ_TELEMETRY) is `off` and something else: leave one out"
        );
        if goes(Way::Off) {
            return Ok(Self::default());
        }
        let mut telemetry = Self::default();
        let mut meters = SdkMeterProvider::builder().with_resource(resource());
        if goes(Way::Prometheus) {
            let registry = prometheus::Registry::new();
            let exporter = opentelemetry_prometheus::exporter();
            let exporter = exporter.with_registry(registry.clone()).scope_info_enabled(false);
            meters = meters.with_reader(exporter.build().context("prepare the metrics to be scraped")?);
            telemetry.scraped = Some((registry, arguments.metrics_listen));
        }
        if goes(Way::Otlp) {
            let (metrics, spans) = otlp::exporters().context("prepare to send metrics and traces")?;
            meters = meters.with_periodic_exporter(metrics);
            let tracers =
                SdkTracerProvider::builder().with_batch_exporter(spans).with_resource(resource()).build();
            global::set_tracer_provider(tracers.clone());
            telemetry.tracers = Some(tracers);
        }
        let meters = meters.build();
        global::set_meter_provider(meters.clone());
        telemetry.meters = Some(meters);
        Ok(telemetry)
    }

    /// What makes spans into traces, if they go anywhere.
    pub(super) fn traces(&self) -> Option<Traces> {
        let tracer = self.tracers.as_ref()?.tracer("wakeq");
        let layer = tracing_opentelemetry::layer()
            .with_tracer(tracer)
            .with_location(false)
            .with_threads(false)
            .with_target(false)
            .with_tracked_inactivity(false);
        Some(Box::new(layer.with_filter(logging::traced())))
    }

    /// Answers who scrapes, until that is dropped. A port that was not asked for, and is taken, is no reason to end.
    pub(super) async fn serve(&self, observed: &Observed) -> anyhow::Result<Option<AbortOnDropHandle<()>>> {
        let Some((registry, asked)) = &self.scraped else { return Ok(None) };
        let scraper = match (scrape::Scraper::bind(asked.unwrap_or(SCRAPED_AT)).await, asked) {
            (Ok(scraper), _) => scraper,
            (Err(error), Some(address)) => {
                let words =
                    format!("can't serve metrics on {address}: choose another port (--metrics-listen)");
                return Err(anyhow::Error::new(error).context(words));
            }
            (Err(error), None) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(
                    error,
                    "no metrics can be scraped from this process: another one has {SCRAPED_AT}; give this one a port of \
                     its own (--metrics-listen, WAKEQ_METRICS_LISTEN), or none (--telemetry off)"
                );
                return Ok(None);
            }
        };
        tracing::info!("metrics are at http://{}/metrics", scraper.address());
        let serving = scraper.run(registry.clone(), observed.clone());
        Ok(Some(AbortOnDropHandle::new(tokio::spawn(serving))))
    }

    /// Sends what was not sent yet, for a short while.
    pub(super) async fn end(self) {
        let Self { meters, tracers, scraped: _ } = self;
        let flushing = tokio::task::spawn_blocking(move || {
            let traces = tracers.map_or(Ok(()), |tracers| tracers.shutdown_with_timeout(FLUSH_WAIT));
            let metrics = meters.map_or(Ok(()), |meters| meters.shutdown_with_timeout(FLUSH_WAIT));
            traces.and(metrics)
        });
        match tokio::time::timeout(FLUSH_WAIT, flushing).await {
            Ok(Ok(Ok(()))) => {}
            Ok(Ok(Err(error))) => tracing::warn!(%error, "the last metrics or traces were not sent"),
            Ok(Err(error)) => tracing::warn!(%error, "the last metrics or traces were not sent"),
            Err(_) => tracing::warn!(after = ?FLUSH_WAIT, "the last metrics or traces were not sent in time"),
        }
    }
}

/// Who measures: `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES` say more, or otherwise.
fn resource() -> Resource {
    let unnamed = std::env::var_os("OTEL_SERVICE_NAME").is_none_or(|name| name.is_empty())
        && !std::env::var("OTEL_RESOURCE_ATTRIBUTES").is_ok_and(|given| given.contains("service.name="));
    let version = opentelemetry::KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
    let resource = Resource::builder().with_attribute(version);
    if unnamed { resource.with_service_name("wakeq").build() } else { resource.build() }
}
