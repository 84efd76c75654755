//! Worker processes. They work for every canvas, so only readers of every canvas see them: a
//! canvas sees of a worker what its own events show. Programs that lease events are of one canvas,
//! which sees its own.

use axum::Json;
use serde::Deserialize;
use utoipa::IntoParams;
use uuid::Uuid;

use crate::http::caller::Call;
use crate::http::paging::PageQuery;
use crate::http::path::{Parameters, WorkerPath};
use crate::http::problem::Answer;
use crate::resources::wire::List;
use crate::resources::workers::wire::{ProgramJson, WorkerJson, WorkerSummaryJson};

/// List the worker processes
///
/// Sorted by name. One that was killed is listed as `lost` for a day.
#[utoipa::path(get, path = "/v1/admin/workers", operation_id = "list_workers", tag = "workers", params(PageQuery),
    responses((status = 200, description = "A page of workers", body = List<WorkerSummaryJson>)))]
pub(crate) async fn list(
    Call { api, .. }: Call,
    Parameters(query): Parameters<PageQuery>,
) -> Answer<List<WorkerSummaryJson>> {
    let (limit, cursor) = query.read()?;
    Ok(Json(api.admin.workers(cursor.as_ref(), limit).await?.into()))
}

/// Which worker of a name is meant.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct WorkerQuery {
    /// This instance of it. Default: the one that was seen last.
    instance: Option<Uuid>,
}

/// Show a worker process
///
/// Returns its handlers, and what it ran when it was last seen, at most a minute ago.
#[utoipa::path(get, path = "/v1/admin/workers/{worker}", operation_id = "show_worker", tag = "workers",
    params(WorkerQuery),
    responses((status = 200, description = "The worker", body = WorkerJson)))]
pub(crate) async fn one(
    Call { api, .. }: Call,
    WorkerPath(name): WorkerPath,
    Parameters(query): Parameters<WorkerQuery>,
) -> Answer<WorkerJson> {
    Ok(Json(api.admin.worker(&name, query.instance).await?.into()))
}

/// List the programs that lease events
///
/// Those that gave a name when they leased events of a pulled handler of this canvas, and did so or
/// spoke of a lease within the last five minutes. Sorted by handler and name, and each program once
/// for each of its handlers. Up to 1,000 of a canvas are noted.
#[utoipa::path(get, path = "/v1/canvases/{canvas}/programs", operation_id = "list_programs", tag = "workers",
    params(PageQuery), responses((status = 200, description = "A page of programs", body = List<ProgramJson>)))]
pub(crate) async fn programs(
    Call { api, caller }: Call,
    Parameters(query): Parameters<PageQuery>,
) -> Answer<List<ProgramJson>> {
    let (limit, cursor) = query.read()?;
    Ok(Json(api.admin.programs(caller.canvas, cursor.as_ref(), limit).await?.into()))
}
