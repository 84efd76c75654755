//! Extractors of bodies, within their limits of size and time.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::de::DeserializeOwned;

use super::Api;
use super::bytes::ByteReservation;
use super::caller::Caller;
use super::problem::{Kind, Problem};
use super::shares::{LimitKey, Unverified};
use super::slots::Slot;

/// A complete body, within the limits of size and time.
pub(crate) struct CompleteBody(pub(crate) Bytes);

impl FromRequest<Api> for CompleteBody {
    type Rejection = Problem;

    async fn from_request(request: Request, api: &Api) -> Result<Self, Problem> {
        Self::read(request, api, api.limits.body_bytes).await
    }
}

impl CompleteBody {
    /// Reads a body of at most `limit` bytes.
    pub(crate) async fn read(request: Request, api: &Api, limit: usize) -> Result<Self, Problem> {
        let too_large = || {
            Problem::new(
                Kind::TooLarge,
                format!("the body is larger than {limit} bytes: send less at a time"),
            )
        };
        let encoding = request.headers().get(header::CONTENT_ENCODING);
        if encoding.is_some_and(|encoding| !encoding.as_bytes().eq_ignore_ascii_case(b"identity")) {
            return Err(Problem::new(Kind::UnsupportedMediaType, "send the body without a content-encoding"));
        }
        let announced = announced(request.headers());
        let announced = announced.map(|length| usize::try_from(length).unwrap_or(usize::MAX));
        if announced.is_some_and(|length| length > limit) {
            return Err(too_large());
        }
        let slot = request.extensions().get::<Arc<Slot>>().cloned();
        slot.iter().for_each(|slot| slot.release());
        let caller = request.extensions().get().map(|caller: &Caller| Arc::clone(&caller.limit_keys));
        let sender = || request.extensions().get().map(|Unverified(limit_keys)| Arc::clone(limit_keys));
        let limit_keys = caller.or_else(sender).unwrap_or_else(|| [LimitKey::Pushes].into());
        let mut reservation = api.limits.bodies.begin(&limit_keys);
        // An announced length was counted before. Others are as they arrive, even if they fail.
        let charge = |bytes: usize| {
            if announced.is_none() {
                api.shares.charge_bytes(&limit_keys, bytes as u64);
            }
        };
        let body = Limited::new(request.into_body(), limit);
        let reading = collect(body, announced.unwrap_or(limit), &mut reservation, charge);
        let bytes = match within(api.limits.body_time, reading).await? {
            Ok(bytes) => bytes,
            Err(BodyError::OverBudget(key)) => {
                let words = format!(
                    "{key} sends more than this process can hold together with what others send: \
                     try again"
                );
                return Err(Problem::new(Kind::TooManyRequests, words));
            }
            Err(BodyError::Read(error)) if error.is::<LengthLimitError>() => return Err(too_large()),
            Err(BodyError::Read(_)) => {
                let words = "the body ended too early, or is not encoded as its header says";
                return Err(Problem::bad_request(words));
            }
        };
        slot.iter().try_for_each(|slot| slot.acquire())?;
        if let Some(slot) = slot {
            slot.hold_body(reservation);
        }
        Ok(Self(bytes))
    }
}

/// The body length that the headers announce.
pub(crate) fn announced(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Why a body could not be read completely.
enum BodyError {
    OverBudget(LimitKey),
    Read(axum::BoxError),
}

/// Reads a body of at most `most` bytes, counting them as they arrive.
async fn collect(
    body: Limited<Body>,
    most: usize,
    reservation: &mut ByteReservation,
    charge: impl Fn(usize),
) -> Result<Bytes, BodyError> {
    let mut body = std::pin::pin!(body);
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(BodyError::Read)?.into_data() else { continue };
        charge(data.len());
        reservation.add(data.len()).map_err(BodyError::OverBudget)?;
        // Doubles the capacity, but never beyond the expected length.
        if bytes.capacity() - bytes.len() < data.len() {
            let missing = most.saturating_sub(bytes.len());
            bytes.reserve_exact(bytes.len().min(missing).max(data.len()));
        }
        bytes.extend_from_slice(&data);
    }
    Ok(bytes.into())
}

async fn within<F: Future>(limit: Duration, reading: F) -> Result<F::Output, Problem> {
    tokio::time::timeout(limit, reading).await.map_err(|_| {
        Problem::new(Kind::Timeout, format!("the body did not arrive within {} s", limit.as_secs()))
    })
}

/// A JSON object of a known shape. An empty body is an empty object.
pub(crate) struct Json<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequest<Api> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, api: &Api) -> Result<Self, Problem> {
        let is_json = is_json(request.headers());
        let CompleteBody(bytes) = CompleteBody::from_request(request, api).await?;
        if bytes.is_empty() {
            return read(b"{}").map(Self);
        }
        if !is_json {
            return Err(Problem::new(Kind::UnsupportedMediaType, "send `content-type: application/json`"));
        }
        // Otherwise serde would accept an array as the fields in their order.
        if bytes.trim_ascii_start().first().is_some_and(|first| *first != b'{') {
            return Err(Problem::bad_request("the body is not a JSON object: see /docs for the schema"));
        }
        read(&bytes).map(Self)
    }
}

/// Whether the headers declare a JSON body.
fn is_json(headers: &HeaderMap) -> bool {
    let text = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = text.split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case("application/json")
}

/// Parses JSON. Only those parts of the parser's messages are repeated that are our own: others may
/// quote the body.
pub(crate) fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    serde_json::from_slice(bytes).map_err(|error| {
        let place = format!("line {}, column {}", error.line(), error.column());
        Problem::bad_request(match error.classify() {
            serde_json::error::Category::Data => {
                format!("{} before {place}: see /docs for the schema", mistake(&error.to_string()))
            }
            serde_json::error::Category::Io
            | serde_json::error::Category::Syntax
            | serde_json::error::Category::Eof => format!("the body is not JSON at {place}"),
        })
    })
}

/// Describes what is wrong with a field without quoting the body: all names in the message are
/// those of our types.
fn mistake(words: &str) -> String {
    let words = words.rsplit_once(" at line ").map_or(words, |(words, _)| words);
    match (words.split_once(" `").map_or(words, |(kind, _)| kind), expected_names(words)) {
        ("missing field", _) => {
            format!("the field {} is missing", words.trim_start_matches("missing field "))
        }
        ("unknown field", Some(names)) => {
            format!("a field is unknown: the fields are {names}; the unknown one is")
        }
        ("unknown variant", Some(names)) => format!("a value is none of {names}"),
        ("unknown field" | "unknown variant", None) => "a field is unknown".to_owned(),
        ("duplicate field", _) => "a field is given twice".to_owned(),
        (kind, _) if kind.starts_with("invalid type: ") => "a field is of the wrong type".to_owned(),
        (kind, _) if kind.starts_with("invalid value: ") => {
            "a field has a value that is not allowed".to_owned()
        }
        (_, _) => "a field is unknown, missing or of the wrong type".to_owned(),
    }
}

/// The message quotes the input first and our names last, and no name of ours contains this
/// separator.
fn expected_names(words: &str) -> Option<&str> {
    let (_, names) = words.rsplit_once(", expected ")?;
    let has_none = words.ends_with(", there are no fields") || words.ends_with(", there are no variants");
    (!has_none).then(|| names.trim_start_matches("one of "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Empty {}

    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code, reason = "what is read is not looked at")]
    struct One {
        name: String,
    }

    /// The input may imitate the parser's own messages.
    #[test]
    fn json_errors_name_the_mistake_without_repeating_input() {
        let of = |error: serde_json::Error| mistake(&error.to_string());
        let one = |json: &str| of(serde_json::from_str::<One>(json).unwrap_err());
        assert_eq!(one("{}"), "the field `name` is missing");
        assert_eq!(
            one(r#"{"x`, expected `s3cr3t": 1}"#),
            "a field is unknown: the fields are `name`; the unknown one is"
        );
        assert_eq!(one(r#"{"name": ["missing field `s3cr3t"]}"#), "a field is of the wrong type");
        assert_eq!(one(r#"{"name": "a", "name": "b"}"#), "a field is given twice");
        let empty = serde_json::from_str::<Empty>(r#"{"x, expected `s3cr3t": 1}"#).unwrap_err();
        assert_eq!(of(empty), "a field is unknown");
        let custom = <serde_json::Error as serde::de::Error>::custom("s3cr3t, expected s3cr3t");
        assert_eq!(of(custom), "a field is unknown, missing or of the wrong type");
    }
}
