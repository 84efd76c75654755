//! Keys, for a canvas's admins.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;

use crate::access::{NewKey, Reach, read_scopes};
use crate::http::Api;
use crate::http::body::{self, KeyPath, Parameters};
use crate::http::caller::Caller;
use crate::http::paging::{self, PageQuery};
use crate::http::problem::Problem;
use crate::resources::keys::wire::{CreateKey, CreatedKey, Key};
use crate::resources::wire::List;

/// List the keys of the canvas
///
/// Without their secrets.
#[utoipa::path(get, path = "/v1/admin/canvases/{canvas}/keys", operation_id = "list_keys", tag = "admin",
    params(PageQuery),
    responses((status = 200, description = "A page of keys, by id", body = List<Key>)))]
pub(crate) async fn list(
    State(api): State<Api>,
    caller: Caller,
    Parameters(query): Parameters<PageQuery>,
) -> Result<Json<List<Key>>, Problem> {
    let limit = paging::limit(query.limit)?;
    let after = query.cursor.as_deref().map(str::parse).transpose();
    let after = after.map_err(|_| Problem::bad_request("`cursor` is not one of this list"))?;
    let mut keys = api.access.keys(caller.canvas.into(), after, limit + 1).await?;
    let more = keys.len() > limit as usize;
    keys.truncate(limit as usize);
    let next_cursor = keys.last().filter(|_| more).map(|key| key.id.to_string());
    Ok(Json(List { items: keys.into_iter().map(Key::from).collect(), next_cursor }))
}

/// Create a key
///
/// The key is shown only once. It is valid on this canvas only. It may have any scopes, even ones
/// that the caller lacks.
#[utoipa::path(post, path = "/v1/admin/canvases/{canvas}/keys", operation_id = "create_key", tag = "admin",
    request_body = CreateKey, responses(
    (status = 201, description = "The key was created", body = CreatedKey),
    (status = 409, description = "The holder already has two live keys (`conflict`)",
        body = crate::http::problem::Details,
        content_type = "application/problem+json")))]
pub(crate) async fn create(
    State(api): State<Api>,
    caller: Caller,
    body::Json(request): body::Json<CreateKey>,
) -> Result<(StatusCode, Json<CreatedKey>), Problem> {
    let scopes = read_scopes(&request.scopes);
    let (scopes, narrow) = scopes.map_err(|error| Problem::bad_request(error.to_string()))?;
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
pub(crate) async fn revoke(
    State(api): State<Api>,
    caller: Caller,
    KeyPath(id): KeyPath,
) -> Result<StatusCode, Problem> {
    if api.access.revoke_key(caller.revocable(), id, &caller.actor()).await? {
        Ok(StatusCode::NO_CONTENT)
    } else {
        Err(Problem::missing(format!(
            "no key {id:?}, or it was revoked before; `wakeq keys list --all-canvases` shows them"
        )))
    }
}
