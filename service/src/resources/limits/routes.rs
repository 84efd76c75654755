//! Limits: those of a canvas, which its operators set, and those of the platform's operator.

use axum::Json;
use axum::http::StatusCode;

use crate::http::Api;
use crate::http::body;
use crate::http::caller::{Call, Caller};
use crate::http::paging::PageQuery;
use crate::http::path::{LimitPath, Parameters};
use crate::http::problem::{Answer, Details, Problem};
use crate::resources::limits::wire::{LimitJson, LimitUseJson, PutLimit, PutLimitAnswer};
use crate::resources::wire::List;
use wakeq::limits::LimitName;
use wakeq::{AdminError, CanvasId};

/// The canvas of the operator's limits, which is nobody's.
const OF_THE_OPERATOR: CanvasId = CanvasId::OF_QUEUES;

/// List the limits of a canvas
///
/// Sorted by name. The operator's defaults are not listed, but shown by name where they count.
#[utoipa::path(get, path = "/v1/canvases/{canvas}/limits", operation_id = "list_limits", tag = "limits",
    params(PageQuery), responses((status = 200, description = "A page of limits", body = List<LimitJson>)))]
pub(crate) async fn list(call: Call, query: Parameters<PageQuery>) -> Answer<List<LimitJson>> {
    list_on(call.caller.canvas, call, query).await
}

/// Show a limit of a canvas
///
/// Shows the operator's default if the canvas has no limit of this name.
#[utoipa::path(get, path = "/v1/canvases/{canvas}/limits/{limit}", operation_id = "show_limit", tag = "limits",
    responses((status = 200, description = "The limit", body = LimitJson)))]
pub(crate) async fn one(call: Call, limit: LimitPath) -> Answer<LimitJson> {
    show_on(call.caller.canvas, call, limit).await
}

/// Set a limit of a canvas
///
/// What is running is left alone: if the limit is lower than before, nothing new starts until
/// enough has ended. If it is higher, what waits is woken.
#[utoipa::path(put, path = "/v1/canvases/{canvas}/limits/{limit}", operation_id = "put_limit", tag = "limits",
    request_body = PutLimit, responses(
    (status = 200, description = "The limit was replaced", body = PutLimitAnswer),
    (status = 201, description = "The limit was set", body = PutLimitAnswer),
    (status = 409, description = "The canvas has 1,000 limits",
        body = Details, content_type = "application/problem+json")))]
pub(crate) async fn put(
    Call { api, caller }: Call,
    name: LimitPath,
    body: body::Json<PutLimit>,
) -> Result<(StatusCode, Json<PutLimitAnswer>), Problem> {
    put_on(caller.canvas, &api, &caller, name, body).await
}

/// Remove a limit of a canvas
///
/// What waits for it is woken. The operator's default of the same name counts again.
#[utoipa::path(delete, path = "/v1/canvases/{canvas}/limits/{limit}", operation_id = "delete_limit", tag = "limits",
    responses((status = 204, description = "The limit was removed")))]
pub(crate) async fn delete(Call { api, caller }: Call, limit: LimitPath) -> Result<StatusCode, Problem> {
    delete_on(caller.canvas, &api, &caller, limit).await
}

/// List what is in use of a limit
///
/// Has an item for the name itself and, of a family, one for each key that is in use, sorted by
/// name. What the operator's limit of a handler counts over all canvases is not listed.
#[utoipa::path(get, path = "/v1/canvases/{canvas}/limits/{limit}/uses", operation_id = "list_limit_uses",
    tag = "limits", params(PageQuery),
    responses((status = 200, description = "A page of what is in use", body = List<LimitUseJson>)))]
pub(crate) async fn uses(
    call: Call,
    limit: LimitPath,
    query: Parameters<PageQuery>,
) -> Answer<List<LimitUseJson>> {
    uses_on(call.caller.canvas, call, limit, query).await
}

/// List the operator's limits
///
/// Sorted by name. Those of handlers count the events of all canvases together. The others are the
/// defaults of each canvas that has no limit of the name.
#[utoipa::path(get, path = "/v1/admin/limits", operation_id = "list_operator_limits", tag = "limits",
    params(PageQuery), responses((status = 200, description = "A page of limits", body = List<LimitJson>)))]
pub(crate) async fn list_operators(call: Call, query: Parameters<PageQuery>) -> Answer<List<LimitJson>> {
    list_on(OF_THE_OPERATOR, call, query).await
}

/// Show a limit of the operator
#[utoipa::path(get, path = "/v1/admin/limits/{limit}", operation_id = "show_operator_limit", tag = "limits",
    responses((status = 200, description = "The limit", body = LimitJson)))]
pub(crate) async fn one_operators(call: Call, limit: LimitPath) -> Answer<LimitJson> {
    show_on(OF_THE_OPERATOR, call, limit).await
}

/// Set a limit of the operator
///
/// That of a handler counts the events of all canvases together, and holds beside those of the
/// canvases. Any other one is the default of each canvas that has no limit of the name, and is
/// counted per canvas.
#[utoipa::path(put, path = "/v1/admin/limits/{limit}", operation_id = "put_operator_limit", tag = "limits",
    request_body = PutLimit, responses(
    (status = 200, description = "The limit was replaced", body = PutLimitAnswer),
    (status = 201, description = "The limit was set", body = PutLimitAnswer),
    (status = 409, description = "The operator has set 1,000 limits",
        body = Details, content_type = "application/problem+json")))]
pub(crate) async fn put_operators(
    Call { api, caller }: Call,
    name: LimitPath,
    body: body::Json<PutLimit>,
) -> Result<(StatusCode, Json<PutLimitAnswer>), Problem> {
    put_on(OF_THE_OPERATOR, &api, &caller, name, body).await
}

/// Remove a limit of the operator
///
/// What waits for it is woken.
#[utoipa::path(delete, path = "/v1/admin/limits/{limit}", operation_id = "delete_operator_limit", tag = "limits",
    responses((status = 204, description = "The limit was removed")))]
pub(crate) async fn delete_operators(
    Call { api, caller }: Call,
    limit: LimitPath,
) -> Result<StatusCode, Problem> {
    delete_on(OF_THE_OPERATOR, &api, &caller, limit).await
}

/// List what is in use of a limit of the operator
///
/// Has an item for the limit of a handler, over all canvases. What is in use of a default is listed
/// on each canvas.
#[utoipa::path(get, path = "/v1/admin/limits/{limit}/uses", operation_id = "list_operator_limit_uses",
    tag = "limits", params(PageQuery),
    responses((status = 200, description = "A page of what is in use", body = List<LimitUseJson>)))]
pub(crate) async fn uses_operators(
    call: Call,
    limit: LimitPath,
    query: Parameters<PageQuery>,
) -> Answer<List<LimitUseJson>> {
    uses_on(OF_THE_OPERATOR, call, limit, query).await
}

async fn list_on(
    canvas: CanvasId,
    Call { api, .. }: Call,
    Parameters(query): Parameters<PageQuery>,
) -> Answer<List<LimitJson>> {
    let (limit, cursor) = query.read()?;
    Ok(Json(api.admin.limits(canvas, cursor.as_ref(), limit).await?.into()))
}

async fn show_on(canvas: CanvasId, Call { api, .. }: Call, LimitPath(name): LimitPath) -> Answer<LimitJson> {
    let found = api.admin.limit(canvas, &name).await?.ok_or_else(|| missing(name))?;
    Ok(Json(LimitJson::on(canvas, found)))
}

async fn put_on(
    canvas: CanvasId,
    api: &Api,
    caller: &Caller,
    LimitPath(name): LimitPath,
    body::Json(limit): body::Json<PutLimit>,
) -> Result<(StatusCode, Json<PutLimitAnswer>), Problem> {
    let limit = limit.read().map_err(Problem::invalid)?;
    let put = api.admin.put_limit(canvas, &name, &limit, &caller.actor()).await?;
    let status = if put.new { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Json(put.into())))
}

async fn delete_on(
    canvas: CanvasId,
    api: &Api,
    caller: &Caller,
    LimitPath(name): LimitPath,
) -> Result<StatusCode, Problem> {
    let removed = api.admin.remove_limit(canvas, &name, &caller.actor()).await?;
    if removed { Ok(StatusCode::NO_CONTENT) } else { Err(missing(name)) }
}

async fn uses_on(
    canvas: CanvasId,
    Call { api, .. }: Call,
    LimitPath(name): LimitPath,
    Parameters(query): Parameters<PageQuery>,
) -> Answer<List<LimitUseJson>> {
    let (limit, cursor) = query.read()?;
    Ok(Json(api.admin.limit_uses(canvas, &name, cursor.as_ref(), limit).await?.into()))
}

fn missing(name: LimitName) -> Problem {
    AdminError::NoLimit(name).into()
}
