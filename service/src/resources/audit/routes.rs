//! The audit log, for a canvas's admins.

use axum::Json;

use crate::access::Scope;
use crate::http::caller::Call;
use crate::http::paging::PageQuery;
use crate::http::path::Parameters;
use crate::http::problem::Answer;
use crate::resources::audit::wire::AuditEntryJson;
use crate::resources::wire::List;

/// List the audit log
///
/// Lists actions with their actors, and refusals, the latest first. Admins of every canvas also
/// find actions on all canvases, on the nil canvas.
#[utoipa::path(get, path = "/v1/admin/canvases/{canvas}/audit", operation_id = "list_audit", tag = "admin",
    params(PageQuery),
    responses((status = 200, description = "A page of the audit log", body = List<AuditEntryJson>)))]
pub(crate) async fn list(
    Call { api, caller }: Call,
    Parameters(query): Parameters<PageQuery>,
) -> Answer<List<AuditEntryJson>> {
    let (limit, cursor) = query.read()?;
    let admin = caller.admin(&api, Scope::Admin);
    Ok(Json(admin.audit(caller.canvas, cursor.as_ref(), limit).await?.into()))
}
