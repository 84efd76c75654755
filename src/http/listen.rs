//! `GET /v1/listen`: emitted events as server-sent events, for as long as the caller listens.
//!
//! A caller hears what its credential may read, and nothing else: that is asked for when it comes, and again and again
//! while it listens. How many listen at a time is bounded, and none holds up the end of the process.

use std::collections::HashMap;
use std::convert::Infallible;
use std::fmt::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{FromRequestParts, State};
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream::unfold;
use serde::Deserialize;
use tokio::time::{Interval, MissedTickBehavior, interval_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use utoipa::IntoParams;

use super::Api;
use super::body::Parameters;
use super::connection::Endless;
use super::guard::authorization;
use super::problem::{Kind, Problem};
use crate::access::{Access, Denied, Principal, Scope, canvases};
use crate::broadcast::{Heard, ListenError, Listener, TopicPattern};
use crate::event::CanvasId;

/// Most listeners with the same credential. Another process has as many of its own.
const OF_ONE_CALLER: usize = 16;
/// How long the subscriptions of listeners may take to be deleted at the end of the process.
const CLOSING: Duration = Duration::from_secs(2);
/// What every stream begins with: how long to wait before coming again.
const BEGIN: &str = "retry: 1000\n\n";

const NO_BUFFER: HeaderName = HeaderName::from_static("x-accel-buffering");

/// Who listens to this process. Cheap to clone.
#[derive(Clone)]
pub(super) struct Listening {
    most: usize,
    /// How often a stream says that it lives, and the credential is looked at again.
    keep_alive: Duration,
    callers: Arc<Mutex<HashMap<String, usize>>>,
    stop: CancellationToken,
    closing: TaskTracker,
}

impl Listening {
    pub(super) fn new(most: usize, keep_alive: Duration, stop: CancellationToken) -> Self {
        Self { most, keep_alive, callers: Arc::default(), stop, closing: TaskTracker::new() }
    }

    /// Waits until the subscriptions of those who listened are deleted.
    pub(super) async fn finish(&self) {
        self.closing.close();
        if tokio::time::timeout(CLOSING, self.closing.wait()).await.is_err() {
            tracing::warn!("subscriptions of listeners are left to expire");
        }
    }

    fn place(&self, caller: &Principal) -> Result<Place, Problem> {
        let busy = |words: String| Err(Problem::new(Kind::TooManyRequests, words));
        let name =
            caller.key().map_or_else(|| caller.name().to_owned(), |key| format!("{}:{key}", caller.name()));
        let mut callers = self.callers();
        if callers.values().sum::<usize>() >= self.most {
            return busy(format!("{} listen to this process, which is all that it takes", self.most));
        }
        let own = callers.entry(name.clone()).or_default();
        if *own >= OF_ONE_CALLER {
            return busy(format!("this credential listens {OF_ONE_CALLER} times already: end one of them"));
        }
        *own += 1;
        drop(callers);
        Ok(Place { listening: self.clone(), name })
    }

    fn callers(&self) -> MutexGuard<'_, HashMap<String, usize>> {
        self.callers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A listener's place; left when it is dropped.
struct Place {
    listening: Listening,
    name: String,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut callers = self.listening.callers();
        if let Some(own) = callers.get_mut(&self.name) {
            *own -= 1;
            if *own == 0 {
                callers.remove(&self.name);
            }
        }
    }
}

/// Somebody who may read events, and where; asked for before anything else of the request is looked at.
pub(super) struct Reader {
    caller: Principal,
    authorization: Option<String>,
    /// None: on every canvas.
    canvases: Option<Vec<CanvasId>>,
}

impl FromRequestParts<Api> for Reader {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
        let authorization = authorization(&parts.headers).map(str::to_owned);
        let caller = api.access.authenticate(authorization.as_deref()).await?;
        let canvases = canvases(&caller, Scope::Read).map_err(|denied| match denied {
            // There is no canvas in the path whose existence could be told.
            Denied::NotFound => Denied::Forbidden { needed: Scope::Read },
            denied @ Denied::Forbidden { .. } => denied,
        })?;
        Ok(Self { caller, authorization, canvases })
    }
}

/// What to listen to.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct ListenQuery {
    /// A glob over `canvas:module:name`, as Redis' psubscribe has them: `*`, `?`, `[abc]`, `[^a-z]` and `\` before a
    /// character that is to mean itself.
    #[param(max_length = 512, min_length = 1, example = "*:page:*")]
    pattern: String,
}

/// Listen to events as they are emitted, on all canvases that the credential may read.
///
/// Server-sent events. Each emitted event is one of the type `emitted`, with its id, and as data the JSON that
/// docs/listeners.md describes. `missed` tells that the caller was too slow, and how many events it did not hear of:
/// `{"count": 12}`, or `null` where nobody knows. A comment comes every 15 s. Best effort: events may be missed, doubled,
/// or in another order; what happened before the request is not told, so `Last-Event-ID` has no effect.
///
/// Needs the scope `read`, on at least one canvas. Ends when the credential does, or the process.
#[utoipa::path(get, path = "/v1/listen", operation_id = "listen", tag = "events", params(ListenQuery),
    security(("bearer" = ["read"])), responses(
    (status = 200, description = "Events, until the caller hangs up", body = String, content_type = "text/event-stream"),
    (status = 400, description = "The pattern is none", body = super::problem::Details,
        content_type = "application/problem+json"),
    (status = 401, description = "No credential, or none that counts", body = super::problem::Details,
        content_type = "application/problem+json"),
    (status = 403, description = "The credential may read no canvas", body = super::problem::Details,
        content_type = "application/problem+json"),
    (status = 404, description = "Events are not broadcast here: set WAKEQ_BROADCAST", body = super::problem::Details,
        content_type = "application/problem+json"),
    (status = "default", description = "What may happen to any request, and `too-many-requests`, if too many listen",
        body = super::problem::Details, content_type = "application/problem+json")))]
pub(super) async fn listen(
    State(api): State<Api>,
    reader: Reader,
    Parameters(query): Parameters<ListenQuery>,
) -> Result<Response, Problem> {
    // What is wrong with it is told whether or not there is anything to hear.
    query.pattern.parse::<TopicPattern>().map_err(ListenError::from)?;
    let broadcasts = api.queue.broadcasts().ok_or(ListenError::Off)?;
    let place = api.listening.place(&reader.caller)?;
    let listener = match &reader.canvases {
        Some(canvases) => broadcasts.subscribe_on(canvases, &query.pattern).await?,
        None => broadcasts.subscribe(&query.pattern).await?,
    };
    let keep_alive = api.listening.keep_alive;
    let mut ticks = interval_at(tokio::time::Instant::now() + keep_alive, keep_alive);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let listener = Some(listener);
    let stream = EventStream { listener, reader, access: api.access.clone(), place, ticks, begun: false };
    let body = Body::from_stream(unfold(stream, EventStream::next));
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream")),
        (header::CONNECTION, HeaderValue::from_static("close")),
        (NO_BUFFER, HeaderValue::from_static("no")),
    ];
    let mut response = (headers, body).into_response();
    response.extensions_mut().insert(Endless);
    Ok(response)
}

/// What one caller is sent.
struct EventStream {
    /// There until it is dropped.
    listener: Option<Listener>,
    reader: Reader,
    access: Access,
    place: Place,
    ticks: Interval,
    begun: bool,
}

impl EventStream {
    async fn next(mut self) -> Option<(Result<Bytes, Infallible>, Self)> {
        if !std::mem::replace(&mut self.begun, true) {
            return Some((Ok(BEGIN.into()), self));
        }
        let stop = self.place.listening.stop.clone();
        let listener = self.listener.as_mut()?;
        let text = tokio::select! {
            biased;
            () = stop.cancelled() => return None,
            _ = self.ticks.tick() => {
                if !self.may_go_on().await {
                    return None;
                }
                ": still here\n\n".to_owned()
            }
            heard = listener.next() => frame(&heard?),
        };
        Some((Ok(text.into()), self))
    }

    /// Whether the credential still counts, and for the same canvases. Who is told no comes again, and is told why.
    async fn may_go_on(&self) -> bool {
        match self.access.authenticate(self.reader.authorization.as_deref()).await {
            Ok(caller) => canvases(&caller, Scope::Read).as_ref() == Ok(&self.reader.canvases),
            Err(error) => {
                tracing::debug!(error = &error as &dyn std::error::Error, "a listener has to come again");
                false
            }
        }
    }
}

impl Drop for EventStream {
    fn drop(&mut self) {
        if let Some(listener) = self.listener.take() {
            self.place.listening.closing.spawn(listener.close());
        }
    }
}

/// One server-sent event.
fn frame(heard: &Heard) -> String {
    let mut text = String::new();
    // Writing to a text can't fail.
    let _ = match heard {
        Heard::Event(event) => write!(text, "event: emitted\nid: {}\ndata: {}\n\n", event.id, event.body()),
        Heard::Missed(Some(count)) => write!(text, "event: missed\ndata: {{\"count\":{count}}}\n\n"),
        Heard::Missed(None) => write!(text, "event: missed\ndata: {{\"count\":null}}\n\n"),
    };
    text
}

impl From<ListenError> for Problem {
    fn from(error: ListenError) -> Self {
        match error {
            ListenError::Pattern(_) => Self::bad_request(error.to_string()),
            ListenError::Off => Self::new(Kind::NotFound, error.to_string()),
            ListenError::Ending => Self::new(Kind::Unavailable, "this process ends: try again"),
            ListenError::Broker { .. } => Self::unavailable("what carries broadcasts", &error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::{Grant, Reach};

    fn caller(name: &str) -> Principal {
        let scopes = [Scope::Read].into_iter().collect();
        Principal::trusted(name, vec![Grant { reach: Reach::EveryCanvas, scopes }])
    }

    #[test]
    fn places_are_bounded_for_each_caller_and_for_all() {
        let listening = Listening::new(OF_ONE_CALLER + 2, CLOSING, CancellationToken::new());
        let kind = |name: &str| listening.place(&caller(name)).map(drop).map_err(|problem| problem.kind);
        let mut ada: Vec<_> =
            (0..OF_ONE_CALLER).map(|_| listening.place(&caller("ada")).ok().unwrap()).collect();
        assert_eq!(kind("ada"), Err(Kind::TooManyRequests));
        let bo = [listening.place(&caller("bo")), listening.place(&caller("bo"))];
        assert!(bo.iter().all(Result::is_ok));
        assert_eq!(kind("cy"), Err(Kind::TooManyRequests), "no room for anybody");
        ada.pop();
        assert_eq!((kind("cy"), kind("ada")), (Ok(()), Ok(())));
        drop((ada, bo));
        assert!(listening.callers().is_empty(), "nobody is remembered");
    }

    #[test]
    fn what_was_missed_is_a_server_sent_event() {
        assert_eq!(frame(&Heard::Missed(Some(12))), "event: missed\ndata: {\"count\":12}\n\n");
        assert_eq!(frame(&Heard::Missed(None)), "event: missed\ndata: {\"count\":null}\n\n");
    }
}
