//! The checkpoint of an event: read it, and store it for the attempt that runs.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;

use crate::access::Scope;
use crate::http::Api;
use crate::http::body;
use crate::http::caller::Caller;
use crate::http::path::EventPath;
use crate::http::problem::{Details, Problem};
use crate::resources::events::wire::checkpoint::{CheckpointJson, StoreCheckpoint};

/// Read the checkpoint of an event
///
/// It is what the attempts of the event have left to the next one. An event without one is answered
/// with 404.
#[utoipa::path(get, path = "/v1/canvases/{canvas}/events/{id}/checkpoint", operation_id = "show_checkpoint",
    tag = "events", responses((status = 200, description = "The last checkpoint", body = CheckpointJson)))]
pub(crate) async fn show(
    State(api): State<Api>,
    caller: Caller,
    EventPath(id): EventPath,
) -> Result<Json<CheckpointJson>, Problem> {
    let canvas = caller.canvas;
    let found = caller.admin(&api, Scope::Read).checkpoint(canvas, id).await?;
    let found = found.ok_or_else(|| {
        Problem::missing(format!("the event {id} on canvas {canvas} has no checkpoint, or does not exist"))
    })?;
    Ok(Json(CheckpointJson::of(found, true)))
}

/// Store the checkpoint of an event
///
/// The next attempt of the event gets it. It replaces the one before, and is gone when the event
/// has ended. Only the attempt that runs can store one, by its claim.
#[utoipa::path(put, path = "/v1/canvases/{canvas}/events/{id}/checkpoint", operation_id = "store_checkpoint",
    tag = "events", request_body = StoreCheckpoint, responses(
    (status = 204, description = "The checkpoint is stored"),
    (status = 410, description = "The claim does not stand (`lease-over`): another attempt has begun, or the \
                                  event has ended. Nothing was stored, and the attempt has to stop",
        body = Details, content_type = "application/problem+json")))]
pub(crate) async fn store(
    State(api): State<Api>,
    caller: Caller,
    EventPath(id): EventPath,
    body::Json(request): body::Json<StoreCheckpoint>,
) -> Result<StatusCode, Problem> {
    let admin = caller.admin(&api, Scope::Operate);
    if caller.is_limited(Scope::Operate) {
        let handler = admin.handler_of(caller.canvas, id).await?;
        caller.may_work_on(&api, "store_checkpoint", handler)?;
    }
    admin.store_checkpoint(caller.canvas, id, &request.claim, request.value.get()).await?;
    Ok(StatusCode::NO_CONTENT)
}
