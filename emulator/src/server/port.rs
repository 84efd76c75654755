//! One port for everything: a request goes to gRPC or to REST by its content type.

use std::convert::Infallible;

use axum::body::Body;
use axum::http::{HeaderMap, Request, Response, header};
use hyper::body::Incoming;
use tonic::Code;
use tower_service::Service as _;

use super::calls::{Calls, PullGuard};
use super::followed::followed;
use super::log::LoggedRequest;
use super::origin::Guard;
use super::{cors, grpc, rest};
use crate::broker::Refusal;

/// Answers all requests on the port.
#[derive(Clone)]
pub(super) struct Port {
    grpc: axum::Router,
    rest: axum::Router,
    guard: Guard,
    logs_requests: bool,
}

impl Port {
    /// Serves gRPC and REST, and `pages` under their own paths, to requests that the guard lets in.
    pub(super) fn new(calls: &Calls, pages: axum::Router, guard: Guard, logs_requests: bool) -> Self {
        Self { grpc: grpc::routes(calls), rest: rest::routes(calls).merge(pages), guard, logs_requests }
    }

    pub(super) async fn answer(self, request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
        let logged = self.logs_requests.then(|| LoggedRequest::begin(&request));
        let response = self.respond(request).await?;
        let is_grpc = is_grpc(response.headers());
        Ok(match logged {
            Some(logged) => logged.follow(response, is_grpc),
            None => response,
        })
    }

    async fn respond(self, request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
        let Some(origin) = self.guard.allowed.of(request.headers()) else {
            return self.admit(request).await;
        };
        let mut response = match cors::preflight(&request) {
            Some(response) => response,
            None => self.admit(request).await?,
        };
        cors::allow(&mut response, origin);
        Ok(response)
    }

    async fn admit(self, request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
        let is_grpc = is_grpc(request.headers());
        if let Some(words) = self.guard.refusal(&request, is_grpc) {
            return Ok(rest::refused(Refusal::new(Code::PermissionDenied, words)));
        }
        let mut router = if is_grpc { self.grpc } else { self.rest };
        Ok(guarded(router.call(request).await?))
    }
}

fn is_grpc(headers: &HeaderMap) -> bool {
    headers.get(header::CONTENT_TYPE).is_some_and(|value| value.as_bytes().starts_with(b"application/grpc"))
}

/// Tells a pull's guard when the response has been written.
fn guarded(mut response: Response<Body>) -> Response<Body> {
    match response.extensions_mut().remove::<PullGuard>() {
        None => response,
        Some(pull_guard) => followed(response, move |_, is_last| {
            if is_last {
                pull_guard.sent();
            }
        }),
    }
}
