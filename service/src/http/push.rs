//! `POST /v1/push`, for Pub/Sub, and `POST /v1/wake`, for Cloud Scheduler: in deployments without
//! long-lived processes, requests do the work.
//!
//! Authenticates the caller and unpacks the message. The runner decides what becomes of an event
//! and its notification.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{FromRequest, FromRequestParts, Request, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Api;
use super::body::CompleteBody;
use super::client::Client;
use super::credential::{authorization, reason};
use super::problem::{Kind, Problem};
use super::slots::PUSH_PATH;
use crate::access::PushDenied;

/// How long Pub/Sub waits for an answer. A run that takes longer continues under its claim.
const ANSWER_WITHIN: Duration = Duration::from_secs(600);
/// How long one request does the minute's work before it leaves the rest to the next one.
const WAKE_WITHIN: Duration = Duration::from_secs(20);

/// A caller that may push. Checked before anything else of the request.
pub(crate) struct Pusher;

impl FromRequestParts<Api> for Pusher {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
        match api.access.authenticate_push(authorization(&parts.headers)).await {
            Ok(_) => Ok(Self),
            Err(denied) => {
                if is_checked(&denied) {
                    api.shares.count_unauthenticated(Client::of(&parts.extensions))?;
                }
                let (error, path) = (&denied as &dyn Error, parts.uri.path());
                // Unknown callers are common; an account of the project's own that may not push is
                // a mistake to be noticed.
                match &denied {
                    PushDenied::NotNamed(_) => tracing::warn!(error, path, "refused"),
                    PushDenied::Off | PushDenied::Unauthenticated(_) => {
                        tracing::debug!(error, path, "refused");
                    }
                }
                Err(denied.into())
            }
        }
    }
}

/// Whether the caller is to blame, so that its address may not try again at any speed.
fn is_checked(denied: &PushDenied) -> bool {
    match denied {
        PushDenied::Off | PushDenied::NotNamed(_) => true,
        PushDenied::Unauthenticated(error) => reason(error).is_some(),
    }
}

impl From<PushDenied> for Problem {
    fn from(denied: PushDenied) -> Self {
        match denied {
            PushDenied::Off => Self::new(Kind::NotFound, denied.to_string()),
            PushDenied::Unauthenticated(error) => error.into(),
            PushDenied::NotNamed(_) => {
                Self::new(Kind::Forbidden, "the token's account may not push: see WAKEQ_PUSH_ACCOUNTS")
            }
        }
    }
}

/// A message as Pub/Sub pushes it. Other fields are ignored.
#[derive(Deserialize, ToSchema)]
pub(super) struct Envelope {
    message: Message,
}

#[derive(Deserialize, ToSchema)]
struct Message {
    /// The notification, `{"id":"…","canvasID":"…"}`, in base64.
    #[serde(default)]
    data: String,
}

/// A message without its envelope.
pub(crate) struct PushedMessage(Vec<u8>);

impl FromRequest<Api> for PushedMessage {
    type Rejection = Problem;

    async fn from_request(request: Request, api: &Api) -> Result<Self, Problem> {
        let bytes = match CompleteBody::from_request(request, api).await {
            Ok(CompleteBody(bytes)) => bytes,
            // No notification is that long, and Pub/Sub would redeliver a refused message again and
            // again.
            Err(problem) if problem.kind == Kind::TooLarge => return Ok(Self(Vec::new())),
            Err(problem) => return Err(problem),
        };
        let envelope: Envelope = serde_json::from_slice(&bytes).map_err(|_| {
            Problem::bad_request(
                "this is not a message as Pub/Sub pushes it, {\"message\":{\"data\":…}}: set up the \
                 push subscription without payload unwrapping",
            )
        })?;
        // If it is not base64, it is not a notification: the runner reports that.
        Ok(Self(STANDARD.decode(envelope.message.data).unwrap_or_default()))
    }
}

/// Run the event of a pushed message
///
/// For a push subscription of Pub/Sub. The response is sent when the event has ended or failed, or
/// has to wait for more than 10 s: then its promise wakes it.
#[utoipa::path(post, path = PUSH_PATH, operation_id = "push", tag = "push", request_body = Envelope,
    security(("push" = [])), responses(
    (status = 204, description = "The message need not be delivered again"),
    (status = "default", description = "The message has to be delivered again, or the caller may not push")))]
pub(crate) async fn push(
    State(api): State<Api>,
    _pusher: Pusher,
    PushedMessage(message): PushedMessage,
) -> Result<Response, Problem> {
    let Some(run) = &api.push.run else {
        return Err(Problem::new(Kind::NotFound, "this process runs no events: it serves the API only"));
    };
    match tokio::time::timeout(ANSWER_WITHIN, run(message)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            let what = "something that the event needs to run";
            return Err(Problem::unavailable(what).because_of(error.into()));
        }
        Err(_) => {
            tracing::info!("a run takes longer than Pub/Sub waits: it continues, and its promise stands")
        }
    }
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// The result of a call.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(crate) struct Woken {
    /// Overdue events whose notifications were published.
    woken: usize,
    /// Resume jobs that were continued.
    jobs: usize,
    /// Events of crons that were emitted: those that are due, and those that will be before the
    /// next minute is over.
    ticks: usize,
    /// Whether the time ran out: the next call continues.
    more: bool,
}

/// Run the minute's work
///
/// Wakes overdue events, continues resume jobs, emits the events of crons, and deletes expired
/// data.
///
/// For Cloud Scheduler, once a minute, in deployments without a long-lived process that does this.
/// A call that comes too early, or during another one, does nothing.
#[utoipa::path(post, path = "/v1/wake", operation_id = "wake", tag = "push", security(("push" = [])), responses(
    (status = 200, description = "What was done", body = Woken),
    (status = "default", description = "Something is unavailable, or the caller may not call this")))]
pub(crate) async fn wake(State(api): State<Api>, _pusher: Pusher) -> Result<Json<Woken>, Problem> {
    let Ok(turn) = Arc::clone(&api.push.passing).try_acquire_owned() else {
        return Ok(Json(Woken::default()));
    };
    // In a task of its own: if the pass were cancelled, events whose promises were moved but not
    // published would wait for their back-off.
    let passing = tokio::spawn(async move {
        let pass = api.admin.wake_within(WAKE_WITHIN, api.push.retention).await;
        drop(turn);
        pass
    });
    let pass = passing.await.map_err(|defect| Problem::internal().because(defect))?;
    let pass = pass.map_err(|error| match error.of_store() {
        Some(store) => Problem::from(store.clone()),
        None => Problem::unavailable("Pub/Sub").because(error),
    })?;
    Ok(Json(Woken { woken: pass.woken, jobs: pass.jobs, ticks: pass.ticks, more: pass.more }))
}
