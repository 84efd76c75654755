//! Switches: rules that stop a whole canvas, or everything.

use axum::Json;

use crate::http::body;
use crate::http::caller::Call;
use crate::http::paging::page_query;
use crate::http::path::Parameters;
use crate::http::problem::{Answer, Problem};
use crate::resources::handlers::wire::{Lifted, RuleJson, StopRequest, Stopped};
use crate::resources::wire::List;
use wakeq::Name;
use wakeq::control::{Rule, RuleReach};

page_query!(SwitchesQuery, 128);

/// List what stops a whole canvas
///
/// Lists the rules in force on the whole canvas and on everything, a block before a pause. There
/// are at most four.
#[utoipa::path(get, path = "/v1/canvases/{canvas}/switches", operation_id = "list_switches", tag = "handlers",
    params(SwitchesQuery),
    responses((status = 200, description = "A page of rules", body = List<RuleJson>)))]
pub(crate) async fn list(
    Call { api, caller }: Call,
    Parameters(query): Parameters<SwitchesQuery>,
) -> Answer<List<RuleJson>> {
    let (limit, after) = query.read::<Name>()?;
    let switches = api.admin.switches(caller.canvas).await?;
    Ok(Json(List::part(switches, limit, after.as_ref().map(Name::as_str), key)))
}

/// The switch among those over a canvas: the list is in the order of these.
fn key(rule: &Rule) -> String {
    let reach = if rule.reach() == RuleReach::Everything { "all" } else { "canvas" };
    format!("{}-{reach}", rule.kind)
}

/// Pause a whole canvas
///
/// Once the response is sent, no worker can claim an event of the canvas; one that was claimed just
/// before may still be starting. Events are accepted and wait, and crons go on ticking. Pausing it
/// again replaces the reason and the end.
#[utoipa::path(put, path = "/v1/canvases/{canvas}/pause", operation_id = "pause_canvas", tag = "handlers",
    request_body = StopRequest, responses((status = 200, description = "The canvas is paused", body = Stopped)))]
pub(crate) async fn pause(
    Call { api, caller }: Call,
    body::Json(stop): body::Json<StopRequest>,
) -> Answer<Stopped> {
    let stop = stop.at(api.admin.clock().await?).map_err(Problem::bad_request)?;
    Ok(Json(api.admin.pause_canvas(caller.canvas, &caller.actor(), &stop).await?.into()))
}

/// Lift the pause of a whole canvas
///
/// Wakes the waiting events, except those of handlers that are paused or blocked themselves. A
/// block stays in force, and the response says so.
#[utoipa::path(delete, path = "/v1/canvases/{canvas}/pause", operation_id = "unpause_canvas", tag = "handlers",
    responses((status = 200, description = "The canvas is not paused", body = Lifted)))]
pub(crate) async fn unpause(Call { api, caller }: Call) -> Answer<Lifted> {
    Ok(Json(api.admin.unpause_canvas(caller.canvas, &caller.actor()).await?.into()))
}

/// Block a whole canvas
///
/// Users of the canvas can't lift a block.
#[utoipa::path(put, path = "/v1/admin/canvases/{canvas}/block", operation_id = "block_canvas", tag = "admin",
    request_body = StopRequest, responses((status = 200, description = "The canvas is blocked", body = Stopped)))]
pub(crate) async fn block(
    Call { api, caller }: Call,
    body::Json(stop): body::Json<StopRequest>,
) -> Answer<Stopped> {
    let stop = stop.at(api.admin.clock().await?).map_err(Problem::bad_request)?;
    Ok(Json(api.admin.block_canvas(caller.canvas, &caller.actor(), &stop).await?.into()))
}

/// Lift the block of a whole canvas
///
/// Wakes the waiting events, except those of handlers that are paused or blocked themselves. A
/// pause stays in force, and the response says so.
#[utoipa::path(delete, path = "/v1/admin/canvases/{canvas}/block", operation_id = "unblock_canvas", tag = "admin",
    responses((status = 200, description = "The canvas is not blocked", body = Lifted)))]
pub(crate) async fn unblock(Call { api, caller }: Call) -> Answer<Lifted> {
    Ok(Json(api.admin.unblock_canvas(caller.canvas, &caller.actor()).await?.into()))
}

/// Block everything
///
/// Stops the events of every canvas, and the copies in every queue, until the block is lifted.
#[utoipa::path(put, path = "/v1/admin/block", operation_id = "block_all", tag = "admin",
    request_body = StopRequest, responses((status = 200, description = "Everything is blocked", body = Stopped)))]
pub(crate) async fn block_all(
    Call { api, caller }: Call,
    body::Json(stop): body::Json<StopRequest>,
) -> Answer<Stopped> {
    let stop = stop.at(api.admin.clock().await?).map_err(Problem::bad_request)?;
    Ok(Json(api.admin.block_all(&caller.actor(), &stop).await?.into()))
}

/// Lift the block of everything
///
/// Wakes the waiting events of all canvases side by side, except those that another rule holds.
#[utoipa::path(delete, path = "/v1/admin/block", operation_id = "unblock_all", tag = "admin",
    responses((status = 200, description = "Not everything is blocked", body = Lifted)))]
pub(crate) async fn unblock_all(Call { api, caller }: Call) -> Answer<Lifted> {
    Ok(Json(api.admin.unblock_all(&caller.actor()).await?.into()))
}
