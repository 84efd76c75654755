//! Entities: list, show, send to, erase, and report progress.

use axum::Json;
use axum::http::StatusCode;
use serde::Deserialize;
use utoipa::IntoParams;
use uuid::Uuid;

use crate::http::body;
use crate::http::caller::Call;
use crate::http::paging::page_query;
use crate::http::path::{EntityPath, EntityTypePath, EventPath, Parameters};
use crate::http::problem::{Answer, Problem};
use crate::resources::entities::wire::{
    EntityJson, EntityProgressJson, EntitySummaryJson, EntityTypeJson, NewEntityEvent, SentToEntityJson,
};
use crate::resources::wire::List;
use wakeq::EventId;
use wakeq_streams::EntityType;
use wakeq_streams::entities::EntityCursor;

page_query!(EntityTypesQuery, 128);

/// List the types of entities
///
/// Those of which the canvas has an entity, by name.
#[utoipa::path(get, path = "/v1/canvases/{canvas}/entities", operation_id = "list_entity_types", tag = "entities",
    params(EntityTypesQuery),
    responses((status = 200, description = "A page of types", body = List<EntityTypeJson>)))]
pub(crate) async fn types(
    Call { api, caller }: Call,
    Parameters(query): Parameters<EntityTypesQuery>,
) -> Answer<List<EntityTypeJson>> {
    let (limit, after) = query.read::<EntityType>()?;
    let types = api.entities.types(caller.canvas, after.as_ref(), limit + 1).await?;
    Ok(Json(List::page(types, limit, EntityType::to_string)))
}

page_query!(EntitiesQuery, 501);

/// List the entities of a type
///
/// Sorted by id, without their states.
#[utoipa::path(get, path = "/v1/canvases/{canvas}/entities/{type}", operation_id = "list_entities", tag = "entities",
    params(EntitiesQuery),
    responses((status = 200, description = "A page of entities", body = List<EntitySummaryJson>)))]
pub(crate) async fn list(
    Call { api, caller }: Call,
    EntityTypePath(entity_type): EntityTypePath,
    Parameters(query): Parameters<EntitiesQuery>,
) -> Answer<List<EntitySummaryJson>> {
    let (limit, after) = query.read::<EntityCursor>()?;
    Ok(Json(api.entities.list(caller.canvas, &entity_type, after.as_ref(), limit).await?.into()))
}

/// Show an entity
///
/// Returns its state and its version, as they were committed. The state needs the scope `values`.
#[utoipa::path(get, path = "/v1/canvases/{canvas}/entities/{type}/{entity}", operation_id = "show_entity", tag = "entities",
    responses((status = 200, description = "The entity", body = EntityJson)))]
pub(crate) async fn one(Call { api, caller }: Call, EntityPath(path): EntityPath) -> Answer<EntityJson> {
    let (entity, canvas) = (path.on(caller.canvas), caller.canvas);
    let shown = api.entities.show(&entity).await?.ok_or_else(|| {
        Problem::missing(format!("there is no entity {entity} on canvas {canvas}: no event of it was stored"))
    })?;
    let entity = EntityJson::from(shown);
    Ok(Json(if caller.sees_values() { entity } else { entity.hidden() }))
}

/// The id of an erasure.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ErasureQuery {
    /// An id that you choose: repeating the erasure with it erases nothing sent since, until 7 days
    /// after it was done.
    id: Option<Uuid>,
}

/// Erase an entity
///
/// Permanently erases everything stored about the entity up to now. The entity need not exist.
///
/// The response is sent when the erasure is in the inbox, behind earlier events;
/// `entities/status/{id}` reports `completed` when it is done. Events sent after it start the
/// entity anew. The audit log records it as `erase-entity`.
#[utoipa::path(delete, path = "/v1/canvases/{canvas}/entities/{type}/{entity}", operation_id = "erase_entity", tag = "entities",
    params(ErasureQuery), responses(
    (status = 202, description = "The erasure is in the inbox", body = SentToEntityJson),
    (status = 409, description = "The `id` belongs to another event (`id-taken`)")))]
pub(crate) async fn erase(
    Call { api, caller }: Call,
    EntityPath(path): EntityPath,
    Parameters(query): Parameters<ErasureQuery>,
) -> Result<(StatusCode, Json<SentToEntityJson>), Problem> {
    let sent = api.entities.erase(&path.on(caller.canvas), query.id.map(EventId), &caller.actor()).await?;
    Ok((StatusCode::ACCEPTED, Json(sent.into())))
}

/// Send an event to an entity
///
/// The entity need not exist yet. The response is sent when the event is in the inbox;
/// `entities/status/{id}` reports its outcome, and the handler in `reply_to` receives it. An event
/// that was sent before, with an `id` that you chose, is not applied twice.
#[utoipa::path(post, path = "/v1/canvases/{canvas}/entities/{type}/{entity}/events", operation_id = "send_to_entity", tag = "entities",
    request_body = NewEntityEvent, responses(
    (status = 202, description = "The event is in the inbox", body = SentToEntityJson),
    (status = 409, description = "The `id` belongs to an event of another entity or an erasure (`id-taken`)"),
    (status = 413, description = "The body or the payload is too large")))]
pub(crate) async fn send(
    Call { api, caller }: Call,
    EntityPath(path): EntityPath,
    body::Json(event): body::Json<NewEntityEvent>,
) -> Result<(StatusCode, Json<SentToEntityJson>), Problem> {
    let sent = api.entities.send(&path.on(caller.canvas), event.read()?).await?;
    Ok((StatusCode::ACCEPTED, Json(sent.into())))
}

/// How many outcomes are shown by default, and at most: each may have a large result.
const OUTCOMES_MAX: u32 = 100;

/// Which page of the events with a correlation id.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct StatusQuery {
    /// Maximum number of events. Default 100.
    #[param(minimum = 1, maximum = 100)]
    limit: Option<u32>,
    /// The `next_cursor` of the previous page.
    #[param(max_length = 20)]
    cursor: Option<String>,
}

/// Show the outcome of an event that was sent to an entity
///
/// With a correlation id, shows the outcome of all its events, page by page. Outcomes are
/// remembered for 7 days, unless the deployment sets another time. Results need the scope `values`.
#[utoipa::path(get, path = "/v1/canvases/{canvas}/entities/status/{id}", operation_id = "entity_status", tag = "entities",
    params(StatusQuery),
    responses((status = 200, description = "The outcome so far", body = EntityProgressJson)))]
pub(crate) async fn status(
    Call { api, caller }: Call,
    EventPath(id): EventPath,
    Parameters(query): Parameters<StatusQuery>,
) -> Answer<EntityProgressJson> {
    let limit = query.limit.unwrap_or(OUTCOMES_MAX);
    if !(1..=OUTCOMES_MAX).contains(&limit) {
        return Err(Problem::bad_request("`limit` must be 1 to 100"));
    }
    let invalid = |_| Problem::bad_request("`cursor` is not one of this list");
    let after = query.cursor.as_deref().map(str::parse::<i64>).transpose().map_err(invalid)?;
    let found = api.entities.status_after(caller.canvas, id.0, after.unwrap_or(0), limit).await?;
    let progress = found.ok_or_else(|| {
        let canvas = caller.canvas;
        Problem::missing(format!(
            "{id} is unknown on canvas {canvas}: it was never sent, or was sent too long ago"
        ))
    })?;
    let progress = EntityProgressJson::from(progress);
    Ok(Json(if caller.sees_values() { progress } else { progress.hidden() }))
}
