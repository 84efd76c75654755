//! The audit log, for a canvas's admins.

use axum::Json;
use chrono::{DateTime, Utc};
use serde::Deserialize;
use utoipa::IntoParams;
use uuid::Uuid;

use crate::access::{KeyId, Scope};
use crate::http::caller::Call;
use crate::http::path::Parameters;
use crate::http::problem::{Answer, Problem};
use crate::http::{filter, paging};
use crate::resources::audit::wire::{AuditEntryJson, AuditOutcomeJson};
use crate::resources::wire::List;
use wakeq::EventId;
use wakeq::control::{AuditFilter, AuditOutcome};

/// Which lines to list, and which page of them.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct AuditQuery {
    /// Only lines of this action.
    #[param(min_length = 1, max_length = 64, example = "pause")]
    action: Option<String>,
    /// Only lines by this actor.
    #[param(min_length = 1, max_length = 200, example = "key:billing")]
    actor: Option<String>,
    /// Only lines about this API key or by its means: its public part.
    #[param(pattern = "^(wakeq_)?[0-9a-f]{12}$", example = "wakeq_0123456789ab")]
    key: Option<String>,
    /// Only lines about a handler of this module.
    #[param(pattern = "^[A-Za-z0-9_.-]{1,128}$", example = "WORKER")]
    module: Option<String>,
    /// Only lines about a handler of this name.
    #[param(pattern = "^[A-Za-z0-9_.-]{1,128}$", example = "send-email")]
    name: Option<String>,
    /// Only lines about this event.
    event_id: Option<Uuid>,
    /// Only what was done, or what was refused.
    #[param(inline)]
    outcome: Option<AuditOutcomeJson>,
    /// Only lines that were written at or after this time.
    since: Option<DateTime<Utc>>,
    /// Only lines that were written before this time.
    before: Option<DateTime<Utc>>,
    /// Maximum number of items. Default 100.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// The `next_cursor` of the previous page.
    #[param(max_length = 400)]
    cursor: Option<String>,
}

impl AuditQuery {
    fn filter(self) -> Result<AuditFilter, Problem> {
        let key: Option<KeyId> = filter::one(self.key.as_deref())?;
        Ok(AuditFilter {
            action: self.action,
            actor: self.actor,
            module: filter::one(self.module.as_deref())?,
            name: filter::one(self.name.as_deref())?,
            event_id: self.event_id.map(EventId),
            outcome: self.outcome.map(AuditOutcome::from),
            detail_text: key.map(|key| format!("{key:?}")),
            since: self.since,
            before: self.before,
        })
    }
}

/// List the audit log
///
/// Lists actions with their actors, and refusals, the latest first. Admins of every canvas also
/// find actions on all canvases, on the nil canvas. A page examines up to 10,000 lines, so with a
/// rare condition it may be empty although more follow.
#[utoipa::path(get, path = "/v1/admin/canvases/{canvas}/audit", operation_id = "list_audit", tag = "admin",
    params(AuditQuery),
    responses((status = 200, description = "A page of the audit log", body = List<AuditEntryJson>)))]
pub(crate) async fn list(
    Call { api, caller }: Call,
    Parameters(query): Parameters<AuditQuery>,
) -> Answer<List<AuditEntryJson>> {
    let (limit, cursor) = (paging::limit(query.limit)?, paging::cursor(query.cursor.as_deref())?);
    let admin = caller.admin(&api, Scope::Admin);
    let found = admin.search_audit(caller.canvas, &query.filter()?, cursor.as_ref(), limit).await?;
    Ok(Json(found.into()))
}
