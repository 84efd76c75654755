//! Webhooks: verified with the secret of their hook, and emitted once for each of the sender's ids.
//!
//! The answer to a request without the right signature is the same whether there is such a hook or
//! not. No body is logged.

use std::time::{SystemTime, UNIX_EPOCH};

use axum::extract::{FromRequestParts, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};

use super::body::{self, Received};
use super::proof::Proof;
use super::signature::Unsigned;
use crate::http::Api;
use crate::http::body::CompleteBody;
use crate::http::path::HookPath;
use crate::http::problem::{Kind, Problem};
use crate::http::senders::UnverifiedSender;
use crate::resources::emit::wire::EmittedJson;
use wakeq::hooks::HookSecret;
use wakeq::internals::FoundHook;
use wakeq::{CanvasId, EmitError, Emitted, Event, EventError, EventId, Name, StoreError};

/// The name of the operation in the audit log.
const ACTION: &str = "receive_webhook";
/// What the sender is told if nothing accepts the signature.
const REFUSED: &str = "no hook of this name on this canvas accepts the signature: check the hook's name and kind, and \
                       that the sender signs the body, as it sends it, with the hook's secret";

/// Takes the place of a secret that there is not. What is made with it is not accepted.
const NO_SECRET: [u8; 32] = [0; 32];

/// A request that has a signature, before its body is read.
pub(crate) struct Signed {
    sender: UnverifiedSender,
    headers: HeaderMap,
    /// When it arrived, by this machine's clock. The database's is not closer to the sender's.
    now_s: u64,
}

impl FromRequestParts<Api> for Signed {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
        let sender = UnverifiedSender::from_request_parts(parts, api).await?;
        let now_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        match Proof::read(&parts.headers, now_s) {
            Ok(_) => Ok(Self { sender, headers: parts.headers.clone(), now_s }),
            Err(unsigned) => Err(refused(&sender, api, unsigned)),
        }
    }
}

/// The answer to a request that has no signature to be verified.
fn refused(sender: &UnverifiedSender, api: &Api, unsigned: Unsigned) -> Problem {
    api.webhooks.unsigned();
    let words = unsigned.to_string();
    sender.refused(api, ACTION, words.clone(), words)
}

/// Receive a webhook
///
/// For senders of webhooks, which have no key: the signature, with the secret of the hook,
/// authorizes the request. The body becomes an event for the hook's handler. A repeat, which has
/// the same id, adds nothing and is answered as such.
///
/// The response is sent after the commit.
#[utoipa::path(post, path = "/v1/canvases/{canvas}/hooks/{hook}", operation_id = "receive_webhook", tag = "hooks",
    params(
        ("webhook-id" = Option<String>, Header, description = "Standard Webhooks: the id"),
        ("webhook-timestamp" = Option<String>, Header, description = "Standard Webhooks: the time of sending"),
        ("webhook-signature" = Option<String>, Header, description = "Standard Webhooks: the signatures"),
        ("stripe-signature" = Option<String>, Header, description = "Stripe: time and signatures"),
        ("x-github-delivery" = Option<String>, Header, description = "GitHub: the id"),
        ("x-github-event" = Option<String>, Header, description = "GitHub: the kind of event"),
        ("x-hub-signature-256" = Option<String>, Header, description = "GitHub: the signature"),
    ),
    request_body(content(
        (serde_json::Value = "application/json"),
        (String = "application/x-www-form-urlencoded"),
    ), description = "JSON; from GitHub also a form with JSON in `payload`"),
    security(("signature" = [])),
    responses(
        (status = 202, description = "The event is committed, or was already", body = EmittedJson),
        (status = 401, description = "The signature is missing, too old, or not right for such a hook"),
        (status = 413, description = "The body is too large"),
        (status = "default",
            description = "An error that any request can receive: `too-many-requests`, `quota-exceeded`, \
                           `unavailable`, `internal`")))]
pub(crate) async fn receive(
    State(api): State<Api>,
    Signed { sender, headers, now_s }: Signed,
    HookPath(name): HookPath,
    CompleteBody(body): CompleteBody,
) -> Result<(StatusCode, axum::Json<EmittedJson>), Problem> {
    let canvas = sender.canvas;
    let proof = Proof::read(&headers, now_s).map_err(|unsigned| refused(&sender, &api, unsigned))?;
    let found = UnverifiedSender::look(api.admin.hook_to_receive(canvas, &name)).await?;
    let has_hook = found.is_some();
    let hook = accepted(found, &name, &proof, &body).map_err(|reason| {
        api.webhooks.refused(has_hook);
        sender.refused(&api, ACTION, reason, REFUSED)
    })?;
    let received = match hook.enveloped {
        true => body::read_enveloped(&proof, &headers, &body, (canvas, &name))?,
        false => body::read(&proof, &headers, &body)?,
    };
    if let Some(words) = received.excess(api.queue.payload_limit_bytes()) {
        return Err(Problem::new(Kind::TooLarge, words));
    }
    let event = event(canvas, &name, &hook, received)?;
    let emitted = match sender.admitted(&api, body.len(), api.queue.emit(event)).await? {
        // The hook had another handler when this was received for the first time.
        Err(EmitError::Store(StoreError::IdTaken(taken))) => repeat_of(taken.id),
        emitted => emitted?,
    };
    api.webhooks.accepted();
    Ok((StatusCode::ACCEPTED, axum::Json(emitted.into())))
}

/// The hook, if it accepts the signature; or, for the canvas's admins, why not. Two signatures are
/// computed in any case, as many as a hook may have secrets, so that the time does not tell whether
/// there is such a hook, of which kind it is, and which of its secrets it was.
fn accepted(
    found: Option<FoundHook>,
    name: &Name,
    proof: &Proof<'_>,
    body: &[u8],
) -> Result<FoundHook, String> {
    let hook = found.as_ref().filter(|hook| hook.kind == proof.kind());
    let secrets = hook.map(|hook| hook.secrets.as_slice()).unwrap_or_default();
    let is_made_with = |secret: Option<&HookSecret>| {
        let is_right = proof.is_made_with(secret.map_or(&NO_SECRET[..], HookSecret::key), body);
        is_right & secret.is_some()
    };
    let is_right = is_made_with(secrets.first()) | is_made_with(secrets.get(1));
    match found {
        None => Err(format!("the canvas has no hook {name}")),
        Some(hook) if hook.kind != proof.kind() => {
            Err(format!("hook {name} is of the kind {}, and the request is not signed so", hook.kind))
        }
        Some(hook) if is_right => Ok(hook),
        Some(_) => Err(format!("the signature for hook {name} was not made with its secret, of this body")),
    }
}

/// The answer to a webhook whose event was emitted before.
fn repeat_of(id: EventId) -> Emitted {
    Emitted { id, duplicate: true, link: None, copies: 0, notified: false, unique: None }
}

/// The event of a webhook. Its id follows from the sender's.
fn event(canvas: CanvasId, name: &Name, hook: &FoundHook, received: Received) -> Result<Event, EventError> {
    let scope = &hook.address.scope;
    let event = Event::from_json(scope.name.as_str(), received.value)?;
    let event = event.module(scope.module.as_str())?.modifier(hook.address.modifier.as_str())?;
    Ok(event.canvas(canvas).id(EventId::of_webhook(name, &received.id)))
}
