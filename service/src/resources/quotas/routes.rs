//! Quotas of a canvas: its readers may see them, but only an admin of every canvas may set them.

use axum::Json;
use axum::http::StatusCode;

use crate::http::body;
use crate::http::caller::Call;
use crate::http::paging::page_query;
use crate::http::path::{FacetPath, Parameters, QuotaPath};
use crate::http::problem::{Answer, Problem};
use crate::resources::quotas::wire::{Quota, SetQuota, UnsetQuota};
use crate::resources::wire::List;

page_query!(QuotasQuery, 10);

/// List the quotas of a canvas
///
/// Returns its limits and its usage.
#[utoipa::path(get, path = "/v1/canvases/{canvas}/quotas", operation_id = "list_quotas", tag = "quotas",
    params(QuotasQuery),
    responses((status = 200, description = "A page of quotas", body = List<Quota>)))]
pub(crate) async fn list(
    Call { api, caller }: Call,
    Parameters(query): Parameters<QuotasQuery>,
) -> Answer<List<Quota>> {
    let (limit, after) = query.read::<u32>()?;
    let passed = after.unwrap_or(0).saturating_add(limit);
    let quotas = api.admin.quotas(caller.canvas).await?.into_iter().skip(after.unwrap_or(0) as usize);
    Ok(Json(List::page(quotas.take(limit as usize + 1).collect(), limit, |_| passed.to_string())))
}

/// Show a quota of a canvas
///
/// Measures what it counts, and not what the others do.
#[utoipa::path(get, path = "/v1/canvases/{canvas}/quotas/{quota}", operation_id = "show_quota", tag = "quotas",
    responses((status = 200, description = "The quota", body = Quota)))]
pub(crate) async fn one(Call { api, caller }: Call, QuotaPath(quota): QuotaPath) -> Answer<Quota> {
    Ok(Json(api.admin.quota(caller.canvas, quota).await?.into()))
}

/// Set a limit of a canvas
///
/// Existing data is kept. Takes effect in every process within a minute.
#[utoipa::path(put, path = "/v1/admin/quotas/{canvas}/{quota}", operation_id = "set_quota", tag = "quotas",
    request_body = SetQuota, responses((status = 204, description = "The limit was set")))]
pub(crate) async fn set(
    Call { api, caller }: Call,
    FacetPath(canvas): FacetPath,
    QuotaPath(quota): QuotaPath,
    body::Json(request): body::Json<SetQuota>,
) -> Result<StatusCode, Problem> {
    api.admin.set_quota(canvas, quota, request.limit, &caller.actor()).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Restore the default limit of a canvas
#[utoipa::path(delete, path = "/v1/admin/quotas/{canvas}/{quota}", operation_id = "unset_quota", tag = "quotas",
    responses((status = 200, description = "The canvas has the default limit", body = UnsetQuota)))]
pub(crate) async fn unset(
    Call { api, caller }: Call,
    FacetPath(canvas): FacetPath,
    QuotaPath(quota): QuotaPath,
) -> Answer<UnsetQuota> {
    let unset = api.admin.unset_quota(canvas, quota, &caller.actor()).await?;
    Ok(Json(UnsetQuota { unset }))
}
