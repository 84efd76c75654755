//! `/livez` and `/readyz`: for those who start, stop and route to this process. They tell no details to strangers.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Serialize;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};
use utoipa::ToSchema;

use super::Api;
use crate::admin::Admin;

/// The path that is answered however busy the process is.
pub(super) const ALIVE: &str = "/livez";

/// How long an answer holds: probes may come as often as they like.
const HOLDS: Duration = Duration::from_secs(2);
/// How long a process that never saw Pub/Sub waits for it. Later it serves all the same: a start amid an outage of Pub/Sub
/// must not refuse what Postgres would keep.
const PATIENCE_FOR_PUBSUB: Duration = Duration::from_secs(60);
/// How long each check may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// Whether the process can serve.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(super) struct Health {
    status: Status,
    /// Each thing that was looked at.
    checks: Checks,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum Status {
    /// All is well.
    Ready,
    /// Events are accepted; Pub/Sub is away, so they start up to two minutes late.
    Degraded,
    /// Requests should go elsewhere.
    Unready,
}

#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
struct Checks {
    /// Whether Postgres answers.
    database: bool,
    /// Whether the schema is what this program needs.
    migrations: bool,
    /// Whether Pub/Sub has the topic.
    notifier: bool,
}

/// The last look, and what was seen before.
pub(super) struct Readiness {
    started: Instant,
    last: Mutex<Option<(Instant, Health)>>,
    /// A topic that was never there is a mistake of the deployment; one that goes away comes back.
    notifier_seen: AtomicBool,
}

impl Default for Readiness {
    fn default() -> Self {
        Self { started: Instant::now(), last: Mutex::default(), notifier_seen: AtomicBool::new(false) }
    }
}

impl Readiness {
    async fn look(&self, admin: &Admin) -> Health {
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
            timeout(PATIENCE, admin.clock()),
            timeout(PATIENCE, admin.is_migrated()),
            timeout(PATIENCE, admin.check_notifier()),
        );
        let checks = Checks {
            database: matches!(database, Ok(Ok(_))),
            migrations: matches!(migrations, Ok(Ok(true))),
            notifier: matches!(notifier, Ok(Ok(()))),
        };
        let seen = self.notifier_seen.fetch_or(checks.notifier, Ordering::Relaxed) || checks.notifier;
        let status = match (checks.database && checks.migrations, checks.notifier) {
            (true, true) => Status::Ready,
            (true, false) if seen || self.started.elapsed() > PATIENCE_FOR_PUBSUB => Status::Degraded,
            (true | false, _) => Status::Unready,
        };
        if status != Status::Ready {
            tracing::warn!(?checks, ?status, "not ready");
        }
        Health { status, checks }
    }
}

/// Whether the process lives: always, when it answers.
#[utoipa::path(get, path = "/livez", operation_id = "livez", tag = "health", security(()),
    responses((status = 204, description = "The process lives")))]
pub(super) async fn alive() -> StatusCode {
    StatusCode::NO_CONTENT
}

/// Whether requests should be sent here: database, schema and topic are there.
///
/// When Pub/Sub goes away later, the answer stays 200 and says `degraded`: events are accepted and kept all the same.
#[utoipa::path(get, path = "/readyz", operation_id = "readyz", tag = "health", security(()), responses(
    (status = 200, description = "Requests are welcome", body = Health),
    (status = 503, description = "Requests should go elsewhere", body = Health)))]
pub(super) async fn ready(State(api): State<Api>) -> (StatusCode, Json<Health>) {
    let health = api.readiness.look(&api.admin).await;
    let status = match health.status {
        Status::Ready | Status::Degraded => StatusCode::OK,
        Status::Unready => StatusCode::SERVICE_UNAVAILABLE,
    };
    (status, Json(health))
}
