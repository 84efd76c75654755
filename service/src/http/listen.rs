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
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Interval, MissedTickBehavior, interval_at};
use tokio_util::sync::CancellationToken;
use utoipa::IntoParams;

use super::Api;
use super::answer::RequestId;
use super::client::Client;
use super::connection::Endless;
use super::credential::{authorization, credential, reason};
use super::path::Parameters;
use super::problem::{Kind, Problem};
use super::record::Line;
use super::shares::{LimitKey, Reservation, Tally, credential_of};
use crate::access::{Access, Denied, Principal, Scope, canvases};
use wakeq::CanvasId;
use wakeq::control::AuditOutcome;
use wakeq::internals::{Hub, HubListener};
use wakeq::listeners::{ListenError, ListenItem, TopicPattern};

/// How long deleting the listeners' subscription may take at shutdown.
const CLOSING: Duration = Duration::from_secs(2);
/// The delay before reconnecting, which every stream begins with.
const RECONNECT: Duration = Duration::from_secs(1);

const NO_BUFFER: HeaderName = HeaderName::from_static("x-accel-buffering");

/// Limits on concurrent listeners.
#[derive(Clone, Copy)]
pub(crate) struct ListenerLimits {
    /// In this process.
    pub(crate) most: usize,
    /// With the same credential, or of the same canvas.
    pub(crate) share: usize,
    /// How often a stream is sent a keep-alive and its credential is checked again.
    pub(crate) keep_alive: Duration,
}

/// The listeners of this process. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Listeners {
    limits: ListenerLimits,
    permits: Arc<Semaphore>,
    shares: Tally<LimitKey>,
    /// The source of their events; `None` if nothing is broadcast.
    hub: Option<Hub>,
    stop: CancellationToken,
}

impl Listeners {
    pub(crate) fn new(limits: ListenerLimits, hub: Option<Hub>, stop: CancellationToken) -> Self {
        let permits = Arc::new(Semaphore::new(limits.most));
        Self { limits, permits, shares: Tally::new(limits.share), hub, stop }
    }

    /// Waits until the listeners' subscription is deleted.
    pub(crate) async fn finish(&self) {
        if let Some(hub) = &self.hub {
            hub.close(CLOSING).await;
        }
    }

    fn acquire(
        &self,
        credential: Arc<str>,
        canvases: Option<&[CanvasId]>,
    ) -> Result<ListenerPermits, Problem> {
        let busy = |words: String| Problem::new(Kind::TooManyRequests, words);
        let canvases = canvases.unwrap_or_default().iter().map(|canvas| LimitKey::Canvas(*canvas));
        let limit_keys: Vec<_> = [LimitKey::Credential(credential)].into_iter().chain(canvases).collect();
        let ListenerLimits { most, share, .. } = self.limits;
        let share = self.shares.reserve(&limit_keys, 1).map_err(|key| {
            busy(format!("{key} has {share} listeners already, its share of this process: end one of them"))
        })?;
        let permit = Arc::clone(&self.permits).try_acquire_owned();
        let permit =
            permit.map_err(|_| busy(format!("this process has {most} listeners, which is its limit")))?;
        Ok(ListenerPermits { stop: self.stop.clone(), _share: share, _permit: permit })
    }
}

/// A listener's permits, released when it is dropped.
struct ListenerPermits {
    stop: CancellationToken,
    _share: Reservation,
    _permit: OwnedSemaphorePermit,
}

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
        let canvases = canvases(&caller, Scope::Read).map_err(|denied| match denied {
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
/// Sends the events of all canvases that the credential may read, as server-sent events. Each
/// emitted event is one of the type `emitted`, with its id, and with the JSON described in
/// docs/listeners.md as data. One of the type `missed` reports that the caller was too slow, and
/// how many events it missed: `{"count":12}`, or `{"count":null}` if that is unknown. A comment is
/// sent every 15 s.
///
/// Delivery is best effort: events may be missed, duplicated or reordered. Events from before the
/// request are not sent, so `Last-Event-ID` has no effect.
///
/// Requires the scope `read` on at least one canvas. The stream ends when the credential is no
/// longer valid, or the process stops.
#[utoipa::path(get, path = "/v1/listen", operation_id = "listen", tag = "events", params(ListenQuery),
    security(("bearer" = ["read"])), responses(
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
            Ok(caller) => canvases(&caller, Scope::Read).as_ref() == Ok(&self.reader.canvases),
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
    use uuid::Uuid;

    use super::*;

    /// Four keys of one canvas exhaust its share, but not the process.
    #[test]
    fn places_are_bounded_for_each_caller_each_canvas_and_all() {
        let limits = ListenerLimits { most: 5, share: 2, keep_alive: Duration::from_secs(15) };
        let listeners = Listeners::new(limits, None, CancellationToken::new());
        let (own, other) = ([CanvasId(Uuid::from_u128(1))], [CanvasId(Uuid::from_u128(2))]);
        let acquire = |name: &str, canvases: Option<&[CanvasId]>| listeners.acquire(name.into(), canvases);
        let mut held: Vec<_> =
            ["a", "b"].iter().map(|name| acquire(name, Some(&own)).ok().unwrap()).collect();
        for name in ["c", "d"] {
            assert_eq!(
                acquire(name, Some(&own)).err().unwrap().kind,
                Kind::TooManyRequests,
                "of the same canvas"
            );
        }
        held.extend([acquire("e", None), acquire("e", None)].map(|permits| permits.ok().unwrap()));
        assert!(acquire("e", None).is_err(), "the same credential");
        held.push(acquire("f", Some(&other)).ok().unwrap());
        assert!(acquire("g", Some(&other)).is_err(), "no room for anybody");
        assert_eq!(listeners.shares.len(), 6, "a refused listener has taken nothing");
        held.remove(0);
        held.push(acquire("c", Some(&own)).ok().unwrap());
        drop(held);
        assert_eq!(listeners.shares.len(), 0, "nobody is remembered");
    }

    #[tokio::test]
    async fn what_was_missed_is_a_server_sent_event() {
        let items =
            [Some(12), None].map(|count| Ok::<_, Infallible>(server_sent(&ListenItem::Missed(count))));
        let body = Sse::new(iter(items)).into_response().into_body();
        let text = axum::body::to_bytes(body, usize::MAX).await.unwrap();
        assert_eq!(text, "event: missed\ndata: {\"count\":12}\n\nevent: missed\ndata: {\"count\":null}\n\n");
    }
}
