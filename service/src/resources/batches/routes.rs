//! Batches: open, close, list, show and give up.

use axum::Json;
use axum::http::StatusCode;

use crate::http::body as http_body;
use crate::http::caller::Call;
use crate::http::paging::page_query;
use crate::http::path::{BatchPath, Parameters};
use crate::http::problem::{Answer, Problem};
use crate::resources::batches::wire::{BatchJson, OpenBatch};
use crate::resources::wire::List;
use wakeq::events::{BatchError, BatchName, EventBatch};

page_query!(BatchesQuery, 255);

/// List the batches of a canvas
///
/// Sorted by name. Those that are over are listed for 7 days.
#[utoipa::path(get, path = "/v1/canvases/{canvas}/batches", operation_id = "list_batches", tag = "batches",
    params(BatchesQuery),
    responses((status = 200, description = "A page of batches", body = List<BatchJson>)))]
pub(crate) async fn list(
    Call { api, caller }: Call,
    Parameters(query): Parameters<BatchesQuery>,
) -> Answer<List<BatchJson>> {
    let (limit, after) = query.read::<BatchName>()?;
    let batches = api.admin.batches(caller.canvas, after.as_ref(), limit + 1).await?;
    Ok(Json(List::page(batches, limit, |batch| batch.name.to_string())))
}

/// Show a batch
///
/// With how its members have ended so far, and how many are left.
#[utoipa::path(get, path = "/v1/canvases/{canvas}/batches/{batch}", operation_id = "show_batch", tag = "batches",
    responses((status = 200, description = "The batch", body = BatchJson)))]
pub(crate) async fn one(Call { api, caller }: Call, BatchPath(name): BatchPath) -> Answer<BatchJson> {
    Ok(Json(api.admin.batch(caller.canvas, &name).await?.into()))
}

/// Open a batch
///
/// Events that are emitted with its name are its members. Once it is closed and all of them have
/// ended, its event is emitted, once. Opening it again with the same event changes nothing.
#[utoipa::path(post, path = "/v1/canvases/{canvas}/batches/{batch}", operation_id = "open_batch", tag = "batches",
    request_body = OpenBatch, responses(
    (status = 200, description = "It is open already, with the same event", body = BatchJson),
    (status = 201, description = "The batch was opened", body = BatchJson),
    (status = 409, description = "The name is taken by another batch"),
    (status = 413, description = "The value is too large")))]
pub(crate) async fn open(
    call: Call,
    BatchPath(name): BatchPath,
    http_body::Json(OpenBatch { on_end }): http_body::Json<OpenBatch>,
) -> Result<(StatusCode, Json<BatchJson>), Problem> {
    let batch = batch(&call, &name)?;
    let is_new = batch.open(on_end.event()?).await?;
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Json(batch.progress().await?.into())))
}

/// Close a batch
///
/// No more members come, except from its members. It ends when the last of them has, which may be
/// now. Closing it again changes nothing.
#[utoipa::path(post, path = "/v1/canvases/{canvas}/batches/{batch}/close", operation_id = "close_batch", tag = "batches",
    responses((status = 200, description = "The batch is closed", body = BatchJson)))]
pub(crate) async fn close(call: Call, BatchPath(name): BatchPath) -> Answer<BatchJson> {
    Ok(Json(batch(&call, &name)?.close().await?.into()))
}

/// Give a batch up
///
/// Its event is never emitted, and emits into it are refused. Its members stay as they are.
#[utoipa::path(delete, path = "/v1/canvases/{canvas}/batches/{batch}", operation_id = "cancel_batch", tag = "batches",
    responses((status = 204, description = "The batch is over")))]
pub(crate) async fn cancel(
    Call { api, caller }: Call,
    BatchPath(name): BatchPath,
) -> Result<StatusCode, Problem> {
    api.admin.cancel_batch(caller.canvas, &name, &caller.actor()).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The batch of this name on the caller's canvas.
fn batch(Call { api, caller }: &Call, name: &BatchName) -> Result<EventBatch, BatchError> {
    Ok(api.queue.batch(name.as_str())?.canvas(caller.canvas))
}
