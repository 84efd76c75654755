//! Ended events: listed while they are kept. A single one is shown as any event is.

use axum::Json;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::access::Scope;
use crate::http::caller::Call;
use crate::http::paging;
use crate::http::path::Parameters;
use crate::http::problem::Answer;
use crate::resources::ended_events::wire::{EndedEventJson, Outcome};
use crate::resources::handlers::routes as handlers;
use crate::resources::wire::List;
use wakeq::events::EndedFilter;

/// Which ended events to list, and which page of them.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct EndedQuery {
    /// The handler's module; requires `name`. Default `WORKER`.
    #[param(pattern = "^[A-Za-z0-9_.-]{1,128}$")]
    module: Option<String>,
    /// Only events of this handler.
    #[param(pattern = "^[A-Za-z0-9_.-]{1,128}$")]
    name: Option<String>,
    /// Only events that ended like this.
    #[param(inline)]
    outcome: Option<Outcome>,
    /// Maximum number of items. Default 100.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// The `next_cursor` of the previous page.
    #[param(max_length = 400)]
    cursor: Option<String>,
}

/// List ended events
///
/// Those that are kept, because their emit, their handler's route or their target asks for it. The
/// latest come first. Dead events are in a list of their own.
#[utoipa::path(get, path = "/v1/canvases/{canvas}/ended-events", operation_id = "list_ended_events",
    tag = "ended events", params(EndedQuery),
    responses((status = 200, description = "A page of ended events", body = List<EndedEventJson>)))]
pub(crate) async fn list(
    Call { api, caller }: Call,
    Parameters(query): Parameters<EndedQuery>,
) -> Answer<List<EndedEventJson>> {
    let filter = EndedFilter {
        canvas: caller.canvas,
        scope: handlers::scope(&caller, query.module.as_deref(), query.name.as_deref())?,
        outcome: query.outcome.map(Into::into),
    };
    let (limit, cursor) = (paging::limit(query.limit)?, paging::cursor(query.cursor.as_deref())?);
    Ok(Json(caller.admin(&api, Scope::Read).ended(&filter, cursor.as_ref(), limit).await?.into()))
}
