//! Error groups of dead events: list, show, mark as known.

use axum::Json;
use axum::http::StatusCode;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::access::Scope;
use crate::http::body;
use crate::http::caller::Call;
use crate::http::paging;
use crate::http::path::{ErrorGroupPath, Parameters};
use crate::http::problem::{Answer, Details, Problem};
use crate::resources::dead_events::wire::group::{
    ErrorGroupJson, ErrorGroupOrderJson, ErrorGroupsJson, KnowError, KnownErrorJson,
};
use crate::resources::handlers::routes as handlers;
use wakeq::control::ErrorGroupFilter;

/// Which error groups to list, and which page of them.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct GroupsQuery {
    /// The handler's module; requires `name`. Default `WORKER`.
    #[param(pattern = "^[A-Za-z0-9_.-]{1,128}$")]
    module: Option<String>,
    /// Only groups of this handler.
    #[param(pattern = "^[A-Za-z0-9_.-]{1,128}$")]
    name: Option<String>,
    /// Only groups that are marked as known, or only those that are not. Default: both.
    known: Option<bool>,
    /// Which come first: those with the most events (`count`), or those of which an event died last
    /// (`last_died`). Default `count`.
    #[param(inline)]
    order: Option<ErrorGroupOrderJson>,
    /// Maximum number of items. Default 100.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// The `next_cursor` of the previous page.
    #[param(max_length = 400)]
    cursor: Option<String>,
}

/// List error groups
///
/// Groups dead events by their handler, their cause and what their last errors have in common. At
/// most 100,000 dead events are grouped, those that died last, and `more` says whether there may be
/// older ones. The groups are counted anew for each page.
#[utoipa::path(get, path = "/v1/canvases/{canvas}/dead-events/groups", operation_id = "list_error_groups",
    tag = "dead events", params(GroupsQuery),
    responses((status = 200, description = "A page of error groups", body = ErrorGroupsJson)))]
pub(crate) async fn list(
    Call { api, caller }: Call,
    Parameters(query): Parameters<GroupsQuery>,
) -> Answer<ErrorGroupsJson> {
    let filter = ErrorGroupFilter {
        handler: handlers::scope(&caller, query.module.as_deref(), query.name.as_deref())?,
        known: query.known,
        order: query.order.unwrap_or_default().into(),
    };
    let (limit, cursor) = (paging::limit(query.limit)?, paging::cursor(query.cursor.as_deref())?);
    let admin = caller.admin(&api, Scope::Read);
    Ok(Json(admin.error_groups(caller.canvas, &filter, cursor.as_ref(), limit).await?.into()))
}

/// Show an error group
///
/// Its count is at most 100,000, which stands for that many or more.
#[utoipa::path(get, path = "/v1/canvases/{canvas}/dead-events/groups/{error_group}",
    operation_id = "show_error_group", tag = "dead events",
    responses((status = 200, description = "The error group", body = ErrorGroupJson)))]
pub(crate) async fn one(
    Call { api, caller }: Call,
    ErrorGroupPath(group): ErrorGroupPath,
) -> Answer<ErrorGroupJson> {
    let admin = caller.admin(&api, Scope::Read);
    Ok(Json(admin.error_group(caller.canvas, group).await?.into()))
}

/// Mark an error group as known
///
/// A mark that there is already is replaced. It is forgotten when no event of the group has died
/// for as long as dead events are kept.
#[utoipa::path(put, path = "/v1/canvases/{canvas}/dead-events/groups/{error_group}/known",
    operation_id = "know_error", tag = "dead events", request_body = KnowError, responses(
    (status = 200, description = "The group is marked as known", body = KnownErrorJson),
    (status = 409, description = "The canvas has 1,000 known errors",
        body = Details, content_type = "application/problem+json")))]
pub(crate) async fn know(
    Call { api, caller }: Call,
    ErrorGroupPath(group): ErrorGroupPath,
    body::Json(request): body::Json<KnowError>,
) -> Answer<KnownErrorJson> {
    let admin = caller.admin(&api, Scope::Operate);
    let known = admin.know_error(caller.canvas, group, request.note.as_deref(), &caller.actor()).await?;
    Ok(Json(known.into()))
}

/// Remove the mark of an error group
#[utoipa::path(delete, path = "/v1/canvases/{canvas}/dead-events/groups/{error_group}/known",
    operation_id = "forget_error", tag = "dead events",
    responses((status = 204, description = "The group is not marked as known")))]
pub(crate) async fn forget(
    Call { api, caller }: Call,
    ErrorGroupPath(group): ErrorGroupPath,
) -> Result<StatusCode, Problem> {
    let admin = caller.admin(&api, Scope::Operate);
    admin.forget_error(caller.canvas, group, &caller.actor()).await?;
    Ok(StatusCode::NO_CONTENT)
}
