//! The doctor's findings, for admins of every canvas.

use axum::Json;

use crate::http::caller::Call;
use crate::http::problem::{Answer, Problem};
use crate::resources::doctor::wire::DoctorReport;

/// Show what the doctor finds
///
/// The findings of `wakeq doctor` about the database, which this process gathers at most once a
/// minute. Those about connections, the pooler and Pub/Sub are left to the command, which has the
/// settings and the credentials for them.
#[utoipa::path(get, path = "/v1/admin/doctor", operation_id = "show_findings", tag = "admin",
    responses((status = 200, description = "The findings", body = DoctorReport)))]
pub(crate) async fn show(Call { api, .. }: Call) -> Answer<DoctorReport> {
    let report = api.checkup.report().await.ok_or_else(|| Problem::unavailable("the database"))?;
    Ok(Json(DoctorReport::new(&report.findings, report.checked_at)))
}
