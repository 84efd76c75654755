//! Events: list, explain, cancel and run now.

pub(crate) mod checkpoints;
pub(crate) mod due;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use chrono::{DateTime, Utc};
use serde::Deserialize;
use serde_json::value::RawValue;
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use crate::access::Scope;
use crate::http::body;
use crate::http::caller::Caller;
use crate::http::filter::{self, common_filter, event_query, several};
use crate::http::path::{EventPath, Parameters};
use crate::http::problem::Problem;
use crate::http::{Api, paging};
use crate::resources::events::wire::attempt::AttemptJson;
use crate::resources::events::wire::checkpoint::CheckpointJson;
use crate::resources::events::wire::{
    self, CancelledEvent, EventCountJson, EventDetail, EventSummaryJson, SetTags, TheEvent,
};
use crate::resources::wire::List;
use wakeq::Name;
use wakeq::control::{ErrorGroupId, EventFilter, EventState};
use wakeq::events::Tag;

event_query! {
    /// Which events to list, and which page of them.
    EventsQuery {
        /// Only events of handlers of this module. Default `WORKER` if `name` is given.
        #[param(pattern = "^[A-Za-z0-9_.-]{1,128}$")]
        module: Option<String>,
        /// Only events of this handler.
        #[param(pattern = "^[A-Za-z0-9_.-]{1,128}$")]
        name: Option<String>,
        /// Only events in this state: `ready`, `behind`, `halted`, `held`, `delayed`, `running`,
        /// `paused`, `blocked` or `limited`. Of several, separated by commas or in repeated
        /// parameters, any.
        #[param(max_length = 100, example = "paused")]
        state: Option<String>,
        /// Only events that this worker has claimed.
        #[param(pattern = "^[A-Za-z0-9_.-]{1,128}$")]
        worker: Option<String>,
    } .. {
        /// Only events that are due at or after this time.
        due_since: Option<DateTime<Utc>>,
        /// Only events that are due before this time.
        due_before: Option<DateTime<Utc>>,
        /// Only events that wait for this limit, for a place or for its rate: `canvas`,
        /// `handler:MODULE/NAME`, or a key that they name.
        #[param(max_length = 265, example = "customer:7")]
        waits_for: Option<String>,
        /// Maximum number of items. Default 100.
        #[param(minimum = 1, maximum = 1000)]
        limit: Option<u32>,
        /// The `next_cursor` of the previous page.
        #[param(max_length = 400)]
        cursor: Option<String>,
    }
}

/// List events that have not ended
///
/// They can be filtered by handler, state, worker, tags, object, batch, limit, times, last error
/// and value, and are sorted by handler and due time; those on an object by their order on it, and
/// members of a batch, or what waits for a key or the canvas's limit, by id. A page examines at
/// most 10,000 events, and 32 MiB of values if they are searched, so it may be short or even empty
/// while `next_cursor` is set. `looked_at` is how many it has examined. A key that reads some
/// handlers only has to name one of them.
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
        states: several(query.state.as_deref())?,
        worker: query.worker.as_deref().map(str::parse::<Name>).transpose()?,
        due_since: query.due_since,
        due_before: query.due_before,
        waits_for: filter::one(query.waits_for.as_deref())?,
        ..common_filter!(query)
    };
    if filter.states.contains(&EventState::Dead) {
        return Err(Problem::bad_request("dead events are listed at `/dead-events`: leave `dead` out"));
    }
    caller.may_list(&api, "list_events", (&filter, false))?;
    let (limit, cursor) = (paging::limit(query.limit)?, paging::cursor(query.cursor.as_deref())?);
    Ok(Json(
        caller.admin(&api, Scope::Read).events(caller.canvas, &filter, cursor.as_ref(), limit).await?.into(),
    ))
}

event_query! {
    /// Which events to count, and where to go on.
    CountQuery {
        /// Only events of handlers of this module. Default `WORKER` if `name` is given.
        #[param(pattern = "^[A-Za-z0-9_.-]{1,128}$")]
        module: Option<String>,
        /// Only events of this handler.
        #[param(pattern = "^[A-Za-z0-9_.-]{1,128}$")]
        name: Option<String>,
        /// Only events in this state, as in the list. `dead` alone counts dead events, and
        /// otherwise those are counted that have not ended.
        #[param(max_length = 100, example = "paused")]
        state: Option<String>,
    } .. {
        /// Only events that are due at or after this time.
        due_since: Option<DateTime<Utc>>,
        /// Only events that are due before this time.
        due_before: Option<DateTime<Utc>>,
        /// Only events that wait for this limit, for a place or for its rate: `canvas`,
        /// `handler:MODULE/NAME`, or a key that they name.
        #[param(max_length = 265, example = "customer:7")]
        waits_for: Option<String>,
        /// Only dead events that died at or after this time.
        died_since: Option<DateTime<Utc>>,
        /// Only dead events that died before this time.
        died_before: Option<DateTime<Utc>>,
        /// Only dead events of this error group.
        error_group: Option<Uuid>,
        /// The `next_cursor` of the previous count.
        #[param(max_length = 400)]
        cursor: Option<String>,
    }
}

/// Count events
///
/// Counts those that meet the filter among at most 10,000. While `next_cursor` is set, there may be
/// more: `count` is the least number. To go on, repeat the request with it, and add the counts.
#[utoipa::path(get, path = "/v1/canvases/{canvas}/events/count", operation_id = "count_events", tag = "events",
    params(CountQuery),
    responses((status = 200, description = "How many there are at least", body = EventCountJson)))]
pub(crate) async fn count(
    State(api): State<Api>,
    caller: Caller,
    Parameters(query): Parameters<CountQuery>,
) -> Result<Json<EventCountJson>, Problem> {
    let filter = EventFilter {
        module: query.module.as_deref().map(str::parse::<Name>).transpose()?,
        name: query.name.as_deref().map(str::parse::<Name>).transpose()?,
        states: several(query.state.as_deref())?,
        due_since: query.due_since,
        due_before: query.due_before,
        waits_for: filter::one(query.waits_for.as_deref())?,
        died_since: query.died_since,
        died_before: query.died_before,
        error_group: query.error_group.map(ErrorGroupId),
        ..common_filter!(query)
    };
    let of_dead = filter.states == [EventState::Dead];
    caller.may_list(&api, "count_events", (&filter, of_dead))?;
    let cursor = paging::cursor(query.cursor.as_deref())?;
    let admin = caller.admin(&api, Scope::Read);
    Ok(Json(admin.count_events(caller.canvas, &filter, cursor.as_ref()).await?.into()))
}

/// How much of an event to show.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ViewQuery {
    /// `basic` omits the value, `full` includes it, which needs the scope `values`. Default
    /// `basic`.
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
/// Says why it is not running, since when, until when, and what happens next; and what the attempts
/// at it were. An event that has ended is shown for as long as it is kept.
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
    let is_full = query.view == Some(View::Full);
    let handler = detail.module.as_deref().zip(detail.name.as_deref());
    caller.may_see(&api, "show_event", handler, is_full)?;
    if let Some(wait) = detail.limit.as_mut().filter(|_| caller.is_limited(Scope::Read)) {
        // They may be events of other handlers.
        wait.holders.clear();
    }
    if detail.state != wire::EventState::Gone {
        let found = admin.checkpoint(caller.canvas, id).await?;
        let attempts = admin.attempts(caller.canvas, id).await?;
        detail.attempts = attempts.into_iter().map(AttemptJson::from).collect();
        detail.checkpoint = found.map(|found| CheckpointJson::of(found, is_full));
    }
    if is_full {
        let value = admin.value(caller.canvas, id).await?;
        detail.value = value.and_then(|value| RawValue::from_string(value).ok());
        let result = admin.result(caller.canvas, id).await?;
        detail.result = result.and_then(|result| RawValue::from_string(result).ok());
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

/// Replace the tags of an event
///
/// Also of one that runs, whose handler sees the former ones, or that is dead. An empty list
/// removes them. A copy in a queue has no tags.
#[utoipa::path(put, path = "/v1/canvases/{canvas}/events/{id}/tags", operation_id = "set_event_tags",
    tag = "events", request_body = SetTags,
    responses((status = 200, description = "The event has these tags", body = TheEvent)))]
pub(crate) async fn set_tags(
    State(api): State<Api>,
    caller: Caller,
    EventPath(id): EventPath,
    body::Json(request): body::Json<SetTags>,
) -> Result<Json<TheEvent>, Problem> {
    let tags = request.tags.iter().map(|tag| tag.parse()).collect::<Result<Vec<Tag>, _>>();
    let tags = tags.map_err(Problem::invalid)?;
    let admin = caller.admin(&api, Scope::Operate);
    let id = admin.set_tags(caller.canvas, id, &tags, &caller.actor()).await?;
    Ok(Json(TheEvent { id: id.0 }))
}
