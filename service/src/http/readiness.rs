//! Whether the process can serve requests, checked every few seconds at most.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::Serialize;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};
use utoipa::ToSchema;

use wakeq::Admin;

/// How long a result is reused, so that frequent probes cost nothing.
const HOLDS: Duration = Duration::from_secs(2);
/// How long a process that has not reached Pub/Sub yet is unready because of it. Afterwards it
/// serves without: a start during an outage of Pub/Sub must not refuse what Postgres would store.
const PUBSUB_START_TIMEOUT: Duration = Duration::from_secs(60);
/// Timeout of each check.
const CHECK_TIMEOUT: Duration = Duration::from_secs(2);

/// Whether the process can serve requests.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct Health {
    pub(super) status: Status,
    /// The results of the checks.
    checks: Checks,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Status {
    /// Everything is available.
    Ready,
    /// Events are accepted, but Pub/Sub is unavailable, so they start up to two minutes late.
    Degraded,
    /// Requests should be sent elsewhere.
    Unready,
}

#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
struct Checks {
    /// Whether Postgres responds.
    database: bool,
    /// Whether the schema is the one that this program needs.
    migrations: bool,
    /// Whether Pub/Sub has the topic and, where the process runs events, their subscription.
    notifier: bool,
}

/// The latest result, and what was reachable before.
pub(crate) struct Readiness {
    started: Instant,
    last: Mutex<Option<(Instant, Health)>>,
    /// A topic that was never reachable indicates a misconfiguration; one that disappears later
    /// comes back.
    notifier_seen: AtomicBool,
}

impl Default for Readiness {
    fn default() -> Self {
        Self { started: Instant::now(), last: Mutex::default(), notifier_seen: AtomicBool::new(false) }
    }
}

impl Readiness {
    pub(super) async fn health(&self, admin: &Admin) -> Health {
        let mut last = self.last.lock().await;
        if let Some((at, health)) = last.as_ref().filter(|(at, _)| at.elapsed() < HOLDS) {
            let _ = at;
            return health.clone();
        }
        let health = self.check(admin).await;
        *last = Some((Instant::now(), health.clone()));
        health
    }

    async fn check(&self, admin: &Admin) -> Health {
        let (database, migrations, notifier) = tokio::join!(
            timeout(CHECK_TIMEOUT, admin.clock()),
            timeout(CHECK_TIMEOUT, admin.is_migrated()),
            timeout(CHECK_TIMEOUT, admin.check_notifier()),
        );
        let checks = Checks {
            database: matches!(database, Ok(Ok(_))),
            migrations: matches!(migrations, Ok(Ok(true))),
            notifier: matches!(notifier, Ok(Ok(()))),
        };
        let seen = self.notifier_seen.fetch_or(checks.notifier, Ordering::Relaxed) || checks.notifier;
        let status = match (checks.database && checks.migrations, checks.notifier) {
            (true, true) => Status::Ready,
            (true, false) if seen || self.started.elapsed() > PUBSUB_START_TIMEOUT => Status::Degraded,
            (true | false, _) => Status::Unready,
        };
        if status != Status::Ready {
            tracing::warn!(?checks, ?status, "not ready");
        }
        Health { status, checks }
    }
}
