//! `/livez` and `/readyz`, for orchestrators and load balancers. They need no credential, and so
//! reveal no details.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;

use super::Api;
use super::readiness::{Health, Status};

/// This path is answered even when the process is overloaded.
pub(super) const ALIVE: &str = "/livez";

/// Check that the process is alive
///
/// Succeeds whenever the process responds.
#[utoipa::path(get, path = ALIVE, operation_id = "livez", tag = "health", security(()),
    responses((status = 204, description = "The process is alive")))]
pub(crate) async fn alive() -> StatusCode {
    StatusCode::NO_CONTENT
}

/// Check that the process is ready
///
/// Requests should be sent here if the database, the schema and the topic are available. If Pub/Sub
/// becomes unavailable later, the status stays 200 and the response says `degraded`: events are
/// still accepted and stored.
#[utoipa::path(get, path = "/readyz", operation_id = "readyz", tag = "health", security(()), responses(
    (status = 200, description = "Requests can be sent here", body = Health),
    (status = 503, description = "Requests should be sent elsewhere", body = Health)))]
pub(crate) async fn ready(State(api): State<Api>) -> (StatusCode, Json<Health>) {
    let health = api.readiness.health(&api.admin).await;
    let status = match health.status {
        Status::Ready | Status::Degraded => StatusCode::OK,
        Status::Unready => StatusCode::SERVICE_UNAVAILABLE,
    };
    (status, Json(health))
}
