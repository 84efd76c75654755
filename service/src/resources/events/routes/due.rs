//! When an event is due: changed.

use axum::Json;

use crate::access::Scope;
use crate::http::body;
use crate::http::caller::Call;
use crate::http::path::EventPath;
use crate::http::problem::{Answer, Details, Problem};
use crate::resources::events::wire::due::{DueEvent, SetDue};

/// Change when an event is due
///
/// Of an event that waits: earlier, later, or now if the time has passed. One that failed is tried
/// again then. A rule on its handler still holds it.
#[utoipa::path(put, path = "/v1/canvases/{canvas}/events/{id}/due", operation_id = "set_event_due",
    tag = "events", request_body = SetDue, responses(
    (status = 200, description = "The event is due at this time", body = DueEvent),
    (status = 409, description = "The event is running (`not-waiting`), or has ended (`conflict`)",
        body = Details, content_type = "application/problem+json")))]
pub(crate) async fn set(
    Call { api, caller }: Call,
    EventPath(id): EventPath,
    body::Json(request): body::Json<SetDue>,
) -> Answer<DueEvent> {
    let due = request.read().map_err(Problem::bad_request)?;
    let admin = caller.admin(&api, Scope::Operate);
    let moved = admin.set_due(caller.canvas, id, due, &caller.actor()).await?;
    Ok(Json(DueEvent { id: moved.id.0, delay_until: moved.due }))
}
