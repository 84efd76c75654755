//! Pools of connections: how connections are opened and checked, and how they are closed.
//!
//! No wait here depends on a server that may be dead without a sign.

use std::time::Duration;

use futures_util::future::join_all;
use sqlx::Connection;
use sqlx::postgres::{PgPool, PgPoolOptions};

use super::StoreConfig;
use super::session_settings::SessionSettings;

/// How long a connection may be idle before it is pinged on its next use.
const RESTED: Duration = Duration::from_secs(1);
/// The longest wait for the answer to a ping. Several dead connections are replaced within the time
/// that a caller waits for one.
const PING: Duration = Duration::from_secs(1);

/// A pool whose connections have the settings that statements rely on; behind a pooler in
/// transaction mode, the role has them.
pub(super) fn pool(config: &StoreConfig, max_connections: u32) -> PgPoolOptions {
    let settings = (!config.transaction_pooler).then(|| SessionSettings::of(config));
    let patience = PING.min(config.statement_timeout / 4);
    PgPoolOptions::new()
        .max_connections(max_connections)
        .acquire_timeout(config.statement_timeout)
        .test_before_acquire(false)
        // An idle connection may have died with its server; one that was just used need not be
        // checked.
        .before_acquire(move |connection, meta| {
            Box::pin(async move {
                if meta.idle_for > RESTED {
                    let answer = tokio::time::timeout(patience, connection.ping()).await;
                    answer.map_err(|_| sqlx::Error::Io(std::io::ErrorKind::TimedOut.into()))??;
                }
                Ok(true)
            })
        })
        .after_connect(move |connection, _| {
            let settings = settings.clone();
            Box::pin(async move {
                match settings {
                    Some(settings) => settings.make(connection).await,
                    None => Ok(()),
                }
            })
        })
}

/// Closes these pools once their connections have been returned, or after this time.
pub(super) async fn close<'p>(pools: impl Iterator<Item = &'p PgPool>, limit: Duration) {
    let closing = join_all(pools.map(PgPool::close));
    if tokio::time::timeout(limit, closing).await.is_err() {
        tracing::warn!(
            "Postgres did not answer while its connections were closed: they are left to end by themselves"
        );
    }
}
