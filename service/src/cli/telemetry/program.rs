//! Metrics for a program that assembles the parts itself, served as the binary's commands serve
//! theirs.

use std::net::SocketAddr;

use tokio_util::task::AbortOnDropHandle;

use super::scrape::Scraper;
use super::{Exporter, SharedObserver, Telemetry, TelemetryArgs};
use crate::cli::BoxError;
use crate::observe::Observer;
use wakeq::Store;

/// Serves this process's metrics to Prometheus until it is dropped.
///
/// ```no_run
/// # async fn example(url: &str) -> Result<(), wakeq_service::cli::BoxError> {
/// use wakeq_service::cli::Metrics;
/// use wakeq::{Store, StoreConfig};
///
/// let mut metrics = Metrics::serve("127.0.0.1:9464".parse()?).await?; // before anything else of wakeq's is made
/// println!("http://{}/metrics", metrics.address());
/// let store = Store::connect(url, StoreConfig::default()).await?;
/// metrics.watch(&store);
/// # Ok(())
/// # }
/// ```
pub struct Metrics {
    address: SocketAddr,
    observed: SharedObserver,
    _serving: AbortOnDropHandle<()>,
    _telemetry: Telemetry,
}

impl Metrics {
    /// Listens on the address, and sets the program's global meter provider: instruments created
    /// earlier are not exported. Must be called inside a tokio runtime.
    pub async fn serve(address: SocketAddr) -> Result<Self, BoxError> {
        let scraper = Scraper::bind(address).await?;
        let arguments =
            TelemetryArgs { telemetry: vec![Exporter::Prometheus], metrics_listen: Some(address) };
        let telemetry = Telemetry::start(Some(&arguments))?;
        let (registry, _) = telemetry.scraped.clone().ok_or("no metrics are collected")?;
        let observed = SharedObserver::default();
        let address = scraper.address();
        let serving = AbortOnDropHandle::new(tokio::spawn(scraper.run(registry, observed.clone())));
        Ok(Self { address, observed, _serving: serving, _telemetry: telemetry })
    }

    /// The address that it listens on, with the actual port if port 0 was requested.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Also exports the gauges of this queue's backlog.
    pub fn watch(&mut self, store: &Store) {
        self.observed.set(Some(Observer::watch(store)));
    }
}

impl Drop for Metrics {
    fn drop(&mut self) {
        self.observed.set(None);
    }
}
