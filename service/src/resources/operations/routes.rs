//! Operations: previewed, begun, shown and cancelled.

use axum::Json;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};

use crate::access::Scope;
use crate::http::body;
use crate::http::caller::{Call, Caller};
use crate::http::idempotency;
use crate::http::paging::PageQuery;
use crate::http::path::{OperationPath, Parameters};
use crate::http::problem::{Answer, Problem};
use crate::resources::handlers::routes as handlers;
use crate::resources::operations::wire::{NewOperationJson, OperationJson, OperationPreviewJson};
use crate::resources::wire::List;
use wakeq::control::{COUNT_MAX, NewOperation};
use wakeq::events::IdempotencyKey;

/// How many events a preview looks at by default.
const LOOKED_AT: u64 = 10_000;

/// Begin an operation
///
/// What the operation does is done to each event that matches its filter, or that it names, and
/// that was emitted, or died, before the request. The response comes at once, and the deployment
/// carries the operation on, whatever becomes of its processes. Show the operation to see how far
/// it has come. A canvas has at most 10 open operations; ended ones are kept for 14 days. A filter
/// that asks for what is in values needs the scope `values`, too.
#[utoipa::path(post, path = "/v1/canvases/{canvas}/operations", operation_id = "begin_operation",
    tag = "operations", request_body = NewOperationJson,
    params(("idempotency-key" = Option<String>, Header,
        description = "For 24 hours, repeats with this key receive the operation that the first request began")),
    responses(
    (status = 202, description = "The operation has begun", body = OperationJson),
    (status = 409, description = "The canvas has 10 open operations (`conflict`), or an earlier request with this \
                                  `idempotency-key` is in progress (`idempotency-in-progress`)"),
    (status = 422, description = "The `idempotency-key` was used for a different request")))]
pub(crate) async fn begin(
    Call { api, caller }: Call,
    headers: HeaderMap,
    body::Json(request): body::Json<NewOperationJson>,
) -> Result<Response, Problem> {
    let new = read(&caller, &request)?;
    let (admin, actor) = (caller.admin(&api, Scope::Operate), caller.actor());
    let (operation, replayed) = match idempotency::key(&headers)? {
        Some(key) => {
            let asked = serde_json::to_vec(&request).map_err(|error| Problem::internal().because(error))?;
            let asked = idempotency::fingerprint([b"begin_operation".as_slice(), &asked]);
            let key = IdempotencyKey::new(caller.canvas, &caller.holder(), &key, &asked)?;
            let begun = admin.begin_operation_once(&key, &new, &actor).await?;
            (begun.operation, begun.replayed)
        }
        None => (admin.begin_operation(caller.canvas, &new, &actor).await?, false),
    };
    let mut response = (StatusCode::ACCEPTED, Json(OperationJson::from(operation))).into_response();
    if replayed {
        idempotency::mark_replayed(&mut response);
    }
    Ok(response)
}

/// Preview an operation
///
/// Counts the events that the operation would change, among the first `look_up_to` events, and
/// changes nothing.
#[utoipa::path(post, path = "/v1/canvases/{canvas}/operations/preview", operation_id = "preview_operation",
    tag = "operations", request_body = NewOperationJson,
    responses((status = 200, description = "What it would change", body = OperationPreviewJson)))]
pub(crate) async fn preview(
    Call { api, caller }: Call,
    body::Json(request): body::Json<NewOperationJson>,
) -> Answer<OperationPreviewJson> {
    let new = read(&caller, &request)?;
    let look_up_to = request.look_up_to.unwrap_or(LOOKED_AT);
    let admin = caller.admin(&api, Scope::Operate);
    Ok(Json(admin.preview_operation(caller.canvas, &new, look_up_to).await?.into()))
}

/// A filter that asks for what is in values takes the scope for seeing them, as its count tells of
/// them.
fn read(caller: &Caller, request: &NewOperationJson) -> Result<NewOperation, Problem> {
    if request.filter.value.is_some() || request.filter.value_text.is_some() {
        caller.may_see_values()?;
    }
    if request.look_up_to.is_some_and(|looks| !(1..=COUNT_MAX).contains(&looks)) {
        return Err(Problem::bad_request(format!("`look_up_to` must be from 1 to {COUNT_MAX}")));
    }
    let mut new = request.read().map_err(Problem::bad_request)?;
    new.before = new.before.map(handlers::storable).transpose()?;
    Ok(new)
}

/// List operations
///
/// The latest come first.
#[utoipa::path(get, path = "/v1/canvases/{canvas}/operations", operation_id = "list_operations", tag = "operations",
    params(PageQuery),
    responses((status = 200, description = "A page of operations", body = List<OperationJson>)))]
pub(crate) async fn list(
    Call { api, caller }: Call,
    Parameters(query): Parameters<PageQuery>,
) -> Answer<List<OperationJson>> {
    let (limit, cursor) = query.read()?;
    let mut page: List<OperationJson> =
        api.admin.operations(caller.canvas, cursor.as_ref(), limit).await?.into();
    page.items = page.items.into_iter().map(|operation| shown(&caller, operation)).collect();
    Ok(Json(page))
}

/// Show an operation
///
/// Says how far it has come.
#[utoipa::path(get, path = "/v1/canvases/{canvas}/operations/{operation}", operation_id = "show_operation",
    tag = "operations",
    responses((status = 200, description = "The operation", body = OperationJson)))]
pub(crate) async fn one(
    Call { api, caller }: Call,
    OperationPath(id): OperationPath,
) -> Answer<OperationJson> {
    Ok(Json(shown(&caller, api.admin.operation(caller.canvas, id).await?.into())))
}

/// Cancel an operation
///
/// Once the response is sent, the operation changes no further events. What it has done stays, and
/// the response says how much that is. An operation that has ended stays as it is.
#[utoipa::path(delete, path = "/v1/canvases/{canvas}/operations/{operation}", operation_id = "cancel_operation",
    tag = "operations",
    responses((status = 200, description = "The operation has ended", body = OperationJson)))]
pub(crate) async fn cancel(
    Call { api, caller }: Call,
    OperationPath(id): OperationPath,
) -> Answer<OperationJson> {
    let operation = api.admin.cancel_operation(caller.canvas, id, &caller.actor()).await?;
    Ok(Json(shown(&caller, operation.into())))
}

/// An operation as this caller may see it: with its counts, what its filter asks for in values
/// tells of them.
fn shown(caller: &Caller, operation: OperationJson) -> OperationJson {
    if caller.sees_values() { operation } else { operation.hidden() }
}
