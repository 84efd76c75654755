//! Events: list, explain, cancel and run now.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::value::RawValue;
use utoipa::{IntoParams, ToSchema};

use crate::access::Scope;
use crate::http::caller::Caller;
use crate::http::path::{EventPath, Parameters};
use crate::http::problem::Problem;
use crate::http::{Api, paging};
use crate::resources::events::wire::{CancelledEvent, EventDetail, EventSummaryJson, TheEvent, WaitingState};
use crate::resources::wire::List;
use wakeq::Name;
use wakeq::control::EventFilter;

/// Which events to list, and which page of them.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct EventsQuery {
    /// Only events of handlers of this module. Default `WORKER` if `name` is given.
    #[param(pattern = "^[A-Za-z0-9_.-]{1,128}$")]
    module: Option<String>,
    /// Only events of this handler.
    #[param(pattern = "^[A-Za-z0-9_.-]{1,128}$")]
    name: Option<String>,
    /// Only events in this state.
    #[param(inline)]
    state: Option<WaitingState>,
    /// Only events that this worker has claimed.
    #[param(pattern = "^[A-Za-z0-9_.-]{1,128}$")]
    worker: Option<String>,
    /// Maximum number of items. Default 100.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// The `next_cursor` of the previous page.
    #[param(max_length = 400)]
    cursor: Option<String>,
}

/// List events that have not ended
///
/// They can be filtered by handler, state and worker, and are sorted by handler and due time. A
/// page examines at most 10,000 events, so it may be short or even empty while `next_cursor` is
/// set.
#[utoipa::path(get, path = "/v1/canvases/{canvas}/events", operation_id = "list_events", tag = "events",
    params(EventsQuery),
    responses((status = 200, description = "A page of events", body = List<EventSummaryJson>)))]
pub(crate) async fn list(
    State(api): State<Api>,
    caller: Caller,
    Parameters(query): Parameters<EventsQuery>,
) -> Result<Json<List<EventSummaryJson>>, Problem> {
    let filter = EventFilter {
        module: query.module.as_deref().map(str::parse::<Name>).transpose()?,
        name: query.name.as_deref().map(str::parse::<Name>).transpose()?,
        states: query.state.map(Into::into).into_iter().collect(),
        worker: query.worker.as_deref().map(str::parse::<Name>).transpose()?,
        ..EventFilter::default()
    };
    let (limit, cursor) = (paging::limit(query.limit)?, paging::cursor(query.cursor.as_deref())?);
    Ok(Json(
        caller.admin(&api, Scope::Read).events(caller.canvas, &filter, cursor.as_ref(), limit).await?.into(),
    ))
}

/// How much of an event to show.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ViewQuery {
    /// `basic` omits the value, `full` includes it. Default `basic`.
    #[param(inline)]
    view: Option<View>,
}

/// How much of an event to show.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum View {
    Basic,
    Full,
}

/// Explain an event
///
/// Says why it is not running, since when, until when, and what happens next.
#[utoipa::path(get, path = "/v1/canvases/{canvas}/events/{id}", operation_id = "show_event", tag = "events",
    params(ViewQuery),
    responses((status = 200, description = "What is known about the event", body = EventDetail)))]
pub(crate) async fn one(
    State(api): State<Api>,
    caller: Caller,
    EventPath(id): EventPath,
    Parameters(query): Parameters<ViewQuery>,
) -> Result<Json<EventDetail>, Problem> {
    let admin = caller.admin(&api, Scope::Read);
    let explanation = admin.explain(caller.canvas, id).await?;
    let mut detail = EventDetail::of(explanation).ok_or_else(|| {
        let canvas = caller.canvas;
        Problem::missing(format!(
            "there is no event {id} on canvas {canvas}: it completed, was cancelled or purged, or never existed"
        ))
    })?;
    if query.view == Some(View::Full) {
        let value = admin.value(caller.canvas, id).await?;
        detail.value = value.and_then(|value| RawValue::from_string(value).ok());
    }
    Ok(Json(detail))
}

/// Which event to cancel: one that waits, or also one that runs.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct CancelQuery {
    /// Whether to cancel the event also if it is running. Default false.
    running: Option<bool>,
}

/// Cancel an event
///
/// A waiting event is deleted. With `running=true`, the handler of a running event is told to stop,
/// and cut off after a grace, which closes the request to an HTTP target. The event is deleted
/// then, unless its handler completes it before. It is not started again.
#[utoipa::path(post, path = "/v1/canvases/{canvas}/events/{id}/cancel", operation_id = "cancel_event",
    tag = "events", params(CancelQuery), responses(
    (status = 200, description = "The event was deleted", body = CancelledEvent),
    (status = 202, description = "The event is running, and its handler is told to stop",
        body = CancelledEvent),
    (status = 409, description = "The event is running (`not-waiting`), or is a copy that a service has \
                                  leased: end its lease first (`conflict`)",
        body = crate::http::problem::Details,
        content_type = "application/problem+json")))]
pub(crate) async fn cancel(
    State(api): State<Api>,
    caller: Caller,
    EventPath(id): EventPath,
    Parameters(query): Parameters<CancelQuery>,
) -> Result<(StatusCode, Json<CancelledEvent>), Problem> {
    let admin = caller.admin(&api, Scope::Operate);
    if query.running == Some(true) {
        let cancelled = admin.cancel_running(caller.canvas, id, &caller.actor()).await?;
        let status = if cancelled.running { StatusCode::ACCEPTED } else { StatusCode::OK };
        return Ok((status, Json(cancelled.into())));
    }
    let id = admin.cancel(caller.canvas, id, &caller.actor()).await?;
    Ok((StatusCode::OK, Json(CancelledEvent { id: id.0, next: None })))
}

/// Expedite a waiting event
///
/// Makes the event due now. A rule on its handler still holds it.
#[utoipa::path(post, path = "/v1/canvases/{canvas}/events/{id}/run-now", operation_id = "run_event_now",
    tag = "events", responses(
    (status = 200, description = "The event is due", body = TheEvent),
    (status = 409, description = "The event is running (`not-waiting`)",
        body = crate::http::problem::Details,
        content_type = "application/problem+json")))]
pub(crate) async fn run_now(
    State(api): State<Api>,
    caller: Caller,
    EventPath(id): EventPath,
) -> Result<Json<TheEvent>, Problem> {
    let id = caller.admin(&api, Scope::Operate).run_now(caller.canvas, id, &caller.actor()).await?;
    Ok(Json(TheEvent { id: id.0 }))
}
