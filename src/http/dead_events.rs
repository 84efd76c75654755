//! Dead events: listed, brought back, deleted.

use axum::Json;
use axum::extract::State;
use chrono::{DateTime, Datelike, Utc};
use serde::Deserialize;
use utoipa::IntoParams;

use super::body::{self, EventPath, Parameters};
use super::guard::Caller;
use super::problem::Problem;
use super::{Api, handlers, paging};
use crate::access::Scope;
use crate::api::{BulkRequest, DeadEvent, Deleted, List, Redriven, TheEvent};
use crate::store::DeadFilter;

/// Which dead events, and which page of them.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct DeadQuery {
    /// The handler's module; default `WORKER`, if `name` is given.
    #[param(pattern = "^[A-Za-z0-9_.-]{1,128}$")]
    module: Option<String>,
    /// Of this handler.
    #[param(pattern = "^[A-Za-z0-9_.-]{1,128}$")]
    name: Option<String>,
    /// That died at or after this moment.
    since: Option<DateTime<Utc>>,
    /// That died before this moment.
    before: Option<DateTime<Utc>>,
    /// Most items of the page. Default 100.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// `next_cursor` of the page before.
    #[param(max_length = 400)]
    cursor: Option<String>,
}

/// List dead events, the latest first.
#[utoipa::path(get, path = "/v1/canvases/{canvas}/dead-events", operation_id = "list_dead_events",
    tag = "dead events", params(DeadQuery),
    responses((status = 200, description = "A page of dead events", body = List<DeadEvent>)))]
pub(super) async fn list(
    State(api): State<Api>,
    caller: Caller,
    Parameters(query): Parameters<DeadQuery>,
) -> Result<Json<List<DeadEvent>>, Problem> {
    let filter = DeadFilter {
        canvas: caller.canvas,
        scope: handlers::scope(&caller, query.module.as_deref(), query.name.as_deref())?,
        id: None,
        since: query.since.map(storable).transpose()?,
        before: query.before.map(storable).transpose()?,
    };
    let (limit, cursor) = (paging::limit(query.limit)?, paging::cursor(query.cursor.as_deref())?);
    Ok(Json(caller.admin(&api, Scope::Read).dead(&filter, cursor.as_ref(), limit).await?.into()))
}

/// Bring a dead event back: as it was, without its retries.
#[utoipa::path(post, path = "/v1/canvases/{canvas}/dead-events/{id}/redrive", operation_id = "redrive_dead_event",
    tag = "dead events", responses((status = 200, description = "The event waits again", body = TheEvent)))]
pub(super) async fn redrive_one(
    State(api): State<Api>,
    caller: Caller,
    EventPath(id): EventPath,
) -> Result<Json<TheEvent>, Problem> {
    let id = caller.admin(&api, Scope::Operate).redrive_one(caller.canvas, id, &caller.actor()).await?;
    Ok(Json(TheEvent { id: id.0 }))
}

/// Bring dead events back, at most 10,000 in one request, or count them.
#[utoipa::path(post, path = "/v1/canvases/{canvas}/dead-events/redrive", operation_id = "redrive_dead_events",
    tag = "dead events", request_body = BulkRequest,
    responses((status = 200, description = "The events wait again", body = Redriven)))]
pub(super) async fn redrive(
    State(api): State<Api>,
    caller: Caller,
    body::Json(request): body::Json<BulkRequest>,
) -> Result<Json<Redriven>, Problem> {
    let filter = filter(&caller, &request)?;
    let admin = caller.admin(&api, Scope::Operate);
    Ok(Json(admin.redrive_until_now(&filter, &caller.actor(), request.only_counted()).await?.into()))
}

/// Delete dead events for good, at most 10,000 in one request, or count them.
#[utoipa::path(post, path = "/v1/canvases/{canvas}/dead-events/delete", operation_id = "delete_dead_events",
    tag = "dead events", request_body = BulkRequest,
    responses((status = 200, description = "The events are gone", body = Deleted)))]
pub(super) async fn delete(
    State(api): State<Api>,
    caller: Caller,
    body::Json(request): body::Json<BulkRequest>,
) -> Result<Json<Deleted>, Problem> {
    let filter = filter(&caller, &request)?;
    let admin = caller.admin(&api, Scope::Operate);
    Ok(Json(admin.delete_dead_until_now(&filter, &caller.actor(), request.only_counted()).await?.into()))
}

/// An empty body must not mean everything.
fn filter(caller: &Caller, request: &BulkRequest) -> Result<DeadFilter, Problem> {
    let scope = handlers::scope(caller, request.module.as_deref(), request.name.as_deref())?;
    let narrowed = scope.is_some() || request.since.is_some() || request.before.is_some();
    if narrowed == request.all {
        return Err(Problem::bad_request(
            "say which: by `name`, `since` or `before`; or `all` of the canvas",
        ));
    }
    let (since, before) =
        (request.since.map(storable).transpose()?, request.before.map(storable).transpose()?);
    Ok(DeadFilter { canvas: caller.canvas, scope, id: None, since, before })
}

/// A moment that the database can hold.
pub(super) fn storable(moment: DateTime<Utc>) -> Result<DateTime<Utc>, Problem> {
    if (1..=9999).contains(&moment.year()) {
        Ok(moment)
    } else {
        Err(Problem::bad_request("a moment lies in the years 1 to 9999"))
    }
}
