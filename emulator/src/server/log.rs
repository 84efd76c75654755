//! A line on stderr for each request, once it has ended: what was called, and what came of it.
//!
//! It must never say what a message contains, but for the key of an attribute that was refused, nor
//! the query, which may have a token.

use std::time::Instant;

use axum::body::Body;
use axum::http::{HeaderMap, Request, Response};
use http_body::Frame;
use percent_encoding::percent_decode;
use tonic::Code;

use super::followed::followed;
use super::{rest, stderr};

/// A request that has begun; its line is written when this is dropped.
pub(super) struct LoggedRequest {
    what: String,
    /// `None` as long as nothing has come of it.
    outcome: Option<String>,
    began: Instant,
}

impl LoggedRequest {
    pub(super) fn begin<B>(request: &Request<B>) -> Self {
        let what = format!("{} {}", request.method(), request.uri().path());
        Self { what, outcome: None, began: Instant::now() }
    }

    /// Follows the response until it has been sent, as gRPC says what came of a call at its end.
    pub(super) fn follow(mut self, response: Response<Body>, is_grpc: bool) -> Response<Body> {
        if is_grpc {
            self.note(response.headers());
        } else {
            self.outcome = Some(response.status().as_u16().to_string());
        }
        followed(response, move |frame, _| {
            if let Some(trailers) = frame.and_then(Frame::trailers_ref) {
                self.note(trailers);
            }
        })
    }

    fn note(&mut self, headers: &HeaderMap) {
        let Some(code) = headers.get("grpc-status") else { return };
        let name = rest::name_of(Code::from_bytes(code.as_bytes()));
        let words = headers.get("grpc-message").map(|words| percent_decode(words.as_bytes()));
        self.outcome = Some(match words.map(|words| words.decode_utf8_lossy().into_owned()) {
            Some(words) if !words.is_empty() => {
                format!("{name}: {}", words.replace(char::is_control, " "))
            }
            Some(_) | None => name.to_owned(),
        });
    }
}

impl Drop for LoggedRequest {
    fn drop(&mut self) {
        let outcome = self.outcome.as_deref().unwrap_or("not finished");
        stderr::say(format!("{} {outcome} ({} ms)\n", self.what, self.began.elapsed().as_millis()));
    }
}
