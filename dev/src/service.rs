//! The API beside the worker, on this machine's loopback only, with a key that is kept from one start to the next.

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use wakeq::access::{Access, AccessConfig, KeyState, NewKey, Reach, Scope, Within};
use wakeq::cli::Metrics;
use wakeq::delivery::{DeliveryConfig, InvalidIpRange};
use wakeq::http::{HttpConfig, HttpError, HttpServer};
use wakeq::notify::Notifier;
use wakeq::{Actor, CanvasId, Store};

/// Whose key it is, for the record.
const HOLDER: &str = "cargo-dev";
const METRICS_PORT: u16 = 9464;

/// Where events may be sent: to this machine, too, and without TLS.
pub(super) fn delivery() -> Result<DeliveryConfig, InvalidIpRange> {
    let allow = vec!["127.0.0.1".parse()?, "::1".parse()?];
    Ok(DeliveryConfig { allow, allow_http: true, ..DeliveryConfig::default() })
}

/// Listens on a port, or on another one if somebody has it.
pub(super) async fn bind(store: Store, notifier: Arc<dyn Notifier>, port: u16) -> anyhow::Result<HttpServer> {
    let delivery = delivery()?;
    let config = |port| HttpConfig {
        address: SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
        delivery: delivery.clone(),
        ..HttpConfig::default()
    };
    match HttpServer::bind(store.clone(), Arc::clone(&notifier), config(port)).await {
        Err(HttpError::Address { .. }) => Ok(HttpServer::bind(store, notifier, config(0)).await?),
        bound => Ok(bound?),
    }
}

/// Serves the metrics where OpenTelemetry expects them, or on another port if somebody has that one.
pub(super) async fn metrics() -> anyhow::Result<Metrics> {
    let at = |port| Metrics::serve(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    match at(METRICS_PORT).await {
        Ok(metrics) => Ok(metrics),
        Err(_) => at(0).await.map_err(|error| anyhow::anyhow!(error)).context("serve the metrics"),
    }
}

/// The key of the last start, if it still counts, else a new one, with every scope on the default canvas.
pub(super) async fn key(store: Store, file: &Path) -> anyhow::Result<String> {
    let access = Access::new(store, AccessConfig::default())?;
    if let Ok(kept) = std::fs::read_to_string(file)
        && access.authenticate(Some(&format!("Bearer {}", kept.trim()))).await.is_ok()
    {
        return Ok(kept.trim().to_owned());
    }
    let within = Within::from(CanvasId::DEFAULT);
    for key in access.keys(within, None, 1000).await? {
        if key.holder == HOLDER && key.state == KeyState::Live {
            access.revoke_key(within, key.id, &Actor::admin(HOLDER)).await?;
        }
    }
    let (reach, scopes) = (Reach::Canvas(CanvasId::DEFAULT), Scope::ALL.into_iter().collect());
    let new = NewKey { holder: HOLDER.into(), reach, scopes, lifetime: None };
    let text = access.create_key(&new, &Actor::admin(HOLDER)).await?.key.reveal();
    keep(file, &text).with_context(|| format!("write the key to {}", file.display()))?;
    Ok(text)
}

/// For nobody else's eyes.
fn keep(file: &Path, text: &str) -> std::io::Result<()> {
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let mut options = std::fs::OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(file)?;
    writeln!(file, "{text}")
}
