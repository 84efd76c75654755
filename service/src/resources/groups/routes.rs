//! Consumer groups: nodes, owners of sources, positions, resets and dead events. All of it concerns
//! the events of every canvas.

use axum::Json;
use axum::http::StatusCode;
use serde::Deserialize;
use utoipa::IntoParams;
use uuid::Uuid;

use crate::http::body;
use crate::http::caller::Call;
use crate::http::paging::page_query;
use crate::http::path::{GroupPath, Parameters};
use crate::http::problem::{Answer, Problem};
use crate::resources::groups::wire::{
    GroupDeadJson, GroupJson, GroupNodesJson, GroupSummary, RedriveGroup, RedrivenGroup, RemoveGroupJson,
    ResetGroupJson, ResetRequest,
};
use crate::resources::handlers::routes::storable;
use crate::resources::wire::List;
use wakeq::Name;
use wakeq::log::EventSource;
use wakeq_streams::control::GroupDeadCursor;

page_query!(NodesQuery, 36);

/// List the nodes with subscribers, and the coordinator
#[utoipa::path(get, path = "/v1/admin/nodes", operation_id = "list_nodes", tag = "groups", params(NodesQuery),
    responses((status = 200, description = "A page of nodes", body = GroupNodesJson)))]
pub(crate) async fn nodes(
    Call { api, .. }: Call,
    Parameters(query): Parameters<NodesQuery>,
) -> Answer<GroupNodesJson> {
    let (limit, after) = query.read::<Uuid>()?;
    Ok(Json(GroupNodesJson::page(api.groups.group_nodes().await?, limit, after)))
}

page_query!(GroupsQuery, 128);

/// List the consumer groups
///
/// Sorted by name, with their lag.
#[utoipa::path(get, path = "/v1/admin/groups", operation_id = "list_groups", tag = "groups",
    params(GroupsQuery),
    responses((status = 200, description = "A page of groups", body = List<GroupSummary>)))]
pub(crate) async fn list(
    Call { api, .. }: Call,
    Parameters(query): Parameters<GroupsQuery>,
) -> Answer<List<GroupSummary>> {
    let (limit, after) = query.read::<Name>()?;
    let groups = api.groups.groups().await?;
    Ok(Json(List::part(groups, limit, after.as_ref().map(Name::as_str), |group| group.name.to_string())))
}

/// Show a consumer group
///
/// Returns its subscribers, and the owner, position and lag of each source.
#[utoipa::path(get, path = "/v1/admin/groups/{group}", operation_id = "show_group", tag = "groups",
    responses((status = 200, description = "The group", body = GroupJson)))]
pub(crate) async fn one(Call { api, .. }: Call, GroupPath(name): GroupPath) -> Answer<GroupJson> {
    Ok(Json(api.groups.group(&name).await?.into()))
}

/// Reset a group's position in the log
///
/// Its consumers notice, and resume from there.
#[utoipa::path(post, path = "/v1/admin/groups/{group}/reset", operation_id = "reset_group", tag = "groups",
    request_body = ResetRequest, responses(
    (status = 200, description = "The positions were reset", body = ResetGroupJson),
    (status = 400, description = "The position is not in the log, or the source is not one of the group")))]
pub(crate) async fn reset(
    Call { api, caller }: Call,
    GroupPath(name): GroupPath,
    body::Json(request): body::Json<ResetRequest>,
) -> Answer<ResetGroupJson> {
    let (source, to) = request.read().map_err(Problem::invalid)?;
    let reset = api.groups.reset_group(&name, source.as_ref(), to, &caller.actor()).await?;
    Ok(Json(reset.into()))
}

/// Retry a group's unhealthy members and waiting sources
///
/// The members notice with their next heartbeat.
#[utoipa::path(post, path = "/v1/admin/groups/{group}/recover", operation_id = "recover_group", tag = "groups",
    responses((status = 202, description = "The members will retry")))]
pub(crate) async fn recover(
    Call { api, caller }: Call,
    GroupPath(name): GroupPath,
) -> Result<StatusCode, Problem> {
    api.groups.recover_group(&name, &caller.actor()).await?;
    Ok(StatusCode::ACCEPTED)
}

/// What to remove of a group.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct RemoveQuery {
    /// Only the position in this source. Default: the whole group.
    #[param(example = "category/companies/3-of-f", max_length = 700)]
    source: Option<String>,
}

/// Remove a consumer group without subscribers
///
/// Its positions and pins are removed with it, so that they no longer retain the log.
#[utoipa::path(delete, path = "/v1/admin/groups/{group}", operation_id = "remove_group", tag = "groups",
    params(RemoveQuery), responses(
    (status = 200, description = "The group, or its position in the source, was removed",
        body = RemoveGroupJson),
    (status = 400, description = "The source is not valid, or not one of the group"),
    (status = 409, description = "The group is in use")))]
pub(crate) async fn remove(
    Call { api, caller }: Call,
    GroupPath(name): GroupPath,
    Parameters(query): Parameters<RemoveQuery>,
) -> Answer<RemoveGroupJson> {
    let source =
        query.source.as_deref().map(str::parse::<EventSource>).transpose().map_err(Problem::invalid)?;
    Ok(Json(api.groups.remove_group(&name, source.as_ref(), &caller.actor()).await?.into()))
}

page_query!(
    GroupDeadQuery,
    721,
    "Maximum number of items. Default 100. A page has at most 4 MiB, or a single item."
);

/// List a group's dead events
///
/// Lists the events that the group skipped, and the dead events of an entity type, the latest in
/// the log first. Payloads need the scope `values` on every canvas.
#[utoipa::path(get, path = "/v1/admin/groups/{group}/dead", operation_id = "list_group_dead", tag = "groups",
    params(GroupDeadQuery),
    responses((status = 200, description = "A page of dead events", body = List<GroupDeadJson>)))]
pub(crate) async fn dead(
    Call { api, caller }: Call,
    GroupPath(name): GroupPath,
    Parameters(query): Parameters<GroupDeadQuery>,
) -> Answer<List<GroupDeadJson>> {
    let (limit, after) = query.read::<GroupDeadCursor>()?;
    let mut page: List<GroupDeadJson> = api.groups.group_dead(&name, after.as_ref(), limit).await?.into();
    if !caller.sees_values() {
        page.items = page.items.into_iter().map(GroupDeadJson::hidden).collect();
    }
    Ok(Json(page))
}

/// Redrive a group's dead events
///
/// Redrives one event, or all. The owners of their sources retry them.
#[utoipa::path(post, path = "/v1/admin/groups/{group}/dead/redrive", operation_id = "redrive_group_dead", tag = "groups",
    request_body = RedriveGroup, responses(
    (status = 200, description = "The events will be retried", body = RedrivenGroup),
    (status = 400, description = "The events belong to entities: send them to those again")))]
pub(crate) async fn redrive(
    Call { api, caller }: Call,
    GroupPath(name): GroupPath,
    body::Json(request): body::Json<RedriveGroup>,
) -> Answer<RedrivenGroup> {
    let before = request.before.map(storable).transpose()?;
    Ok(Json(api.groups.redrive_group(&name, request.seq, before, &caller.actor()).await?.into()))
}
