//! Refuses deliveries of this deployment that come back to it, whatever token they carry.
//!
//! A deployment may be reachable under names that it does not know, so registering a target can't
//! refuse all of them. A returning delivery would count as a request of the workers' account.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::problem::{Kind, Problem};
use wakeq::targets::OwnDeployment;

/// Passes on everything that this deployment did not send itself.
pub(crate) async fn refuse(State(own): State<Arc<OwnDeployment>>, request: Request, next: Next) -> Response {
    let mut senders = request.headers().get_all(OwnDeployment::HEADER).iter();
    if senders.any(|sender| sender.as_bytes() == own.id().as_bytes()) {
        tracing::warn!("a delivery of this deployment came back to it: one of its targets leads here");
        let words = "this is a delivery of this deployment's own: a target can't be the queue that \
                     sends to it; emit from the handler that receives the event, with a key of its \
                     own";
        return Problem::new(Kind::Forbidden, words).into_response();
    }
    next.run(request).await
}
