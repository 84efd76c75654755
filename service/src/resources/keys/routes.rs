//! Keys, for a canvas's admins.

use std::time::Duration;

use axum::Json;
use axum::http::StatusCode;

use crate::access::{NewKey, Reach, read_scopes};
use crate::http::body;
use crate::http::caller::Call;
use crate::http::paging::{self, PageQuery};
use crate::http::path::{KeyPath, Parameters};
use crate::http::problem::{Answer, Problem};
use crate::resources::keys::wire::{CreateKey, CreatedKeyJson, KeyJson};
use crate::resources::wire::List;

/// List the keys of the canvas
///
/// Without their secrets.
#[utoipa::path(get, path = "/v1/admin/canvases/{canvas}/keys", operation_id = "list_keys", tag = "admin",
    params(PageQuery),
    responses((status = 200, description = "A page of keys, by id", body = List<KeyJson>)))]
pub(crate) async fn list(
    Call { api, caller }: Call,
    Parameters(query): Parameters<PageQuery>,
) -> Answer<List<KeyJson>> {
    let (limit, after) = (paging::limit(query.limit)?, paging::cursor(query.cursor.as_deref()));
    let after = after.map_err(|_| Problem::bad_request("`cursor` is not one of this list"))?;
    let keys = api.access.keys(caller.canvas.into(), after, limit + 1).await?;
    Ok(Json(List::page(keys, limit, |key| key.id.to_string())))
}

/// Show a key of the canvas
///
/// Without its secret, also if it is revoked or has expired.
#[utoipa::path(get, path = "/v1/admin/canvases/{canvas}/keys/{key}", operation_id = "show_key", tag = "admin",
    responses((status = 200, description = "The key", body = KeyJson)))]
pub(crate) async fn one(Call { api, caller }: Call, KeyPath(id): KeyPath) -> Answer<KeyJson> {
    let key = api.access.key(caller.canvas.into(), id).await?;
    let missing =
        || Problem::missing(format!("the canvas has no key {id:?}: `wakeq keys list` shows its keys"));
    Ok(Json(key.ok_or_else(missing)?.into()))
}

/// Create a key
///
/// The key is shown only once. It is valid on this canvas only. It may have any scopes, even ones
/// that the caller lacks.
#[utoipa::path(post, path = "/v1/admin/canvases/{canvas}/keys", operation_id = "create_key", tag = "admin",
    request_body = CreateKey, responses(
    (status = 201, description = "The key was created", body = CreatedKeyJson),
    (status = 409, description = "The holder already has two live keys (`conflict`)")))]
pub(crate) async fn create(
    Call { api, caller }: Call,
    body::Json(request): body::Json<CreateKey>,
) -> Result<(StatusCode, Json<CreatedKeyJson>), Problem> {
    let scopes = read_scopes(&request.scopes);
    let (scopes, narrow) = scopes.map_err(Problem::invalid)?;
    let new = NewKey {
        holder: request.holder,
        reach: Reach::Canvas(caller.canvas),
        scopes,
        lifetime: request.lifetime_s.map(Duration::from_secs),
    };
    let created = api.access.create_narrow_key(&new, &narrow, &caller.actor()).await?;
    Ok((StatusCode::CREATED, Json(created.into())))
}

/// Revoke a key
///
/// Takes effect everywhere within a minute.
#[utoipa::path(delete, path = "/v1/admin/canvases/{canvas}/keys/{key}", operation_id = "revoke_key", tag = "admin",
    responses((status = 204, description = "The key is revoked")))]
pub(crate) async fn revoke(Call { api, caller }: Call, KeyPath(id): KeyPath) -> Result<StatusCode, Problem> {
    if api.access.revoke_key(caller.revocable(), id, &caller.actor()).await? {
        Ok(StatusCode::NO_CONTENT)
    } else {
        Err(Problem::missing(format!(
            "no key {id:?}, or it was revoked before; `wakeq keys list --all-canvases` shows them"
        )))
    }
}
