//! Senders of requests that are authorized by a signature in the request itself, and not by a
//! credential of ours.
//!
//! Until the signature is verified, a request counts for its client's network and for all such
//! requests together, and for no canvas: nobody may use up a canvas's share by naming it. From then
//! on it counts for its canvas. Verifies nothing itself.

use std::borrow::Cow;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;

use super::Api;
use super::answer::RequestId;
use super::body::announced;
use super::client::Client;
use super::path;
use super::problem::{Kind, Problem};
use super::record::Line;
use super::shares::{LimitKey, Unverified};
use super::slots::Slot;
use wakeq::CanvasId;
use wakeq::control::AuditOutcome;
use wakeq::internals::{Purpose, on_behalf_of};

/// A client that has not proved yet that it may send to the canvas in the path.
#[derive(Clone)]
pub(crate) struct UnverifiedSender {
    pub(crate) canvas: CanvasId,
    client: Client,
    request: Option<RequestId>,
}

impl FromRequestParts<Api> for UnverifiedSender {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
        let client = Client::of(&parts.extensions);
        let Some(canvas) = path::canvas(parts, api).await else {
            api.shares.count_unauthenticated(client)?;
            return Err(path::no_canvas(parts));
        };
        let network = LimitKey::Network(client.network());
        api.shares.count_body(std::slice::from_ref(&network), announced(&parts.headers).unwrap_or(0))?;
        let limit_keys: Arc<[LimitKey]> = [LimitKey::Webhooks, network].into();
        if let Some(slot) = parts.extensions.get::<Arc<Slot>>() {
            slot.count_for(Arc::clone(&limit_keys))?;
        }
        parts.extensions.insert(Unverified(limit_keys));
        let request = parts.extensions.get::<RequestId>().cloned();
        Ok(Self { canvas, client, request })
    }
}

impl UnverifiedSender {
    /// The answer to a request without the right signature. It is recorded for the canvas's admins,
    /// with the reason, and counts for the client's address like any request without a valid
    /// credential.
    pub(crate) fn refused(
        &self,
        api: &Api,
        action: &'static str,
        reason: String,
        answer: impl Into<Cow<'static, str>>,
    ) -> Problem {
        if let Err(too_fast) = api.shares.count_unauthenticated(self.client) {
            return too_fast;
        }
        let line = Line {
            outcome: AuditOutcome::Refused,
            canvas: Some(self.canvas),
            actor: None,
            credential: None,
            client: self.client,
            action: action.into(),
            scope: None,
            reason: Some(reason),
        };
        api.audit.record_refusal(line, self.request.as_ref().map_or("", |id| &id.0));
        Problem::new(Kind::Unauthenticated, answer)
    }

    /// Looks something up before the signature is verified. The connection counts for no tenant,
    /// but for the reserved canvas, which all such requests share.
    pub(crate) async fn look<F: Future>(look: F) -> F::Output {
        let purpose = Purpose { canvas: CanvasId::OF_QUEUES, reads: true, is_contended: false };
        on_behalf_of(purpose, look).await
    }

    /// Emits one event of a request whose signature is right: it counts for the canvas, with its
    /// bytes, as a request with a key does.
    pub(crate) async fn admitted<F: Future>(
        &self,
        api: &Api,
        bytes: usize,
        emitting: F,
    ) -> Result<F::Output, Problem> {
        let limit_key = [LimitKey::Canvas(self.canvas)];
        api.shares.count_canvas_request(self.canvas)?;
        api.shares.count_body(&limit_key, u64::try_from(bytes).unwrap_or(u64::MAX))?;
        let is_contended = api.recent_canvases.record(self.canvas);
        api.shares.count_events(self.canvas, is_contended, 1)?;
        let _share = api.shares.reserve_request(&limit_key)?;
        Ok(on_behalf_of(Purpose { canvas: self.canvas, reads: false, is_contended }, emitting).await)
    }
}
