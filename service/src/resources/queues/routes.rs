//! Registered queues: put, list, show and delete, and their facets. All of it concerns the events
//! of every canvas.

use axum::Json;
use axum::http::StatusCode;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::http::body;
use crate::http::caller::Call;
use crate::http::paging::page_query;
use crate::http::path::{FacetPath, Parameters, QueuePath};
use crate::http::problem::{Answer, Problem};
use crate::resources::queues::wire::{
    DeletedQueueJson, FacetJson, FacetSet, PutQueue, PutQueueAnswer, QueueDepthJson, QueueJson, SetFacet,
    Waiting,
};
use crate::resources::wire::List;
use wakeq::{CanvasId, Name};

/// Register or replace a queue
///
/// From now on, the queue receives a copy of every event, on any canvas, if a pattern is found in
/// its topic (`canvas:module:name`). The copy is added in the transaction of the emit.
///
/// Without a target, functions of workers process the queue, and an existing target is removed. A
/// target is sent what is in the events, so it takes the scope `values`, too. Repeating the request
/// changes nothing. A generated secret is shown only in this response.
#[utoipa::path(put, path = "/v1/admin/queues/{queue}", operation_id = "put_queue", tag = "queues",
    request_body = PutQueue, responses(
    (status = 200, description = "The existing queue was replaced", body = PutQueueAnswer),
    (status = 201, description = "The queue was registered", body = PutQueueAnswer),
    (status = 409, description = "There are 100 queues already, or all patterns together are too costly")))]
pub(crate) async fn put(
    Call { api, caller }: Call,
    QueuePath(name): QueuePath,
    body::Json(queue): body::Json<PutQueue>,
) -> Result<(StatusCode, Json<PutQueueAnswer>), Problem> {
    let new = queue.read().map_err(Problem::invalid)?;
    if let Some(target) = &new.target {
        // It receives the events of every canvas.
        caller.may_see_values()?;
        api.check_target(CanvasId::OF_QUEUES, target)?;
    }
    let put = api.admin.put_queue(&name, &new, &caller.actor()).await?;
    let status = if put.new { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Json(put.into())))
}

page_query!(QueuesQuery, 128);

/// List the registered queues
///
/// Sorted by name. There are at most 100.
#[utoipa::path(get, path = "/v1/admin/queues", operation_id = "list_queues", tag = "queues",
    params(QueuesQuery),
    responses((status = 200, description = "A page of queues", body = List<QueueJson>)))]
pub(crate) async fn list(
    Call { api, .. }: Call,
    Parameters(query): Parameters<QueuesQuery>,
) -> Answer<List<QueueJson>> {
    let (limit, after) = query.read::<Name>()?;
    let queues = api.admin.queues().await?;
    Ok(Json(List::part(queues, limit, after.as_ref().map(Name::as_str), |queue| queue.name.to_string())))
}

page_query!(QueueQuery, 36);

/// Show a queue
///
/// Includes a page of the canvases that override its settings, sorted by id.
#[utoipa::path(get, path = "/v1/admin/queues/{queue}", operation_id = "show_queue", tag = "queues",
    params(QueueQuery),
    responses((status = 200, description = "The queue", body = QueueJson)))]
pub(crate) async fn one(
    Call { api, .. }: Call,
    QueuePath(name): QueuePath,
    Parameters(query): Parameters<QueueQuery>,
) -> Answer<QueueJson> {
    let (limit, after) = query.read::<String>()?;
    let after = canvas_of(after.as_deref())?;
    let queue = api.admin.queue(&name).await?;
    let settings = api.admin.facet_settings(&name, after, limit + 1).await?;
    Ok(Json(QueueJson::with(queue, settings, limit)))
}

/// The canvas that a cursor names.
fn canvas_of(cursor: Option<&str>) -> Result<Option<CanvasId>, Problem> {
    let canvas = cursor.map(str::parse::<CanvasId>).transpose();
    canvas.map_err(|_| Problem::bad_request("`cursor` is not one of this list"))
}

/// What to do with the waiting copies.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct DeleteQuery {
    /// `drain`: process them as before; the queue is removed after the last one. `drop`: delete
    /// them, except running ones.
    #[serde(default)]
    #[param(inline)]
    waiting: Waiting,
}

/// Unregister a queue
///
/// It receives no more copies, and is removed after the last waiting one.
#[utoipa::path(delete, path = "/v1/admin/queues/{queue}", operation_id = "delete_queue", tag = "queues",
    params(DeleteQuery),
    responses((status = 200, description = "The queue receives no more copies",
        body = DeletedQueueJson)))]
pub(crate) async fn delete(
    Call { api, caller }: Call,
    QueuePath(name): QueuePath,
    Parameters(query): Parameters<DeleteQuery>,
) -> Answer<DeletedQueueJson> {
    Ok(Json(api.admin.delete_queue(&name, query.waiting.into(), &caller.actor()).await?.into()))
}

page_query!(FacetsQuery, 36);

/// List the canvases with copies in a queue
///
/// Sorted by id.
#[utoipa::path(get, path = "/v1/admin/queues/{queue}/facets", operation_id = "list_facets", tag = "queues",
    params(FacetsQuery),
    responses((status = 200, description = "A page of facets", body = List<FacetJson>)))]
pub(crate) async fn facets(
    Call { api, .. }: Call,
    QueuePath(name): QueuePath,
    Parameters(query): Parameters<FacetsQuery>,
) -> Answer<List<FacetJson>> {
    let (limit, after) = query.read::<String>()?;
    let after = canvas_of(after.as_deref())?;
    let facets = api.admin.facets(&name, after, limit + 1).await?;
    Ok(Json(List::page(facets, limit, |facet| facet.canvas.to_string())))
}

/// Show a canvas in a queue
///
/// Its copies and its settings, also if it has none.
#[utoipa::path(get, path = "/v1/admin/queues/{queue}/facets/{canvas}", operation_id = "show_facet", tag = "queues",
    responses((status = 200, description = "The canvas in the queue", body = FacetJson)))]
pub(crate) async fn facet(
    Call { api, .. }: Call,
    QueuePath(name): QueuePath,
    FacetPath(canvas): FacetPath,
) -> Answer<FacetJson> {
    Ok(Json(api.admin.facet(&name, canvas).await?.into()))
}

/// Count the copies of a queue that are due and free to run
///
/// For autoscalers. It is cheap however many are waiting, because it reads at most 10,000 copies.
#[utoipa::path(get, path = "/v1/admin/queues/{queue}/depth", operation_id = "queue_depth", tag = "queues",
    responses((status = 200, description = "The depth at present", body = QueueDepthJson)))]
pub(crate) async fn depth(Call { api, .. }: Call, QueuePath(name): QueuePath) -> Answer<QueueDepthJson> {
    Ok(Json(api.admin.queue_depth(&name).await?.into()))
}

/// Set the weight and limit of a canvas in a queue
///
/// Waiting copies that may run now are woken at once.
#[utoipa::path(put, path = "/v1/admin/queues/{queue}/facets/{canvas}", operation_id = "set_facet", tag = "queues",
    request_body = SetFacet,
    responses((status = 200, description = "The settings are in force", body = FacetSet)))]
pub(crate) async fn set_facet(
    Call { api, caller }: Call,
    QueuePath(name): QueuePath,
    FacetPath(canvas): FacetPath,
    body::Json(settings): body::Json<SetFacet>,
) -> Answer<FacetSet> {
    let set = api.admin.set_facet(&name, canvas, settings.into(), &caller.actor()).await?;
    Ok(Json(FacetSet::of(canvas, set)))
}
