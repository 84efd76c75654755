//! Consumer groups: nodes, who has which source, how far they have come, and where they go on. All of it is about the events
//! of every canvas.

use axum::Json;
use axum::extract::State;

use super::Api;
use super::body::{self, GroupPath};
use super::guard::Caller;
use super::problem::{Details, Problem};
use crate::api::{Group, GroupNodes, GroupSummary, List, ResetGroup, ResetRequest};

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
