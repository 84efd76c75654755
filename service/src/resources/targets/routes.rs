//! Targets of handlers: register, show and delete.

use axum::Json;
use axum::http::StatusCode;

use crate::http::body::{self, AddressPath};
use crate::http::caller::Call;
use crate::http::problem::{Answer, Problem};
use crate::resources::targets::wire::{PutAnswer, PutTarget, Target};

/// Register an HTTP target for a handler
///
/// For its events with the modifier `_`. Replaces an existing target, and wakes the waiting events.
/// A generated secret is shown only in this response.
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

/// Show the target of a handler with a modifier
///
/// The modifier is `_` for the handler without one. The secret is not shown.
#[utoipa::path(get, path = "/v1/canvases/{canvas}/handlers/{module}/{name}/{modifier}",
    operation_id = "show_target", tag = "handlers",
    responses((status = 200, description = "The target", body = Target)))]
pub(crate) async fn one(Call { api, caller }: Call, address: AddressPath) -> Answer<Target> {
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
