//! A request to emit as it was received, and the answer after the commit.

use axum::body::Bytes;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};

use super::cloudevents::Keep;
use super::emission::Headers;
use super::request::Incoming;
use crate::http::caller::Caller;
use crate::resources::emit::wire::{EmitAnswer, EmittedJson};
use wakeq::CanvasId;

/// A request whose credential permits emitting.
pub(super) struct EmitRequest {
    pub(super) batch: bool,
    pub(super) keep: Keep,
    pub(super) uri: Uri,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl EmitRequest {
    pub(super) fn borrowed(&self) -> Vec<(&str, &[u8])> {
        self.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect()
    }

    pub(super) fn incoming<'a>(
        &'a self,
        caller: &Caller,
        headers: &'a [(&'a str, &'a [u8])],
    ) -> Incoming<'a> {
        Incoming {
            canvas: caller.canvas,
            batch: self.batch,
            keep: self.keep,
            headers: Headers(headers),
            body: &self.body,
        }
    }
}

/// 202, with the location of the event if there is exactly one.
pub(super) fn accepted(canvas: CanvasId, answer: &EmitAnswer) -> Response {
    let mut response = (StatusCode::ACCEPTED, axum::Json(answer)).into_response();
    if let EmitAnswer::One(EmittedJson { id, .. }) = answer
        && let Ok(location) = HeaderValue::from_str(&format!("/v1/canvases/{canvas}/events/{id}"))
    {
        response.headers_mut().insert(header::LOCATION, location);
    }
    response
}
