//! Consumer groups: nodes, who has which source, how far they have come, and where they go on. All of it is about the events
//! of every canvas.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize;
use utoipa::IntoParams;

use super::Api;
use super::body::{self, GroupPath, Parameters};
use super::dead_events::storable;
use super::guard::Caller;
use super::paging;
use super::problem::{Details, Problem};
use crate::api::{
    Group, GroupDead, GroupNodes, GroupSummary, List, RedriveGroup, RedrivenGroup, RemoveGroup, ResetGroup,
    ResetRequest,
};
use crate::event::EventSource;
use crate::store::GroupDeadCursor;

/// List the nodes that have subscribers, and say who coordinates.
#[utoipa::path(get, path = "/v1/admin/nodes", operation_id = "list_nodes", tag = "groups",
    responses((status = 200, description = "All that are there", body = GroupNodes)))]
pub(super) async fn nodes(State(api): State<Api>, _: Caller) -> Result<Json<GroupNodes>, Problem> {
    Ok(Json(api.admin.group_nodes().await?.into()))
}

/// List the consumer groups by name.
#[utoipa::path(get, path = "/v1/admin/groups", operation_id = "list_groups", tag = "groups",
    responses((status = 200, description = "All of them", body = List<GroupSummary>)))]
pub(super) async fn list(State(api): State<Api>, _: Caller) -> Result<Json<List<GroupSummary>>, Problem> {
    let groups = api.admin.groups().await?;
    Ok(Json(List::whole(groups.into_iter().map(GroupSummary::from).collect())))
}

/// Show a consumer group: its subscribers, and of each of its sources the owner, the position and the lag.
#[utoipa::path(get, path = "/v1/admin/groups/{group}", operation_id = "show_group", tag = "groups",
    responses((status = 200, description = "The group", body = Group)))]
pub(super) async fn one(
    State(api): State<Api>,
    _: Caller,
    GroupPath(name): GroupPath,
) -> Result<Json<Group>, Problem> {
    Ok(Json(api.admin.group(&name).await?.into()))
}

/// Let a consumer group go on elsewhere in the log. Its consumers notice, and go on from there.
#[utoipa::path(post, path = "/v1/admin/groups/{group}/reset", operation_id = "reset_group", tag = "groups",
    request_body = ResetRequest, responses(
    (status = 200, description = "The positions stand there now", body = ResetGroup),
    (status = 400, description = "That is no place of the log, or no source", body = Details,
        content_type = "application/problem+json")))]
pub(super) async fn reset(
    State(api): State<Api>,
    caller: Caller,
    GroupPath(name): GroupPath,
    body::Json(request): body::Json<ResetRequest>,
) -> Result<Json<ResetGroup>, Problem> {
    let (source, to) = request.read().map_err(|error| Problem::bad_request(error.to_string()))?;
    let reset = api.admin.reset_group(&name, source.as_ref(), to, &caller.actor()).await?;
    Ok(Json(reset.into()))
}

/// Have the members of a consumer group try again what failed: those that are unhealthy, and sources that wait for an event. They
/// notice with their next heartbeat.
#[utoipa::path(post, path = "/v1/admin/groups/{group}/recover", operation_id = "recover_group", tag = "groups",
    responses((status = 202, description = "They will")))]
pub(super) async fn recover(
    State(api): State<Api>,
    caller: Caller,
    GroupPath(name): GroupPath,
) -> Result<StatusCode, Problem> {
    api.admin.recover_group(&name, &caller.actor()).await?;
    Ok(StatusCode::ACCEPTED)
}

/// What of a group is removed.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct RemoveQuery {
    /// Only the position in this source. Default: the whole group.
    #[param(example = "category/companies/3-of-f", max_length = 700)]
    source: Option<String>,
}

/// Remove a consumer group that nobody works on, with its positions and pins, so that they hold the log no longer.
#[utoipa::path(delete, path = "/v1/admin/groups/{group}", operation_id = "remove_group", tag = "groups",
    params(RemoveQuery), responses(
    (status = 200, description = "It is removed", body = RemoveGroup),
    (status = 400, description = "That is no source, or none of the group", body = Details,
        content_type = "application/problem+json"),
    (status = 409, description = "Somebody works on it", body = Details, content_type = "application/problem+json")))]
pub(super) async fn remove(
    State(api): State<Api>,
    caller: Caller,
    GroupPath(name): GroupPath,
    Parameters(query): Parameters<RemoveQuery>,
) -> Result<Json<RemoveGroup>, Problem> {
    let source = query.source.as_deref().map(str::parse::<EventSource>).transpose();
    let source = source.map_err(|error| Problem::bad_request(error.to_string()))?;
    Ok(Json(api.admin.remove_group(&name, source.as_ref(), &caller.actor()).await?.into()))
}

/// Which page of the dead of a group.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct GroupDeadQuery {
    /// Most items of the page. Default 100. A page ends with 4 MiB, too, or with one item.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// `next_cursor` of the page before.
    #[param(max_length = 721)]
    cursor: Option<String>,
}

/// List what a consumer group gave up, the latest of the log first: what it skipped, and the dead of a type of entities.
#[utoipa::path(get, path = "/v1/admin/groups/{group}/dead", operation_id = "list_group_dead", tag = "groups",
    params(GroupDeadQuery), responses((status = 200, description = "A page of them", body = List<GroupDead>)))]
pub(super) async fn dead(
    State(api): State<Api>,
    _: Caller,
    GroupPath(name): GroupPath,
    Parameters(query): Parameters<GroupDeadQuery>,
) -> Result<Json<List<GroupDead>>, Problem> {
    let limit = paging::limit(query.limit)?;
    let after = query.cursor.as_deref().map(str::parse::<GroupDeadCursor>).transpose();
    let after = after.map_err(|error| Problem::bad_request(error.to_string()))?;
    Ok(Json(api.admin.group_dead(&name, after.as_ref(), limit).await?.into()))
}

/// Have what a consumer group gave up tried again, one event or all, by the owners of their sources.
#[utoipa::path(post, path = "/v1/admin/groups/{group}/dead/redrive", operation_id = "redrive_group_dead", tag = "groups",
    request_body = RedriveGroup, responses(
    (status = 200, description = "They will be", body = RedrivenGroup),
    (status = 400, description = "They are of entities, to which they are sent again", body = Details,
        content_type = "application/problem+json")))]
pub(super) async fn redrive(
    State(api): State<Api>,
    caller: Caller,
    GroupPath(name): GroupPath,
    body::Json(request): body::Json<RedriveGroup>,
) -> Result<Json<RedrivenGroup>, Problem> {
    let before = request.before.map(storable).transpose()?;
    Ok(Json(api.admin.redrive_group(&name, request.seq, before, &caller.actor()).await?.into()))
}
