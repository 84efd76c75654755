//! Leases of the copies of pulled queues, as operators see them. They are of every canvas.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize;
use utoipa::IntoParams;

use super::body::{EventPath, Parameters, QueuePath};
use super::guard::Caller;
use super::problem::Problem;
use super::{Api, paging};
use crate::api::{Lease, List};

/// Which page of the leases.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct LeasesQuery {
    /// Most items of the page. Default 100.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// `next_cursor` of the page before.
    #[param(max_length = 400)]
    cursor: Option<String>,
}

/// List the copies of a queue that services have leased now, by canvas and id, without values and tokens.
///
/// A page visits 1,000 canvases at most: it may be short, and more follow.
#[utoipa::path(get, path = "/v1/admin/queues/{queue}/leases", operation_id = "list_leases", tag = "queues",
    params(LeasesQuery), responses((status = 200, description = "A page of leases", body = List<Lease>)))]
pub(super) async fn list(
    State(api): State<Api>,
    _: Caller,
    QueuePath(queue): QueuePath,
    Parameters(query): Parameters<LeasesQuery>,
) -> Result<Json<List<Lease>>, Problem> {
    let limit = paging::limit(query.limit)?;
    let cursor = paging::cursor(query.cursor.as_deref())?;
    Ok(Json(api.admin.leases(&queue, cursor.as_ref(), limit).await?.into()))
}

/// End a lease whose token is lost: the copy comes again at once, and nothing is counted.
///
/// Whoever holds the token is answered 410 from then on. A copy that is not leased is answered 404.
#[utoipa::path(delete, path = "/v1/admin/queues/{queue}/leases/{id}", operation_id = "end_lease", tag = "queues",
    responses((status = 204, description = "It is over")))]
pub(super) async fn end(
    State(api): State<Api>,
    caller: Caller,
    QueuePath(queue): QueuePath,
    EventPath(id): EventPath,
) -> Result<StatusCode, Problem> {
    api.admin.end_lease(&queue, id, &caller.actor()).await?;
    Ok(StatusCode::NO_CONTENT)
}
