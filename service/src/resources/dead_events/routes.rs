//! Dead events: list, redrive and delete.

pub(crate) mod groups;

use axum::Json;
use chrono::{DateTime, Utc};
use uuid::Uuid;

use crate::access::Scope;
use crate::http::body;
use crate::http::caller::{Call, Caller};
use crate::http::filter::{common_filter, event_query};
use crate::http::paging;
use crate::http::path::{EventPath, Parameters};
use crate::http::problem::{Answer, Problem};
use crate::resources::dead_events::wire::{BulkRequest, DeadEventJson, Deleted, Redriven};
use crate::resources::events::wire::TheEvent;
use crate::resources::handlers::routes as handlers;
use crate::resources::wire::List;
use wakeq::control::{DeadFilter, ErrorGroupId, EventFilter};

event_query! {
    /// Which dead events to list, and which page of them.
    DeadQuery {
        /// The handler's module; requires `name`. Default `WORKER`.
        #[param(pattern = "^[A-Za-z0-9_.-]{1,128}$")]
        module: Option<String>,
        /// Only events of this handler.
        #[param(pattern = "^[A-Za-z0-9_.-]{1,128}$")]
        name: Option<String>,
        /// Only events that died at or after this time.
        since: Option<DateTime<Utc>>,
        /// Only events that died before this time.
        before: Option<DateTime<Utc>>,
        /// Only events of this error group.
        error_group: Option<Uuid>,
    } .. {
        /// Maximum number of items. Default 100.
        #[param(minimum = 1, maximum = 1000)]
        limit: Option<u32>,
        /// The `next_cursor` of the previous page.
        #[param(max_length = 400)]
        cursor: Option<String>,
    }
}

/// List dead events
///
/// The latest come first. They can be filtered by handler, error group, tags, object, batch, times,
/// last error and value. A page examines at most 10,000 events, and 32 MiB of values if they are
/// searched, so it may be short or even empty while `next_cursor` is set. `looked_at` is how many
/// it has examined.
#[utoipa::path(get, path = "/v1/canvases/{canvas}/dead-events", operation_id = "list_dead_events",
    tag = "dead events", params(DeadQuery),
    responses((status = 200, description = "A page of dead events", body = List<DeadEventJson>)))]
pub(crate) async fn list(
    Call { api, caller }: Call,
    Parameters(query): Parameters<DeadQuery>,
) -> Answer<List<DeadEventJson>> {
    let scope = handlers::scope(&caller, query.module.as_deref(), query.name.as_deref())?;
    let filter = EventFilter {
        module: scope.as_ref().map(|scope| scope.module.clone()),
        name: scope.map(|scope| scope.name),
        died_since: query.since,
        died_before: query.before,
        error_group: query.error_group.map(ErrorGroupId),
        ..common_filter!(query)
    };
    caller.may_list(&api, "list_dead_events", (&filter, true))?;
    let (limit, cursor) = (paging::limit(query.limit)?, paging::cursor(query.cursor.as_deref())?);
    let admin = caller.admin(&api, Scope::Read);
    Ok(Json(admin.search_dead(caller.canvas, &filter, cursor.as_ref(), limit).await?.into()))
}

/// Redrive a dead event
///
/// The event returns as it was, with its retry count reset.
#[utoipa::path(post, path = "/v1/canvases/{canvas}/dead-events/{id}/redrive", operation_id = "redrive_dead_event",
    tag = "dead events",
    responses((status = 200, description = "The event is waiting again", body = TheEvent)))]
pub(crate) async fn redrive_one(Call { api, caller }: Call, EventPath(id): EventPath) -> Answer<TheEvent> {
    let id = caller.admin(&api, Scope::Operate).redrive_one(caller.canvas, id, &caller.actor()).await?;
    Ok(Json(TheEvent { id: id.0 }))
}

/// Redrive dead events
///
/// Redrives at most 10,000 per request. With `dry_run`, only counts them.
#[utoipa::path(post, path = "/v1/canvases/{canvas}/dead-events/redrive", operation_id = "redrive_dead_events",
    tag = "dead events", request_body = BulkRequest,
    responses((status = 200, description = "The events are waiting again, or were counted",
        body = Redriven)))]
pub(crate) async fn redrive(
    Call { api, caller }: Call,
    body::Json(request): body::Json<BulkRequest>,
) -> Answer<Redriven> {
    let filter = filter(&caller, &request)?;
    let counted = handlers::only_counted(request.dry_run, request.count_up_to)?;
    let admin = caller.admin(&api, Scope::Operate);
    Ok(Json(admin.redrive_until_now(&filter, &caller.actor(), counted).await?.into()))
}

/// Delete dead events
///
/// Deletes them permanently, at most 10,000 per request. With `dry_run`, only counts them.
#[utoipa::path(post, path = "/v1/canvases/{canvas}/dead-events/delete", operation_id = "delete_dead_events",
    tag = "dead events", request_body = BulkRequest,
    responses((status = 200, description = "The events were deleted, or counted", body = Deleted)))]
pub(crate) async fn delete(
    Call { api, caller }: Call,
    body::Json(request): body::Json<BulkRequest>,
) -> Answer<Deleted> {
    let filter = filter(&caller, &request)?;
    let counted = handlers::only_counted(request.dry_run, request.count_up_to)?;
    let admin = caller.admin(&api, Scope::Operate);
    Ok(Json(admin.delete_dead_until_now(&filter, &caller.actor(), counted).await?.into()))
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
    let (since, before) = (
        request.since.map(handlers::storable).transpose()?,
        request.before.map(handlers::storable).transpose()?,
    );
    Ok(DeadFilter { canvas: caller.canvas, scope, id: None, since, before })
}
