//! Crons: put, list, show, run now, pause and delete.

use axum::Json;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use crate::http::caller::Call;
use crate::http::paging::page_query;
use crate::http::path::{CronPath, Parameters};
use crate::http::problem::{Answer, Problem};
use crate::http::{body, idempotency};
use crate::resources::crons::wire::{CronJson, CronRunJson, InvalidCron, PauseCron, PutCron};
use crate::resources::wire::List;
use wakeq::Name;
use wakeq::events::IdempotencyKey;
use wakeq::internals::search;

page_query!(CronsQuery, 128);

/// List the crons of a canvas
///
/// Sorted by name and without their values, each with its next tick and the event of its last.
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
/// With its next five ticks and the event of its last. Its value needs the scope `values`.
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

/// Run a cron now
///
/// Emits an event with the cron's value for the handler `CRON/name`, outside its rhythm: its ticks
/// stay as they are, and a paused cron stays paused. The audit log records it as `run-cron`.
#[utoipa::path(post, path = "/v1/canvases/{canvas}/cron/{cron}/run-now", operation_id = "run_cron_now", tag = "cron",
    params(("idempotency-key" = Option<String>, Header,
        description = "For 24 hours, repeats with this key receive the event that the first request emitted")),
    responses(
    (status = 202, description = "The event is committed", body = CronRunJson,
        headers(("location" = Option<String>, description = "The path of the event"))),
    (status = 409, description = "An earlier request with this `idempotency-key` is in progress"),
    (status = 422, description = "The `idempotency-key` was used for a different request")))]
pub(crate) async fn run_now(
    Call { api, caller }: Call,
    CronPath(name): CronPath,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let (canvas, actor) = (caller.canvas, caller.actor());
    let key = idempotency::key(&headers)?;
    api.shares.count_events(canvas, api.recent_canvases.has_other(canvas), 1)?;
    let (event, replayed) = match key {
        Some(key) => {
            let asked = idempotency::fingerprint([b"run_cron_now".as_slice(), name.as_str().as_bytes()]);
            let key = IdempotencyKey::new(canvas, &caller.holder(), &key, &asked)?;
            let ran = api.admin.run_cron_once(&key, &name, &actor).await?;
            (ran.event, ran.replayed)
        }
        None => (api.admin.run_cron(canvas, &name, &actor).await?, false),
    };
    let mut response = (StatusCode::ACCEPTED, Json(CronRunJson { id: event.0 })).into_response();
    if let Ok(location) = HeaderValue::from_str(&format!("/v1/canvases/{canvas}/events/{event}")) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    if replayed {
        idempotency::mark_replayed(&mut response);
    }
    Ok(response)
}

impl From<InvalidCron> for Problem {
    fn from(error: InvalidCron) -> Self {
        match error {
            InvalidCron::Schedule(error) => Self::bad_request(error.to_string()),
            InvalidCron::Event(error) => error.into(),
        }
    }
}
