//! Targets of handlers: register, list, show and delete.

use axum::Json;
use axum::http::StatusCode;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::http::body;
use crate::http::caller::Call;
use crate::http::paging;
use crate::http::path::{AddressPath, Parameters};
use crate::http::problem::{Answer, Problem};
use crate::resources::handlers::routes as handlers;
use crate::resources::targets::wire::{PutAnswer, PutTarget, TargetJson};
use crate::resources::wire::List;

/// Register an HTTP target for a handler
///
/// The target receives its events with the modifier `_`. Replaces an existing target, and wakes the
/// waiting events. A generated secret is shown only in this response.
#[utoipa::path(put, path = "/v1/canvases/{canvas}/handlers/{module}/{name}", operation_id = "put_target",
    tag = "handlers", request_body = PutTarget, responses(
    (status = 200, description = "The existing target was replaced", body = PutAnswer),
    (status = 201, description = "The target was registered", body = PutAnswer),
    (status = 409, description = "The canvas has reached its quota of targets (default 1,000)")))]
pub(crate) async fn put(
    call: Call,
    address: AddressPath,
    body::Json(target): body::Json<PutTarget>,
) -> Result<(StatusCode, Json<PutAnswer>), Problem> {
    register(call, address, target).await
}

/// Register an HTTP target for a handler with a modifier
///
/// Replaces an existing target, and wakes the waiting events. A generated secret is shown only in
/// this response.
#[utoipa::path(put, path = "/v1/canvases/{canvas}/handlers/{module}/{name}/{modifier}",
    operation_id = "put_target_of_modifier", tag = "handlers", request_body = PutTarget, responses(
    (status = 200, description = "The existing target was replaced", body = PutAnswer),
    (status = 201, description = "The target was registered", body = PutAnswer),
    (status = 409, description = "The canvas has reached its quota of targets (default 1,000)")))]
pub(crate) async fn put_modifier(
    call: Call,
    address: AddressPath,
    body::Json(target): body::Json<PutTarget>,
) -> Result<(StatusCode, Json<PutAnswer>), Problem> {
    register(call, address, target).await
}

async fn register(
    Call { api, caller }: Call,
    address: AddressPath,
    target: PutTarget,
) -> Result<(StatusCode, Json<PutAnswer>), Problem> {
    let address = caller.address(address);
    let new = target.read().map_err(Problem::invalid)?;
    api.check_target(address.scope.canvas, &new)?;
    let put = api.admin.put_target(&address, &new, &caller.actor()).await?;
    let status = if put.new { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Json(put.into())))
}

/// Which targets to list.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct TargetsQuery {
    /// The handler's module; requires `name`. Default `WORKER`.
    #[param(pattern = "^[A-Za-z0-9_.-]{1,128}$")]
    module: Option<String>,
    /// Only targets of this handler.
    #[param(pattern = "^[A-Za-z0-9_.-]{1,128}$")]
    name: Option<String>,
    /// Maximum number of items. Default 100.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// The `next_cursor` of the previous page.
    #[param(max_length = 400)]
    cursor: Option<String>,
}

/// List the targets of a canvas
///
/// Sorted by module, name and modifier. The secrets are not shown.
#[utoipa::path(get, path = "/v1/canvases/{canvas}/targets", operation_id = "list_targets", tag = "handlers",
    params(TargetsQuery),
    responses((status = 200, description = "A page of targets", body = List<TargetJson>)))]
pub(crate) async fn list(
    Call { api, caller }: Call,
    Parameters(query): Parameters<TargetsQuery>,
) -> Answer<List<TargetJson>> {
    let scope = handlers::scope(&caller, query.module.as_deref(), query.name.as_deref())?;
    let (limit, cursor) = (paging::limit(query.limit)?, paging::cursor(query.cursor.as_deref())?);
    Ok(Json(api.admin.targets(caller.canvas, scope.as_ref(), cursor.as_ref(), limit).await?.into()))
}

/// Show the target of a handler with a modifier
///
/// The modifier is `_` for the handler without one. The secret is not shown.
#[utoipa::path(get, path = "/v1/canvases/{canvas}/handlers/{module}/{name}/{modifier}",
    operation_id = "show_target", tag = "handlers",
    responses((status = 200, description = "The target", body = TargetJson)))]
pub(crate) async fn one(Call { api, caller }: Call, address: AddressPath) -> Answer<TargetJson> {
    let found = api.admin.target(&caller.address(address)).await?;
    Ok(Json(found.ok_or_else(Problem::not_found)?.into()))
}

/// Delete the target of a handler
///
/// Its events then wait, until a worker has a function for them or another target is registered.
#[utoipa::path(delete, path = "/v1/canvases/{canvas}/handlers/{module}/{name}", operation_id = "delete_target",
    tag = "handlers", responses(
    (status = 204, description = "The target was deleted")))]
pub(crate) async fn delete(Call { api, caller }: Call, address: AddressPath) -> Result<StatusCode, Problem> {
    api.admin.delete_target(&caller.address(address), &caller.actor()).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Delete the target of a handler with a modifier
#[utoipa::path(delete, path = "/v1/canvases/{canvas}/handlers/{module}/{name}/{modifier}",
    operation_id = "delete_target_of_modifier", tag = "handlers", responses(
    (status = 204, description = "The target was deleted")))]
pub(crate) async fn delete_modifier(call: Call, address: AddressPath) -> Result<StatusCode, Problem> {
    delete(call, address).await
}
