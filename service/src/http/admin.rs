//! For a canvas's admins: keys and the audit log.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize;
use utoipa::IntoParams;

use super::body::{self, KeyPath, Parameters};
use super::caller::Caller;
use super::problem::Problem;
use super::{Api, paging};
use crate::access::{NewKey, Reach, read_scopes};
use crate::api::{AuditEntry, CreateKey, CreatedKey, Key, List};

/// Which page to return.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct PageQuery {
    /// Maximum number of items. Default 100.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// The `next_cursor` of the previous page.
    #[param(max_length = 400)]
    cursor: Option<String>,
}

/// List the audit log
///
/// What was done and by whom, and what was refused; latest first.
#[utoipa::path(get, path = "/v1/admin/canvases/{canvas}/audit", operation_id = "list_audit", tag = "admin",
    params(PageQuery),
    responses((status = 200, description = "A page of the audit log", body = List<AuditEntry>)))]
pub(super) async fn audit(
    State(api): State<Api>,
    caller: Caller,
    Parameters(query): Parameters<PageQuery>,
) -> Result<Json<List<AuditEntry>>, Problem> {
    let (limit, cursor) = (paging::limit(query.limit)?, paging::cursor(query.cursor.as_deref())?);
    Ok(Json(api.admin.audit(caller.canvas, cursor.as_ref(), limit).await?.into()))
}

/// List the keys of the canvas
///
/// Without their secrets.
#[utoipa::path(get, path = "/v1/admin/canvases/{canvas}/keys", operation_id = "list_keys", tag = "admin",
    params(PageQuery),
    responses((status = 200, description = "A page of keys, by id", body = List<Key>)))]
pub(super) async fn keys(
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
        body = super::problem::Details,
        content_type = "application/problem+json")))]
pub(super) async fn create_key(
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
pub(super) async fn revoke_key(
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
