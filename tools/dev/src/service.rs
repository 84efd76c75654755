//! The API beside the worker, on this machine's loopback interface only, with a key that is kept
//! from one start to the next.

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use wakeq::notify::Notifier;
use wakeq::targets::SecretKeys;
use wakeq::{Actor, CanvasId, Store};
use wakeq_service::access::{Access, AccessConfig, ApiKey, CredentialFilter, KeyState, NewKey, Reach, Scope};
use wakeq_service::cli::Metrics;
use wakeq_service::delivery::{DeliveryConfig, InvalidAllowedPlace};
use wakeq_service::server::{HttpConfig, HttpError, HttpServer};

/// The holder of the key, for the audit log.
const HOLDER: &str = "cargo-dev";
/// The holder of the page's key.
const PAGE_HOLDER: &str = "cargo-dev-page";
const METRICS_PORT: u16 = 9464;

/// Where events may be sent: also to this machine, and without TLS.
pub(super) fn delivery() -> Result<DeliveryConfig, InvalidAllowedPlace> {
    let allow = vec!["*=127.0.0.1:1-65535".parse()?, "*=[::1]:1-65535".parse()?];
    Ok(DeliveryConfig { allow, allow_http: true, ..DeliveryConfig::default() })
}

/// Listens on this port, or on a free one if it is taken.
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

/// Serves the metrics on OpenTelemetry's default port, or on a free one if it is taken.
pub(super) async fn metrics() -> anyhow::Result<Metrics> {
    let at = |port| Metrics::serve(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    match at(METRICS_PORT).await {
        Ok(metrics) => Ok(metrics),
        Err(_) => at(0).await.map_err(|error| anyhow::anyhow!(error)).context("serve the metrics"),
    }
}

/// Keeps the key of the last start in its file if it is still valid; otherwise creates one with
/// every scope on the default canvas.
pub(super) async fn key(store: Store, file: &Path) -> anyhow::Result<()> {
    let access = Access::new(store, AccessConfig::default())?;
    if let Ok(kept) = std::fs::read_to_string(file)
        && access.authenticate(Some(&format!("Bearer {}", kept.trim()))).await.is_ok()
    {
        only_ours(&std::fs::File::open(file)?)?;
        return Ok(());
    }
    let reach = Reach::Canvas(CanvasId::DEFAULT);
    let text = new_key(&access, HOLDER, reach).await?.reveal();
    keep(file, &text).with_context(|| format!("write the key to {}", file.display()))
}

/// The path of the page, signed in with a key for everything that nobody else gets: works once.
pub(super) async fn page(store: Store) -> anyhow::Result<String> {
    let access = Access::new(store, AccessConfig::default())?;
    let key = new_key(&access, PAGE_HOLDER, Reach::EveryCanvas).await?;
    Ok(format!("/sign-in?link={}", access.sign_in_link(&key).await?))
}

/// A new key with every scope in place of this holder's others.
async fn new_key(access: &Access, holder: &str, reach: Reach) -> anyhow::Result<ApiKey> {
    let filter = CredentialFilter::Reach(reach);
    for key in access.keys(filter, None, 1000).await? {
        if key.holder == holder && key.state == KeyState::Live {
            access.revoke_key(filter, key.id, &Actor::admin(HOLDER)).await?;
        }
    }
    let scopes = Scope::ALL.into_iter().collect();
    let new = NewKey { holder: holder.into(), reach, scopes, lifetime: None };
    Ok(access.create_key(&new, &Actor::admin(HOLDER)).await?.key)
}

/// The key that encrypts signing secrets: that of the last start, or a new one.
pub(super) fn secret_keys(file: &Path) -> anyhow::Result<SecretKeys> {
    match std::fs::read_to_string(file) {
        Ok(kept) => {
            only_ours(&std::fs::File::open(file)?)?;
            kept.trim().parse().with_context(|| format!("read {}", file.display()))
        }
        Err(missing) if missing.kind() == std::io::ErrorKind::NotFound => {
            let text = SecretKeys::generate()?.to_string();
            keep(file, &text).with_context(|| format!("write the key to {}", file.display()))?;
            Ok(text.parse()?)
        }
        Err(error) => Err(error).with_context(|| format!("read {}", file.display())),
    }
}

/// Writes a file that only its owner can read, even if it existed before.
fn keep(file: &Path, text: &str) -> std::io::Result<()> {
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let mut options = std::fs::OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(false).mode(0o600).open(file)?;
    only_ours(&file)?;
    file.set_len(0)?;
    writeln!(file, "{text}")
}

/// Restricts a file to its owner.
pub(super) fn only_ours(file: &std::fs::File) -> std::io::Result<()> {
    file.set_permissions(std::fs::Permissions::from_mode(0o600))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_files_are_readable_only_by_their_owner() {
        let file = std::env::temp_dir().join(format!("wakeq-dev-secret-key-{}", std::process::id()));
        let mode = || std::fs::metadata(&file).unwrap().permissions().mode() & 0o777;
        let first = secret_keys(&file).unwrap();
        assert_eq!(mode(), 0o600);
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert_eq!(secret_keys(&file).unwrap().ids(), first.ids(), "the same from one start to the next");
        assert_eq!(mode(), 0o600, "also if it was open to others");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
        keep(&file, "key").unwrap();
        assert_eq!((mode(), std::fs::read_to_string(&file).unwrap().as_str()), (0o600, "key\n"));
        std::fs::remove_file(&file).unwrap();
    }
}
