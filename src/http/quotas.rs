//! Quotas of a canvas: shown to who reads there, set by who is admin of every canvas, and by no tenant.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;

use super::Api;
use super::body::{self, FacetPath, QuotaPath};
use super::guard::Caller;
use super::problem::Problem;
use crate::api::{List, Quota, SetQuota, UnsetQuota};

/// List the quotas of a canvas: how much it may keep of what, and how much there is.
#[utoipa::path(get, path = "/v1/canvases/{canvas}/quotas", operation_id = "list_quotas", tag = "quotas",
    responses((status = 200, description = "All of them", body = List<Quota>)))]
pub(super) async fn list(State(api): State<Api>, caller: Caller) -> Result<Json<List<Quota>>, Problem> {
    let quotas = api.admin.quotas(caller.canvas).await?;
    Ok(Json(List::whole(quotas.into_iter().map(Quota::from).collect())))
}

/// Set what a canvas may keep of something. What is there already stays.
///
/// It counts within a minute in every process.
#[utoipa::path(put, path = "/v1/admin/quotas/{canvas}/{quota}", operation_id = "set_quota", tag = "quotas",
    request_body = SetQuota, responses((status = 204, description = "It is so now")))]
pub(super) async fn set(
    State(api): State<Api>,
    caller: Caller,
    FacetPath(canvas): FacetPath,
    QuotaPath(quota): QuotaPath,
    body::Json(request): body::Json<SetQuota>,
) -> Result<StatusCode, Problem> {
    api.admin.set_quota(canvas, quota, request.limit, &caller.actor()).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Give a canvas the limit that every canvas has.
#[utoipa::path(delete, path = "/v1/admin/quotas/{canvas}/{quota}", operation_id = "unset_quota", tag = "quotas",
    responses((status = 200, description = "It has that limit now", body = UnsetQuota)))]
pub(super) async fn unset(
    State(api): State<Api>,
    caller: Caller,
    FacetPath(canvas): FacetPath,
    QuotaPath(quota): QuotaPath,
) -> Result<Json<UnsetQuota>, Problem> {
    let unset = api.admin.unset_quota(canvas, quota, &caller.actor()).await?;
    Ok(Json(UnsetQuota { unset }))
}
