//! `GET /v1/listen`: emitted events as server-sent events, until the caller disconnects.
//!
//! Listeners only receive what their credential may read, which is checked at the beginning and
//! repeatedly afterwards. The number of listeners is limited, and none of them delays the shutdown.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{FromRequestParts, State};
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::sse::Event;
use axum::response::{IntoResponse, Response, Sse};
use futures_util::stream::{StreamExt, iter, unfold};
use serde::Deserialize;
use serde_json::json;
use tokio::time::{Interval, MissedTickBehavior, interval_at};
use utoipa::IntoParams;

use super::Api;
use super::answer::RequestId;
use super::client::Client;
use super::connection::Endless;
use super::credential::{authorization, credential, reason};
use super::listeners::ListenerPermits;
use super::path::Parameters;
use super::problem::{Kind, Problem};
use super::record::Line;
use super::shares::credential_of;
use crate::access::{Access, Denied, Principal, Scope, canvases_with};
use wakeq::CanvasId;
use wakeq::control::AuditOutcome;
use wakeq::internals::HubListener;
use wakeq::listeners::{ListenError, ListenItem, TopicPattern};

/// The delay before reconnecting, which every stream begins with.
const RECONNECT: Duration = Duration::from_secs(1);

/// Listeners are sent events as a whole.
const NEEDED: [Scope; 2] = [Scope::Read, Scope::Values];

const NO_BUFFER: HeaderName = HeaderName::from_static("x-accel-buffering");

/// A caller that may read events, and where. Checked before anything else of the request.
pub(crate) struct Reader {
    credential: Arc<str>,
    authorization: Option<String>,
    /// `None` means every canvas.
    canvases: Option<Vec<CanvasId>>,
}

impl FromRequestParts<Api> for Reader {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
        let (authorization, client) =
            (authorization(&parts.headers).map(str::to_owned), Client::of(&parts.extensions));
        let caller = match api.access.authenticate(authorization.as_deref()).await {
            Ok(caller) => caller,
            Err(error) => {
                if reason(&error).is_some() {
                    api.shares.count_unauthenticated(client)?;
                }
                return Err(error.into());
            }
        };
        let credential = credential_of(&caller);
        api.shares.count_request(&credential)?;
        let canvases = canvases_with(&caller, NEEDED).map_err(|denied| match denied {
            // The path names no canvas whose existence could be revealed.
            Denied::NotFound => Denied::Forbidden { needed: Scope::Read },
            denied @ (Denied::Forbidden { .. }
            | Denied::Narrow { .. }
            | Denied::Beyond { .. }
            | Denied::NotEverywhere { .. }) => denied,
        })?;
        note(api, parts, &caller, &credential, canvases.as_deref());
        Ok(Self { credential, authorization, canvases })
    }
}

/// Records, for the admins of each canvas, that the caller listens to it.
fn note(api: &Api, parts: &Parts, caller: &Principal, shown: &Arc<str>, canvases: Option<&[CanvasId]>) {
    let request = parts.extensions.get::<RequestId>().map_or("", |id| &id.0);
    let line = |action: &str, canvas| Line {
        outcome: AuditOutcome::Done,
        canvas,
        actor: Some(caller.name().to_owned()),
        credential: credential(caller),
        client: Client::of(&parts.extensions),
        action: action.into(),
        scope: None,
        reason: None,
    };
    let canvases = match canvases {
        Some(canvases) => canvases.iter().copied().map(Some).collect(),
        None => vec![None],
    };
    for canvas in canvases {
        api.audit.record_sign_in(shown, canvas, request, || line("sign-in", canvas));
        api.audit.record_listening(line("listen", canvas), request);
    }
}

/// Which events to listen to.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListenQuery {
    /// A glob over `canvas:module:name`, in the syntax of Redis' `PSUBSCRIBE`: `*`, `?`, `[abc]`,
    /// `[^a-z]`, and `\` before a character to be taken literally.
    #[param(max_length = 512, min_length = 1, example = "*:page:*")]
    pattern: String,
}

/// Listen to events as they are emitted
///
/// Sends the events of all canvases whose values the credential may see, as server-sent events.
/// Each emitted event is one of the type `emitted`, with its id, and with the JSON described in
/// docs/listeners.md as data. One of the type `missed` reports that the caller was too slow, and
/// how many events it missed: `{"count":12}`, or `{"count":null}` if that is unknown. A comment is
/// sent every 15 s.
///
/// Delivery is best effort: events may be missed, duplicated or reordered. Events from before the
/// request are not sent, so `Last-Event-ID` has no effect.
///
/// Requires the scopes `read` and `values` on at least one canvas. The stream ends when the
/// credential is no longer valid, or the process stops.
#[utoipa::path(get, path = "/v1/listen", operation_id = "listen", tag = "events", params(ListenQuery),
    security(("bearer" = ["read", "values"])), responses(
    (status = 200, description = "Events, until the caller disconnects",
        body = String, content_type = "text/event-stream"),
    (status = 400, description = "The pattern is not valid"),
    (status = 401, description = "The credential is missing or not valid"),
    (status = 403, description = "The credential may not read any canvas"),
    (status = 404, description = "Events are not broadcast here; set WAKEQ_BROADCAST"),
    (status = "default",
        description = "An error that any request can receive, or `too-many-requests` if there are \
                       too many listeners")))]
pub(crate) async fn listen(
    State(api): State<Api>,
    reader: Reader,
    Parameters(query): Parameters<ListenQuery>,
) -> Result<Response, Problem> {
    // An invalid pattern is reported even if nothing is broadcast.
    query.pattern.parse::<TopicPattern>().map_err(ListenError::from)?;
    let hub = api.listeners.hub.as_ref().ok_or(ListenError::Off)?;
    let permits = api.listeners.acquire(Arc::clone(&reader.credential), reader.canvases.as_deref())?;
    let listener = hub.listen(reader.canvases.as_deref(), &query.pattern).await?;
    let keep_alive = api.listeners.limits.keep_alive;
    let mut ticks = interval_at(tokio::time::Instant::now() + keep_alive, keep_alive);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let stream = EventStream { listener, reader, access: api.access.clone(), permits, ticks };
    let begin = iter([Ok(Event::default().retry(RECONNECT))]);
    let headers = [
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
        (header::CONNECTION, HeaderValue::from_static("close")),
        (NO_BUFFER, HeaderValue::from_static("no")),
    ];
    let events = Sse::new(begin.chain(unfold(stream, EventStream::next)));
    let mut response = (headers, events).into_response();
    response.extensions_mut().insert(Endless);
    Ok(response)
}

/// The events sent to one caller.
struct EventStream {
    /// Dropped before the permits.
    listener: HubListener,
    reader: Reader,
    access: Access,
    permits: ListenerPermits,
    ticks: Interval,
}

impl EventStream {
    async fn next(mut self) -> Option<(Result<Event, Infallible>, Self)> {
        let stop = self.permits.stop.clone();
        let event = tokio::select! {
            biased;
            () = stop.cancelled() => return None,
            _ = self.ticks.tick() => {
                if !self.may_continue().await {
                    return None;
                }
                Event::default().comment("still here")
            }
            item = self.listener.next() => server_sent(&item?),
        };
        Some((Ok(event), self))
    }

    /// Whether the credential is still valid for the same canvases. If not, the stream ends, and
    /// the caller finds out why when it reconnects.
    async fn may_continue(&self) -> bool {
        match self.access.authenticate(self.reader.authorization.as_deref()).await {
            Ok(caller) => canvases_with(&caller, NEEDED).as_ref() == Ok(&self.reader.canvases),
            Err(error) => {
                tracing::debug!(error = &error as &dyn std::error::Error, "a listener has to reconnect");
                false
            }
        }
    }
}

fn server_sent(item: &ListenItem) -> Event {
    match item {
        ListenItem::Event(event) => {
            Event::default().event("emitted").id(event.id.to_string()).data(event.body())
        }
        ListenItem::Missed(count) => {
            Event::default().event("missed").data(json!({ "count": count }).to_string())
        }
    }
}

impl From<ListenError> for Problem {
    fn from(error: ListenError) -> Self {
        match &error {
            ListenError::Pattern(_) => Self::bad_request(error.to_string()),
            ListenError::Off => Self::new(Kind::NotFound, error.to_string()),
            ListenError::Ending => Self::new(Kind::Unavailable, "this process is shutting down: try again"),
            ListenError::Broker { .. } => Self::unavailable("the broadcast transport").because(error),
            _ => Self::internal(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_was_missed_is_a_server_sent_event() {
        let items =
            [Some(12), None].map(|count| Ok::<_, Infallible>(server_sent(&ListenItem::Missed(count))));
        let body = Sse::new(iter(items)).into_response().into_body();
        let text = axum::body::to_bytes(body, usize::MAX).await.unwrap();
        assert_eq!(text, "event: missed\ndata: {\"count\":12}\n\nevent: missed\ndata: {\"count\":null}\n\n");
    }
}
