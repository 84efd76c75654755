//! One port for everything: a request goes to gRPC or to REST by its content type.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::http::{HeaderMap, Request, Response, header};
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use tonic::Code;
use tower_service::Service as _;

use super::calls::{Calls, PullGuard};
use super::origin::Guard;
use super::{grpc, rest};
use crate::broker::Refusal;

/// Answers all requests on the port.
#[derive(Clone)]
pub(super) struct Port {
    grpc: axum::Router,
    rest: axum::Router,
    guard: Guard,
}

impl Port {
    /// Serves gRPC and REST, and `pages` under their own paths, to requests that the guard lets in.
    pub(super) fn new(calls: &Calls, pages: axum::Router, guard: Guard) -> Self {
        Self { grpc: grpc::routes(calls), rest: rest::routes(calls).merge(pages), guard }
    }

    pub(super) async fn answer(self, request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
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
        Some(pull_guard) => response.map(|inner| Body::new(GuardedBody { inner, pull_guard })),
    }
}

struct GuardedBody {
    inner: Body,
    pull_guard: PullGuard,
}

impl http_body::Body for GuardedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = self.get_mut();
        let frame = std::task::ready!(Pin::new(&mut this.inner).poll_frame(context));
        if frame.is_none() || this.inner.is_end_stream() {
            this.pull_guard.sent();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
