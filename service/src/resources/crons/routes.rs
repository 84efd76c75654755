//! Crons: put, list, show, pause and delete.

use axum::Json;
use axum::http::StatusCode;

use crate::http::body;
use crate::http::caller::Call;
use crate::http::paging::page_query;
use crate::http::path::{CronPath, Parameters};
use crate::http::problem::{Answer, Problem};
use crate::resources::crons::wire::{CronJson, InvalidCron, PauseCron, PutCron};
use crate::resources::wire::List;
use wakeq::Name;
use wakeq::internals::search;

page_query!(CronsQuery, 128);

/// List the crons of a canvas
///
/// Sorted by name and without their values, each with its next tick.
#[utoipa::path(get, path = "/v1/canvases/{canvas}/cron", operation_id = "list_crons", tag = "cron",
    params(CronsQuery),
    responses((status = 200, description = "A page of crons", body = List<CronJson>)))]
pub(crate) async fn list(
    Call { api, caller }: Call,
    Parameters(query): Parameters<CronsQuery>,
) -> Answer<List<CronJson>> {
    let (limit, after) = query.read::<Name>()?;
    let crons = api.admin.crons(caller.canvas, after.as_ref(), limit).await?;
    let next_cursor = crons.last().filter(|_| crons.len() as u32 == limit).map(|cron| cron.name.to_string());
    Ok(Json(List { next_cursor, ..List::whole(crons) }))
}

/// Show a cron
///
/// With its next five ticks. Its value needs the scope `values`.
#[utoipa::path(get, path = "/v1/canvases/{canvas}/cron/{cron}", operation_id = "show_cron", tag = "cron",
    responses((status = 200, description = "The cron", body = CronJson)))]
pub(crate) async fn one(Call { api, caller }: Call, CronPath(name): CronPath) -> Answer<CronJson> {
    let cron = CronJson::from(api.admin.cron(caller.canvas, &name).await?);
    Ok(Json(if caller.sees_values() { cron } else { cron.hidden() }))
}

/// Create or replace a cron
///
/// At each tick, the cron emits an event for the handler `CRON/name`. Events that the previous cron
/// emitted ahead of its ticks are withdrawn. A paused cron stays paused. Repeating the request
/// changes nothing.
#[utoipa::path(put, path = "/v1/canvases/{canvas}/cron/{cron}", operation_id = "put_cron", tag = "cron",
    request_body = PutCron, responses(
    (status = 200, description = "The existing cron was replaced", body = CronJson),
    (status = 201, description = "The cron was created", body = CronJson),
    (status = 409, description = "The canvas has reached its quota of crons or of ticks (`quota-reached`)")))]
pub(crate) async fn put(
    Call { api, caller }: Call,
    CronPath(name): CronPath,
    body::Json(request): body::Json<PutCron>,
) -> Result<(StatusCode, Json<CronJson>), Problem> {
    let named = name.clone();
    let new = search(move || request.named(named.as_str())).await??;
    let put = api.admin.put_cron(caller.canvas, &new, &caller.actor()).await?;
    let status = if put.new { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Json(put.cron.into())))
}

/// Delete a cron
///
/// Events that it emitted ahead of its ticks are withdrawn; due events are kept.
#[utoipa::path(delete, path = "/v1/canvases/{canvas}/cron/{cron}", operation_id = "delete_cron", tag = "cron",
    responses((status = 204, description = "The cron was deleted")))]
pub(crate) async fn delete(
    Call { api, caller }: Call,
    CronPath(name): CronPath,
) -> Result<StatusCode, Problem> {
    api.admin.delete_cron(caller.canvas, &name, &caller.actor()).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Pause a cron
///
/// A paused cron does not tick, and ticks that pass meanwhile are not made up for. Pausing it again
/// replaces the actor and the reason.
#[utoipa::path(put, path = "/v1/canvases/{canvas}/cron/{cron}/pause", operation_id = "pause_cron", tag = "cron",
    request_body = PauseCron,
    responses((status = 200, description = "The cron is paused", body = CronJson)))]
pub(crate) async fn pause(
    Call { api, caller }: Call,
    CronPath(name): CronPath,
    body::Json(request): body::Json<PauseCron>,
) -> Answer<CronJson> {
    let reason = request.reason.as_deref();
    let cron = api.admin.pause_cron(caller.canvas, &name, reason, &caller.actor()).await?;
    Ok(Json(CronJson::from(cron).without_value()))
}

/// Resume a cron
///
/// It continues with its next tick.
#[utoipa::path(delete, path = "/v1/canvases/{canvas}/cron/{cron}/pause", operation_id = "unpause_cron", tag = "cron",
    responses((status = 200, description = "The cron is not paused", body = CronJson),
    (status = 409, description = "This release can't read the cron's schedule; the cron stays paused")))]
pub(crate) async fn unpause(Call { api, caller }: Call, CronPath(name): CronPath) -> Answer<CronJson> {
    let cron = api.admin.unpause_cron(caller.canvas, &name, &caller.actor()).await?;
    Ok(Json(CronJson::from(cron).without_value()))
}

impl From<InvalidCron> for Problem {
    fn from(error: InvalidCron) -> Self {
        match error {
            InvalidCron::Schedule(error) => Self::bad_request(error.to_string()),
            InvalidCron::Event(error) => error.into(),
        }
    }
}
