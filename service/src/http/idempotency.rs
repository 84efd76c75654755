//! `Idempotency-Key`: what a request gives as its key, which requests are the same, and how a
//! repeated answer is marked. The store keeps key, effect and answer in one transaction.

use aws_lc_rs::digest::{Context, SHA256};
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::response::Response;

use super::operations::IDEMPOTENCY_KEY;
use super::problem::Problem;

const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// The request's key: 1 to 255 visible characters.
pub(crate) fn key(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let mut values = headers.get_all(IDEMPOTENCY_KEY).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let visible = value.as_bytes().iter().all(u8::is_ascii_graphic) && (1..=255).contains(&value.len());
    match value.to_str() {
        Ok(text) if visible && values.next().is_none() => Ok(Some(text.to_owned())),
        Ok(_) | Err(_) => Err(Problem::bad_request(
            "an Idempotency-Key must have 1 to 255 visible ASCII characters, and be given once: a \
             uuid, for example",
        )),
    }
}

/// A digest of the parts of a request, which is equal for requests that ask for the same.
pub(crate) fn fingerprint<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut digest = Context::new(&SHA256);
    for part in parts {
        digest.update(&(part.len() as u64).to_be_bytes());
        digest.update(part);
    }
    digest.finish().as_ref().to_vec()
}

/// Marks an answer that is that of an earlier request.
pub(crate) fn mark_replayed(response: &mut Response) {
    response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
}
