//! Handlers: counts, depth, rules and purges.

use axum::Json;
use chrono::{DateTime, Datelike, Utc};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::http::body;
use crate::http::caller::{Call, Caller};
use crate::http::paging::PageQuery;
use crate::http::path::{HandlerPath, Parameters};
use crate::http::problem::{Answer, Kind, Problem};
use crate::resources::handlers::wire::{
    CanvasCounts, DepthJson, Handler, Lifted, PurgeRequest, Purged, StopRequest, Stopped,
};
use crate::resources::wire::List;
use wakeq::control::{BULK_MAX, COUNT_MAX};
use wakeq::{HandlerScope, Name};

/// List the handlers of a canvas
///
/// Lists the handlers that have events, rules or targets, with their counts, sorted by module and
/// name. Of each, at most ten targets are shown; `list_targets` has all. A key that reads some
/// handlers only gets these.
#[utoipa::path(get, path = "/v1/canvases/{canvas}/handlers", operation_id = "list_handlers", tag = "handlers",
    params(PageQuery),
    responses((status = 200, description = "A page of handlers", body = List<Handler>)))]
pub(crate) async fn list(
    Call { api, caller }: Call,
    Parameters(query): Parameters<PageQuery>,
) -> Answer<List<Handler>> {
    let (limit, cursor) = query.read()?;
    let page = match caller.reads_only() {
        Some(among) => api.admin.handlers_among(caller.canvas, &among, cursor.as_ref(), limit).await?,
        None => api.admin.handlers(caller.canvas, cursor.as_ref(), limit).await?,
    };
    Ok(Json(page.into()))
}

/// Count the events of a canvas
///
/// Counts what all handlers of the canvas have together, however many handlers there are, and shows
/// those with the most events, those that are paused or blocked, and those that no worker may know.
/// It takes as long as counting does: about 0.3 s for a million events.
#[utoipa::path(get, path = "/v1/canvases/{canvas}/counts", operation_id = "canvas_counts", tag = "handlers",
    responses((status = 200, description = "The counts at present", body = CanvasCounts)))]
pub(crate) async fn counts(Call { api, caller }: Call) -> Answer<CanvasCounts> {
    Ok(Json(api.admin.canvas_stats(caller.canvas).await?.into()))
}

/// Show a handler
///
/// Returns its counts, its rules, and up to 1,000 of its targets. A handler without any has counts
/// of 0.
#[utoipa::path(get, path = "/v1/canvases/{canvas}/handlers/{module}/{name}", operation_id = "show_handler",
    tag = "handlers", responses((status = 200, description = "The handler", body = Handler)))]
pub(crate) async fn one(Call { api, caller }: Call, handler: HandlerPath) -> Answer<Handler> {
    let scope = caller.scope(handler);
    match api.admin.stats(&scope).await? {
        Some(stats) => Ok(Json(stats.into())),
        None if is_nearly_worker(&scope.module) => Err(Problem::new(
            Kind::NotFound,
            "this module has no such handler: modules are case-sensitive, and events that name none \
             are in `WORKER`",
        )),
        None => Ok(Json(Handler::empty(&scope))),
    }
}

/// Whether the module is `WORKER` but for its case, which is a slip.
fn is_nearly_worker(module: &Name) -> bool {
    let worker = Name::worker();
    *module != worker && module.as_str().eq_ignore_ascii_case(worker.as_str())
}

/// Pause a handler
///
/// Once the response is sent, no worker can claim an event of the handler; one that was claimed
/// just before may still be starting. Pausing it again replaces the reason and the end.
#[utoipa::path(put, path = "/v1/canvases/{canvas}/handlers/{module}/{name}/pause", operation_id = "pause_handler",
    tag = "handlers", request_body = StopRequest, responses(
    (status = 200, description = "The handler is paused", body = Stopped)))]
pub(crate) async fn pause(
    Call { api, caller }: Call,
    handler: HandlerPath,
    body::Json(stop): body::Json<StopRequest>,
) -> Answer<Stopped> {
    let stop = stop.at(api.admin.clock().await?).map_err(Problem::bad_request)?;
    let stopped = api.admin.pause(&caller.scope(handler), &caller.actor(), &stop).await?;
    Ok(Json(stopped.into()))
}

/// Lift a pause
///
/// Wakes the waiting events. A block stays in force, and the response says so.
#[utoipa::path(delete, path = "/v1/canvases/{canvas}/handlers/{module}/{name}/pause",
    operation_id = "unpause_handler", tag = "handlers", responses(
    (status = 200, description = "The handler is not paused", body = Lifted)))]
pub(crate) async fn unpause(Call { api, caller }: Call, handler: HandlerPath) -> Answer<Lifted> {
    let lifted = api.admin.unpause(&caller.scope(handler), &caller.actor()).await?;
    Ok(Json(lifted.into()))
}

/// Block a handler
///
/// Users of the handler can't lift a block.
#[utoipa::path(put, path = "/v1/admin/canvases/{canvas}/handlers/{module}/{name}/block",
    operation_id = "block_handler", tag = "admin", request_body = StopRequest, responses(
    (status = 200, description = "The handler is blocked", body = Stopped)))]
pub(crate) async fn block(
    Call { api, caller }: Call,
    handler: HandlerPath,
    body::Json(stop): body::Json<StopRequest>,
) -> Answer<Stopped> {
    let stop = stop.at(api.admin.clock().await?).map_err(Problem::bad_request)?;
    let stopped = api.admin.block(&caller.scope(handler), &caller.actor(), &stop).await?;
    Ok(Json(stopped.into()))
}

/// Lift a block
///
/// Wakes the waiting events. A pause stays in force, and the response says so.
#[utoipa::path(delete, path = "/v1/admin/canvases/{canvas}/handlers/{module}/{name}/block",
    operation_id = "unblock_handler", tag = "admin", responses(
    (status = 200, description = "The handler is not blocked", body = Lifted)))]
pub(crate) async fn unblock(Call { api, caller }: Call, handler: HandlerPath) -> Answer<Lifted> {
    let lifted = api.admin.unblock(&caller.scope(handler), &caller.actor()).await?;
    Ok(Json(lifted.into()))
}

/// Purge a handler
///
/// Deletes all events of the handler that are not running. With `dry_run`, only counts them.
#[utoipa::path(post, path = "/v1/canvases/{canvas}/handlers/{module}/{name}/purge", operation_id = "purge_handler",
    tag = "handlers", request_body = PurgeRequest, responses(
    (status = 200, description = "The events were deleted, or counted", body = Purged)))]
pub(crate) async fn purge(
    Call { api, caller }: Call,
    handler: HandlerPath,
    body::Json(request): body::Json<PurgeRequest>,
) -> Answer<Purged> {
    if request.all && request.before.is_some() {
        return Err(Problem::bad_request("give `before`, or `all` for all events of the handler"));
    }
    let before = request.before.map(storable).transpose()?;
    let counted = only_counted(request.dry_run, request.count_up_to)?;
    let purged = api.admin.purge_before(&caller.scope(handler), before, &caller.actor(), counted).await?;
    Ok(Json(purged.into()))
}

/// Up to which number to count instead of changing anything; `None` without `dry_run`.
pub(crate) fn only_counted(dry_run: bool, count_up_to: Option<u64>) -> Result<Option<u64>, Problem> {
    let max = count_up_to.unwrap_or(BULK_MAX);
    if !(1..=COUNT_MAX).contains(&max) {
        return Err(Problem::bad_request(format!("`count_up_to` must be from 1 to {COUNT_MAX}")));
    }
    Ok(dry_run.then_some(max))
}

/// Which events to count.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct DepthQuery {
    /// The handler's module; requires `name`. Default `WORKER`.
    #[param(pattern = "^[A-Za-z0-9_.-]{1,128}$")]
    module: Option<String>,
    /// Only events of this handler.
    #[param(pattern = "^[A-Za-z0-9_.-]{1,128}$")]
    name: Option<String>,
}

/// Count the events that are due and free to run
///
/// For autoscalers. Says how many events could run now with more workers. It is cheap however many
/// are waiting, because it counts up to 10,000, without events that a rule holds or that wait for a
/// limit.
#[utoipa::path(get, path = "/v1/canvases/{canvas}/depth", operation_id = "depth", tag = "handlers",
    params(DepthQuery),
    responses((status = 200, description = "The depth at present", body = DepthJson)))]
pub(crate) async fn depth(
    Call { api, caller }: Call,
    Parameters(query): Parameters<DepthQuery>,
) -> Answer<DepthJson> {
    let scope = scope(&caller, query.module.as_deref(), query.name.as_deref())?;
    Ok(Json(api.admin.depth(caller.canvas, scope.as_ref()).await?.into()))
}

/// Count the events of all canvases that are due and free to run
///
/// For autoscalers of workers that serve all canvases. Reads about 20,000 due events, of at most
/// 1,000 handlers of a canvas, without events that a rule holds or that wait for a limit.
#[utoipa::path(get, path = "/v1/admin/depth", operation_id = "total_depth", tag = "handlers",
    params(DepthQuery),
    responses((status = 200, description = "The depth at present", body = DepthJson)))]
pub(crate) async fn total_depth(
    Call { api, caller }: Call,
    Parameters(query): Parameters<DepthQuery>,
) -> Answer<DepthJson> {
    let only = scope(&caller, query.module.as_deref(), query.name.as_deref())?;
    let is_meant = |found: &HandlerScope| {
        only.as_ref().is_none_or(|only| (&only.module, &only.name) == (&found.module, &found.name))
    };
    let depths = api.admin.depths().await?;
    // Also what was left out may be meant.
    let capped = depths.iter().any(|found| found.depth.capped);
    let meant = depths.into_iter().filter(|found| is_meant(&found.scope));
    Ok(Json(DepthJson { capped, ..meant.map(|found| DepthJson::from(found.depth)).collect() }))
}

/// The handler that a query or a body names, if any.
pub(crate) fn scope(
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

/// A time that the database can store.
pub(crate) fn storable(moment: DateTime<Utc>) -> Result<DateTime<Utc>, Problem> {
    if (1..=9999).contains(&moment.year()) {
        Ok(moment)
    } else {
        Err(Problem::bad_request("a moment lies in the years 1 to 9999"))
    }
}
