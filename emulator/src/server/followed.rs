//! Response bodies that are followed while they are sent. What is sent stays as it is.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::body::Body;
use axum::http::Response;
use bytes::Bytes;
use http_body::{Frame, SizeHint};

/// Calls `follow` with each frame that there is to send, if any, and whether it was the last.
/// `follow` is dropped with the body.
pub(super) fn followed(
    response: Response<Body>,
    follow: impl FnMut(Option<&Frame<Bytes>>, bool) + Send + Unpin + 'static,
) -> Response<Body> {
    response.map(|inner| Body::new(FollowedBody { inner, follow }))
}

struct FollowedBody<F> {
    inner: Body,
    follow: F,
}

impl<F: FnMut(Option<&Frame<Bytes>>, bool) + Unpin> http_body::Body for FollowedBody<F> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = self.get_mut();
        let frame = ready!(Pin::new(&mut this.inner).poll_frame(context));
        let is_last = frame.is_none() || this.inner.is_end_stream();
        (this.follow)(frame.as_ref().and_then(|frame| frame.as_ref().ok()), is_last);
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
