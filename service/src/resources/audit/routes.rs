//! The audit log, for a canvas's admins.

use axum::Json;
use axum::extract::State;

use crate::http::Api;
use crate::http::body::Parameters;
use crate::http::caller::Caller;
use crate::http::paging::{self, PageQuery};
use crate::http::problem::Problem;
use crate::resources::audit::wire::AuditEntry;
use crate::resources::wire::List;

/// List the audit log
///
/// What was done and by whom, and what was refused; latest first.
#[utoipa::path(get, path = "/v1/admin/canvases/{canvas}/audit", operation_id = "list_audit", tag = "admin",
    params(PageQuery),
    responses((status = 200, description = "A page of the audit log", body = List<AuditEntry>)))]
pub(crate) async fn list(
    State(api): State<Api>,
    caller: Caller,
    Parameters(query): Parameters<PageQuery>,
) -> Result<Json<List<AuditEntry>>, Problem> {
    let (limit, cursor) = (paging::limit(query.limit)?, paging::cursor(query.cursor.as_deref())?);
    Ok(Json(api.admin.audit(caller.canvas, cursor.as_ref(), limit).await?.into()))
}
