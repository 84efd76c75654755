//! Operators' view of the leases of pulled queues. They belong to every canvas.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::http::caller::Caller;
use crate::http::path::{EventPath, Parameters, QueuePath};
use crate::http::problem::Problem;
use crate::http::{Api, paging};
use crate::resources::pulls::wire::LeaseJson;
use crate::resources::wire::List;

/// Which page of the leases to return.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct LeasesQuery {
    /// Maximum number of items. Default 100.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// The `next_cursor` of the previous page.
    #[param(max_length = 400)]
    cursor: Option<String>,
}

/// List the leased copies of a queue
///
/// Sorted by canvas and id, without values and tokens. A page visits at most 1,000 canvases, so it
/// may be short although more follow.
#[utoipa::path(get, path = "/v1/admin/queues/{queue}/leases", operation_id = "list_leases", tag = "queues",
    params(LeasesQuery),
    responses((status = 200, description = "A page of leases", body = List<LeaseJson>)))]
pub(crate) async fn list(
    State(api): State<Api>,
    _: Caller,
    QueuePath(queue): QueuePath,
    Parameters(query): Parameters<LeasesQuery>,
) -> Result<Json<List<LeaseJson>>, Problem> {
    let limit = paging::limit(query.limit)?;
    let cursor = paging::cursor(query.cursor.as_deref())?;
    Ok(Json(api.admin.leases(&queue, cursor.as_ref(), limit).await?.into()))
}

/// End a lease whose token is lost
///
/// The copy can be leased again at once, and nothing is counted. From then on, the holder of the
/// token receives 410. A copy that is not leased is answered with 404.
#[utoipa::path(delete, path = "/v1/admin/queues/{queue}/leases/{id}", operation_id = "end_lease", tag = "queues",
    responses((status = 204, description = "The lease was ended")))]
pub(crate) async fn end(
    State(api): State<Api>,
    caller: Caller,
    QueuePath(queue): QueuePath,
    EventPath(id): EventPath,
) -> Result<StatusCode, Problem> {
    api.admin.end_lease(&queue, id, &caller.actor()).await?;
    Ok(StatusCode::NO_CONTENT)
}
