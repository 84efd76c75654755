//! Handlers reached over HTTP: register, show, delete.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;

use super::Api;
use super::body::{self, AddressPath};
use super::guard::Caller;
use super::problem::{Details, Problem};
use crate::api::{PutAnswer, PutTarget, Target};
use crate::event::HandlerAddress;

/// Register a handler that is reached over HTTP, or replace it, and wake what waited for it.
///
/// The modifier is `_`. A secret that is made is shown in this answer and never again.
#[utoipa::path(put, path = "/v1/canvases/{canvas}/handlers/{module}/{name}", operation_id = "put_target",
    tag = "handlers", request_body = PutTarget, responses(
    (status = 200, description = "There was one for the handler, and it is so now", body = PutAnswer),
    (status = 201, description = "It is new", body = PutAnswer),
    (status = 409, description = "The canvas has 1,000 targets", body = Details, content_type = "application/problem+json")))]
pub(super) async fn put(
    State(api): State<Api>,
    caller: Caller,
    address: AddressPath,
    body::Json(target): body::Json<PutTarget>,
) -> Result<(StatusCode, Json<PutAnswer>), Problem> {
    register(&api, &caller, caller.address(address), target).await
}

/// Register a handler with a modifier that is reached over HTTP, or replace it, and wake what waited for it.
#[utoipa::path(put, path = "/v1/canvases/{canvas}/handlers/{module}/{name}/{modifier}",
    operation_id = "put_target_of_modifier", tag = "handlers", request_body = PutTarget, responses(
    (status = 200, description = "There was one for the handler, and it is so now", body = PutAnswer),
    (status = 201, description = "It is new", body = PutAnswer),
    (status = 409, description = "The canvas has 1,000 targets", body = Details, content_type = "application/problem+json")))]
pub(super) async fn put_modifier(
    State(api): State<Api>,
    caller: Caller,
    address: AddressPath,
    body::Json(target): body::Json<PutTarget>,
) -> Result<(StatusCode, Json<PutAnswer>), Problem> {
    register(&api, &caller, caller.address(address), target).await
}

async fn register(
    api: &Api,
    caller: &Caller,
    address: HandlerAddress,
    target: PutTarget,
) -> Result<(StatusCode, Json<PutAnswer>), Problem> {
    let new = target.read().map_err(|error| Problem::bad_request(error.to_string()))?;
    let allowed = api.deliverer.check(address.scope.canvas, &new.url).and_then(|()| match &new.audience {
        Some(audience) => api.deliverer.check_audience(address.scope.canvas, &new.url, audience),
        None => Ok(()),
    });
    allowed.map_err(|refused| Problem::bad_request(refused.to_string()))?;
    let put = api.admin.put_target(&address, &new, &caller.actor()).await?;
    let status = if put.new { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Json(put.into())))
}

/// Look at the target of a handler with this modifier, `_` for the one without. Its secret is not shown.
#[utoipa::path(get, path = "/v1/canvases/{canvas}/handlers/{module}/{name}/{modifier}",
    operation_id = "show_target", tag = "handlers",
    responses((status = 200, description = "The target", body = Target)))]
pub(super) async fn one(
    State(api): State<Api>,
    caller: Caller,
    address: AddressPath,
) -> Result<Json<Target>, Problem> {
    let found = api.admin.target(&caller.address(address)).await?;
    Ok(Json(found.ok_or_else(Problem::not_found)?.into()))
}

/// Delete the target of a handler. Its events wait from then on, until a worker has a function for them or another
/// target is registered.
#[utoipa::path(delete, path = "/v1/canvases/{canvas}/handlers/{module}/{name}", operation_id = "delete_target",
    tag = "handlers", responses(
    (status = 204, description = "There is no such target any more")))]
pub(super) async fn delete(
    State(api): State<Api>,
    caller: Caller,
    address: AddressPath,
) -> Result<StatusCode, Problem> {
    api.admin.delete_target(&caller.address(address), &caller.actor()).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Delete the target of a handler with this modifier.
#[utoipa::path(delete, path = "/v1/canvases/{canvas}/handlers/{module}/{name}/{modifier}",
    operation_id = "delete_target_of_modifier", tag = "handlers", responses(
    (status = 204, description = "There is no such target any more")))]
pub(super) async fn delete_modifier(
    State(api): State<Api>,
    caller: Caller,
    address: AddressPath,
) -> Result<StatusCode, Problem> {
    api.admin.delete_target(&caller.address(address), &caller.actor()).await?;
    Ok(StatusCode::NO_CONTENT)
}
