//! Handlers: counts, depth, pauses, purge.

use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use utoipa::IntoParams;

use super::Api;
use super::body::{self, HandlerPath, Parameters};
use super::dead_events::storable;
use super::guard::Caller;
use super::problem::Problem;
use crate::api::{Depth, Handler, Lifted, List, PurgeRequest, Purged, StopRequest, Stopped};
use crate::event::{HandlerScope, Name};

/// List the handlers of a canvas: those that have events or rules, with their counts.
#[utoipa::path(get, path = "/v1/canvases/{canvas}/handlers", operation_id = "list_handlers", tag = "handlers",
    responses((status = 200, description = "At most 1,000 handlers, by name", body = List<Handler>)))]
pub(super) async fn list(State(api): State<Api>, caller: Caller) -> Result<Json<List<Handler>>, Problem> {
    let stats = api.admin.stats(caller.canvas, None).await?;
    Ok(Json(List::whole(stats.into_iter().map(Handler::from).collect())))
}

/// Look at one handler: its counts and rules. One that has nothing has zeros.
#[utoipa::path(get, path = "/v1/canvases/{canvas}/handlers/{module}/{name}", operation_id = "show_handler",
    tag = "handlers", responses((status = 200, description = "The handler", body = Handler)))]
pub(super) async fn one(
    State(api): State<Api>,
    caller: Caller,
    handler: HandlerPath,
) -> Result<Json<Handler>, Problem> {
    let scope = caller.scope(handler);
    let mut stats = api.admin.stats(caller.canvas, Some(&scope)).await?;
    Ok(Json(stats.pop().map_or_else(|| Handler::empty(&scope), Handler::from)))
}

/// Pause a handler: once this is answered, no worker can claim an event of it.
///
/// One claimed a moment before may just be starting. Again: replaces reason and end.
#[utoipa::path(put, path = "/v1/canvases/{canvas}/handlers/{module}/{name}/pause", operation_id = "pause_handler",
    tag = "handlers", request_body = StopRequest, responses(
    (status = 200, description = "The handler is paused", body = Stopped)))]
pub(super) async fn pause(
    State(api): State<Api>,
    caller: Caller,
    handler: HandlerPath,
    body::Json(stop): body::Json<StopRequest>,
) -> Result<Json<Stopped>, Problem> {
    let stop = stop.at(api.admin.clock().await?).map_err(Problem::bad_request)?;
    let stopped = api.admin.pause(&caller.scope(handler), &caller.actor(), &stop).await?;
    Ok(Json(stopped.into()))
}

/// Lift a pause, and wake what waited. A block stays, and the answer says so.
#[utoipa::path(delete, path = "/v1/canvases/{canvas}/handlers/{module}/{name}/pause",
    operation_id = "unpause_handler", tag = "handlers", responses(
    (status = 200, description = "There is no pause any more", body = Lifted)))]
pub(super) async fn unpause(
    State(api): State<Api>,
    caller: Caller,
    handler: HandlerPath,
) -> Result<Json<Lifted>, Problem> {
    let lifted = api.admin.unpause(&caller.scope(handler), &caller.actor()).await?;
    Ok(Json(lifted.into()))
}

/// Block a handler, whatever its users do.
#[utoipa::path(put, path = "/v1/admin/canvases/{canvas}/handlers/{module}/{name}/block",
    operation_id = "block_handler", tag = "admin", request_body = StopRequest, responses(
    (status = 200, description = "The handler is blocked", body = Stopped)))]
pub(super) async fn block(
    State(api): State<Api>,
    caller: Caller,
    handler: HandlerPath,
    body::Json(stop): body::Json<StopRequest>,
) -> Result<Json<Stopped>, Problem> {
    let stop = stop.at(api.admin.clock().await?).map_err(Problem::bad_request)?;
    let stopped = api.admin.block(&caller.scope(handler), &caller.actor(), &stop).await?;
    Ok(Json(stopped.into()))
}

/// Lift a block, and wake what waited. A pause stays, and the answer says so.
#[utoipa::path(delete, path = "/v1/admin/canvases/{canvas}/handlers/{module}/{name}/block",
    operation_id = "unblock_handler", tag = "admin", responses(
    (status = 200, description = "There is no block any more", body = Lifted)))]
pub(super) async fn unblock(
    State(api): State<Api>,
    caller: Caller,
    handler: HandlerPath,
) -> Result<Json<Lifted>, Problem> {
    let lifted = api.admin.unblock(&caller.scope(handler), &caller.actor()).await?;
    Ok(Json(lifted.into()))
}

/// Delete all events of a handler that nobody runs, or count them.
#[utoipa::path(post, path = "/v1/canvases/{canvas}/handlers/{module}/{name}/purge", operation_id = "purge_handler",
    tag = "handlers", request_body = PurgeRequest, responses(
    (status = 200, description = "The events are deleted", body = Purged)))]
pub(super) async fn purge(
    State(api): State<Api>,
    caller: Caller,
    handler: HandlerPath,
    body::Json(request): body::Json<PurgeRequest>,
) -> Result<Json<Purged>, Problem> {
    let (before, counted) = (request.before.map(storable).transpose()?, request.only_counted());
    let purged = api.admin.purge_before(&caller.scope(handler), before, &caller.actor(), counted).await?;
    Ok(Json(purged.into()))
}

/// Whose depth is meant.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct DepthQuery {
    /// The handler's module; default `WORKER`, if `name` is given.
    #[param(pattern = "^[A-Za-z0-9_.-]{1,128}$")]
    module: Option<String>,
    /// One handler only.
    #[param(pattern = "^[A-Za-z0-9_.-]{1,128}$")]
    name: Option<String>,
}

/// How many events could run now if there were more workers: for autoscalers.
///
/// Cheap, however many wait: it counts to 10,000 and leaves out what a rule holds.
#[utoipa::path(get, path = "/v1/canvases/{canvas}/depth", operation_id = "depth", tag = "handlers",
    params(DepthQuery), responses((status = 200, description = "The depth now", body = Depth)))]
pub(super) async fn depth(
    State(api): State<Api>,
    caller: Caller,
    Parameters(query): Parameters<DepthQuery>,
) -> Result<Json<Depth>, Problem> {
    let scope = scope(&caller, query.module.as_deref(), query.name.as_deref())?;
    Ok(Json(api.admin.depth(caller.canvas, scope.as_ref()).await?.into()))
}

/// The handler that a query or a body names, if it names one.
pub(super) fn scope(
    caller: &Caller,
    module: Option<&str>,
    name: Option<&str>,
) -> Result<Option<HandlerScope>, Problem> {
    let module = module.map(str::parse::<Name>).transpose()?;
    match name {
        Some(name) => {
            let module = module.unwrap_or_else(Name::worker);
            Ok(Some(HandlerScope { canvas: caller.canvas, module, name: name.parse()? }))
        }
        None if module.is_some() => Err(Problem::bad_request("`module` needs a `name` beside it")),
        None => Ok(None),
    }
}
