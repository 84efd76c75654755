//! Hooks: put, list, show and delete, and the webhooks that are received for them.

mod body;
mod github;
mod proof;
pub(crate) mod receive;
mod signature;
mod standard;
mod stripe;

use axum::Json;
use axum::http::StatusCode;

use crate::http::body as http_body;
use crate::http::caller::Call;
use crate::http::paging::page_query;
use crate::http::path::{HookPath, Parameters};
use crate::http::problem::{Answer, Problem};
use crate::resources::hooks::wire::{HookJson, PutHook, PutHookAnswer};
use crate::resources::wire::List;
use wakeq::Name;

page_query!(HooksQuery, 128);

/// List the hooks of a canvas
///
/// Sorted by name. The secrets are not shown.
#[utoipa::path(get, path = "/v1/canvases/{canvas}/hooks", operation_id = "list_hooks", tag = "hooks",
    params(HooksQuery),
    responses((status = 200, description = "A page of hooks", body = List<HookJson>)))]
pub(crate) async fn list(
    Call { api, caller }: Call,
    Parameters(query): Parameters<HooksQuery>,
) -> Answer<List<HookJson>> {
    let (limit, after) = query.read::<Name>()?;
    let hooks = api.admin.hooks(caller.canvas, after.as_ref(), limit + 1).await?;
    Ok(Json(List::page(hooks, limit, |hook| hook.name.to_string())))
}

/// Show a hook
///
/// The secret is not shown.
#[utoipa::path(get, path = "/v1/canvases/{canvas}/hooks/{hook}", operation_id = "show_hook", tag = "hooks",
    responses((status = 200, description = "The hook", body = HookJson)))]
pub(crate) async fn one(Call { api, caller }: Call, HookPath(name): HookPath) -> Answer<HookJson> {
    Ok(Json(api.admin.hook(caller.canvas, &name).await?.into()))
}

/// Create or replace a hook
///
/// Webhooks that are sent to it and have the right signature become events of its handler, each
/// once. A generated secret is shown only in this response.
#[utoipa::path(put, path = "/v1/canvases/{canvas}/hooks/{hook}", operation_id = "put_hook", tag = "hooks",
    request_body = PutHook, responses(
    (status = 200, description = "The existing hook was replaced", body = PutHookAnswer),
    (status = 201, description = "The hook was created", body = PutHookAnswer),
    (status = 409, description = "The canvas has reached its quota of hooks (default 100), or the hook is of \
                                  another kind")))]
pub(crate) async fn put(
    Call { api, caller }: Call,
    HookPath(name): HookPath,
    http_body::Json(hook): http_body::Json<PutHook>,
) -> Result<(StatusCode, Json<PutHookAnswer>), Problem> {
    let new = hook.read(caller.canvas).map_err(Problem::invalid)?;
    let put = api.admin.put_hook(&name, &new, &caller.actor()).await?;
    let status = if put.new { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Json(put.into())))
}

/// Delete a hook
///
/// Webhooks for it are refused from then on. The events that it has emitted stay.
#[utoipa::path(delete, path = "/v1/canvases/{canvas}/hooks/{hook}", operation_id = "delete_hook", tag = "hooks",
    responses((status = 204, description = "The hook was deleted")))]
pub(crate) async fn delete(
    Call { api, caller }: Call,
    HookPath(name): HookPath,
) -> Result<StatusCode, Problem> {
    api.admin.delete_hook(caller.canvas, &name, &caller.actor()).await?;
    Ok(StatusCode::NO_CONTENT)
}
