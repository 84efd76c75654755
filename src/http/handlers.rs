//! Handlers: counts, rules, purge.

use axum::Json;
use axum::extract::State;

use super::Api;
use super::guard::Caller;
use super::problem::Problem;
use crate::api::{Handler, List};

/// The handlers of a canvas that have events or rules, with their counts.
#[utoipa::path(get, path = "/v1/canvases/{canvas}/handlers", operation_id = "list_handlers", tag = "handlers",
    params(("canvas" = uuid::Uuid, Path, description = "The tenant")),
    responses((status = 200, description = "At most 1,000 handlers", body = List<Handler>)))]
pub(super) async fn list(State(api): State<Api>, caller: Caller) -> Result<Json<List<Handler>>, Problem> {
    let stats = api.admin.stats(caller.canvas, None).await?;
    Ok(Json(List::whole(stats.into_iter().map(Handler::from).collect())))
}
