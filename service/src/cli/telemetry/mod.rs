//! Exports the metrics and traces of long-running processes: to scrapers, to a collector, or
//! nowhere.
//!
//! Each module decides what it measures; this is only the export. Problems with it must not stop or
//! delay the queue.

mod local;
mod observed;
mod otlp;
mod program;
mod scrape;

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use opentelemetry::trace::TracerProvider as _;
use opentelemetry::{KeyValue, global};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::metrics::SdkMeterProvider;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tokio_util::task::AbortOnDropHandle;
use tracing_subscriber::Layer;

pub(crate) use observed::SharedObserver;
pub use program::Metrics;

use super::logging::{self, Traces};

/// Default address for scrapes: OpenTelemetry's usual port, on the loopback interface only.
const SCRAPED_AT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9464);
/// How long the end of a process waits for a collector.
const FLUSH_WAIT: Duration = Duration::from_millis(1_500);

#[derive(Args, Clone)]
#[command(next_help_heading = "Telemetry")]
pub(crate) struct TelemetryArgs {
    /// Exporters of metrics and traces, separated by commas
    #[arg(long, env = "WAKEQ_TELEMETRY", value_delimiter = ',', default_value = "prometheus")]
    telemetry: Vec<Exporter>,
    /// Address to serve metrics on [default: 127.0.0.1:9464, if free]
    #[arg(long, env = "WAKEQ_METRICS_LISTEN", value_name = "ADDRESS:PORT")]
    metrics_listen: Option<SocketAddr>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Exporter {
    /// No telemetry
    Off,
    /// Serve metrics at GET /metrics
    Prometheus,
    /// Send metrics and traces to an OpenTelemetry collector: OTEL_EXPORTER_OTLP_ENDPOINT and
    /// related variables
    Otlp,
}

/// The exporters of a process.
#[derive(Default)]
pub(crate) struct Telemetry {
    meters: Option<SdkMeterProvider>,
    tracers: Option<SdkTracerProvider>,
    scraped: Option<(prometheus::Registry, Option<SocketAddr>)>,
}

impl Telemetry {
    /// Starts the exporters, if the process has any. Must be called inside a tokio runtime, before
    /// any instrument is created.
    pub(crate) fn start(arguments: Option<&TelemetryArgs>) -> anyhow::Result<Self> {
        let Some(arguments) = arguments else { return Ok(Self::default()) };
        let goes = |way| arguments.telemetry.contains(&way);
        anyhow::ensure!(
            !goes(Exporter::Off) || arguments.telemetry.len() == 1,
            "--telemetry (WAKEQ_TELEMETRY) combines `off` with something else: omit one"
        );
        if goes(Exporter::Off) {
            return Ok(Self::default());
        }
        let mut telemetry = Self::default();
        let mut meters = SdkMeterProvider::builder().with_resource(resource());
        if goes(Exporter::Prometheus) {
            let registry = prometheus::Registry::new();
            let exporter = opentelemetry_prometheus::exporter();
            let exporter = exporter.with_registry(registry.clone()).scope_info_enabled(false);
            meters = meters.with_reader(exporter.build().context("prepare the metrics to be scraped")?);
            telemetry.scraped = Some((registry, arguments.metrics_listen));
        }
        if goes(Exporter::Otlp) {
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

    /// The layer that turns spans into traces, if they are exported.
    pub(crate) fn traces(&self) -> Option<Traces> {
        let tracer = self.tracers.as_ref()?.tracer("wakeq");
        let layer = tracing_opentelemetry::layer()
            .with_tracer(tracer)
            .with_location(false)
            .with_threads(false)
            .with_target(false)
            .with_tracked_inactivity(false);
        Some(Box::new(layer.with_filter(logging::traced())))
    }

    /// Serves scrapes until the handle is dropped. If the default port is taken, the process
    /// continues without.
    pub(crate) async fn serve(
        &self,
        observed: &SharedObserver,
    ) -> anyhow::Result<Option<AbortOnDropHandle<()>>> {
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

    /// Exports what is left, for a short while.
    pub(crate) async fn end(self) {
        let Self { meters, tracers, scraped: _ } = self;
        // Concurrently: a hanging collector of traces must not cost the last metrics.
        let traces = flushed("traces", move || match tracers {
            Some(tracers) => tracers.shutdown_with_timeout(FLUSH_WAIT),
            None => Ok(()),
        });
        let metrics = flushed("metrics", move || match meters {
            Some(meters) => meters.shutdown_with_timeout(FLUSH_WAIT),
            None => Ok(()),
        });
        tokio::join!(traces, metrics);
    }
}

async fn flushed(what: &str, flush: impl FnOnce() -> OTelSdkResult + Send + 'static) {
    match tokio::time::timeout(FLUSH_WAIT, tokio::task::spawn_blocking(flush)).await {
        Ok(Ok(Ok(()))) => {}
        Ok(Ok(Err(error))) => tracing::warn!(%error, what, "the last metrics or traces could not be sent"),
        Ok(Err(error)) => {
            tracing::warn!(%error, what, "the task that sends the last metrics or traces failed")
        }
        Err(_) => {
            tracing::warn!(after = ?FLUSH_WAIT, what, "the last metrics or traces were not sent in time");
        }
    }
}

/// Identifies this process, so that a collector does not merge the counts of two.
/// `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES` add to it or override it.
fn resource() -> Resource {
    let given = std::env::var("OTEL_RESOURCE_ATTRIBUTES").unwrap_or_default();
    let unnamed = std::env::var_os("OTEL_SERVICE_NAME").is_none_or(|name| name.is_empty())
        && !given.contains("service.name=");
    let version = KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
    let mut resource = Resource::builder().with_attribute(version);
    if !given.contains("service.instance.id=") {
        let instance = uuid::Uuid::new_v4().to_string();
        resource = resource.with_attribute(KeyValue::new("service.instance.id", instance));
    }
    if unnamed { resource.with_service_name("wakeq").build() } else { resource.build() }
}
