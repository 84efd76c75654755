//! Extractors: bodies within their limits of size and time, and typed queries and paths.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{FromRequest, FromRequestParts, MatchedPath, Query, RawPathParams, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::de::DeserializeOwned;

use super::Api;
use super::bytes::ByteReservation;
use super::caller::Caller;
use super::limits::Slot;
use super::problem::{Kind, Problem};
use super::shares::LimitKey;
use crate::access::KeyId;
use wakeq::control::Quota;
use wakeq::order::ObjectKey;
use wakeq::{CanvasId, EventId, Name};
use wakeq_streams::{EntityId, EntityType};

/// A complete body, within the limits of size and time.
pub(crate) struct CompleteBody(pub(crate) Bytes);

impl FromRequest<Api> for CompleteBody {
    type Rejection = Problem;

    async fn from_request(request: Request, api: &Api) -> Result<Self, Problem> {
        let limit = api.limits.body_bytes;
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
        let limit_keys = request.extensions().get().map(|caller: &Caller| Arc::clone(&caller.limit_keys));
        let limit_keys = limit_keys.unwrap_or_else(|| [LimitKey::Pushes].into());
        let mut reservation = api.limits.bodies.begin(&limit_keys);
        let reading =
            collect(Limited::new(request.into_body(), limit), announced.unwrap_or(limit), &mut reservation);
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
        // The announced length was counted by the guard.
        if announced.is_none() {
            api.shares.charge_bytes(&limit_keys, bytes.len() as u64);
        }
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
) -> Result<Bytes, BodyError> {
    let mut body = std::pin::pin!(body);
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(BodyError::Read)?.into_data() else { continue };
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

/// The query's parameters. Their types refuse unknown ones.
pub(crate) struct Parameters<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequestParts<Api> for Parameters<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &Api) -> Result<Self, Problem> {
        match Query::<T>::try_from_uri(&parts.uri) {
            Ok(Query(parameters)) => Ok(Self(parameters)),
            Err(_) => Err(Problem::bad_request(
                "a query parameter is unknown, missing, repeated or of the wrong type: see /docs",
            )),
        }
    }
}

/// The handler in the path: `{module}` and `{name}`.
pub(crate) struct HandlerPath {
    pub(crate) module: Name,
    pub(crate) name: Name,
}

impl FromRequestParts<Api> for HandlerPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
        let parameters = parameters(parts, api).await?;
        Ok(Self { module: part(&parameters, "module")?.parse()?, name: part(&parameters, "name")?.parse()? })
    }
}

/// The handler address in the path: `{module}`, `{name}` and, if the path has it, `{modifier}`.
pub(crate) struct AddressPath {
    pub(crate) handler: HandlerPath,
    pub(crate) modifier: Name,
}

impl FromRequestParts<Api> for AddressPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
        let handler = HandlerPath::from_request_parts(parts, api).await?;
        let parameters = parameters(parts, api).await?;
        let modifier =
            parameters.iter().find(|(key, _)| *key == "modifier").map(|(_, value)| value.parse::<Name>());
        Ok(Self { handler, modifier: modifier.transpose()?.unwrap_or_else(Name::no_modifier) })
    }
}

/// The event in the path: `{id}`.
pub(crate) struct EventPath(pub(crate) EventId);

impl FromRequestParts<Api> for EventPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
        let parameters = parameters(parts, api).await?;
        let id = plain(&parameters, "id", parts).and_then(|text| text.parse().ok());
        id.map(Self).ok_or_else(|| Problem::bad_request("an event's id is a uuid, as its emit returned it"))
    }
}

/// Defines extractors, each of one part of the path.
macro_rules! path_parts {
    ($($(#[doc = $words:literal])* $extractor:ident($part:ty) = $name:literal;)*) => {$(
        $(#[doc = $words])*
        pub(crate) struct $extractor(pub(crate) $part);

        impl FromRequestParts<Api> for $extractor {
            type Rejection = Problem;

            async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
                part(&parameters(parts, api).await?, $name)?.parse().map(Self).map_err(Problem::invalid)
            }
        }
    )*};
}

path_parts! {
    /// The cron in the path: `{cron}`.
    CronPath(Name) = "cron";
    /// The object in the path: `{object}`.
    ObjectPath(ObjectKey) = "object";
    /// The entity type in the path: `{type}`.
    EntityTypePath(EntityType) = "type";
    /// The public part of the key in the path: `{key}`.
    KeyPath(KeyId) = "key";
    /// The quota in the path: `{quota}`.
    QuotaPath(Quota) = "quota";
    /// The queue in the path: `{queue}`.
    QueuePath(Name) = "queue";
    /// The consumer group in the path: `{group}`.
    GroupPath(Name) = "group";
}

/// The entity in the path: `{type}` and `{entity}`, without its canvas.
pub(crate) struct EntityPath(pub(crate) EntityOf);

/// An entity without its canvas.
pub(crate) struct EntityOf(EntityId);

impl EntityOf {
    pub(crate) fn on(self, canvas: CanvasId) -> EntityId {
        EntityId { canvas, ..self.0 }
    }
}

impl FromRequestParts<Api> for EntityPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
        let parameters = parameters(parts, api).await?;
        let (entity_type, id) = (part(&parameters, "type")?, part(&parameters, "entity")?);
        let entity = EntityId::new(CanvasId::DEFAULT, entity_type, id).map_err(Problem::invalid)?;
        Ok(Self(EntityOf(entity)))
    }
}

/// The canvas in the path: `{canvas}`. `None` if it is malformed or reserved.
pub(crate) async fn canvas(parts: &mut Parts, api: &Api) -> Option<CanvasId> {
    any_canvas(parts, api).await.filter(|canvas| !canvas.is_reserved())
}

/// The same, even if it is reserved.
pub(crate) async fn any_canvas(parts: &mut Parts, api: &Api) -> Option<CanvasId> {
    let parameters = parameters(parts, api).await.ok()?;
    plain(&parameters, "canvas", parts)?.parse().ok()
}

/// The answer where [`canvas`] finds none: a reserved one is as if it did not exist.
pub(crate) fn no_canvas(parts: &Parts) -> Problem {
    match placed(parts, "canvas") {
        Some(text) if is_plain_uuid(text) && text.parse::<CanvasId>().is_ok() => Problem::not_found(),
        Some(_) | None => Problem::new(
            Kind::NotFound,
            "the canvas in the path is not a uuid: write all of its 36 characters, in lower case and \
             not percent-encoded",
        ),
    }
}

/// The canvas in the path of a facet or of a quota.
pub(crate) struct FacetPath(pub(crate) CanvasId);

impl FromRequestParts<Api> for FacetPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
        canvas(parts, api).await.map(Self).ok_or_else(|| {
            Problem::bad_request("a canvas is a uuid, except the largest one, which is reserved")
        })
    }
}

async fn parameters(parts: &mut Parts, api: &Api) -> Result<RawPathParams, Problem> {
    RawPathParams::from_request_parts(parts, api)
        .await
        .map_err(|_| Problem::bad_request("the path is not percent-encoded UTF-8"))
}

/// The uuid that the path has under this name, in its canonical form and not percent-encoded, so
/// that a proxy's rules see the same path.
fn plain<'a>(parameters: &'a RawPathParams, name: &str, parts: &Parts) -> Option<&'a str> {
    let text = part(parameters, name).ok()?;
    (is_plain_uuid(text) && placed(parts, name) == Some(text)).then_some(text)
}

fn is_plain_uuid(text: &str) -> bool {
    text.len() == 36 && !text.bytes().any(|byte| byte.is_ascii_uppercase())
}

/// The segment of the path as it was sent, at the place that the route has for this name.
fn placed<'a>(parts: &'a Parts, name: &str) -> Option<&'a str> {
    let route = parts.extensions.get::<MatchedPath>()?;
    let is_meant = |segment: &str| {
        segment.strip_prefix('{').and_then(|segment| segment.strip_suffix('}')).is_some_and(|it| it == name)
    };
    let place = route.as_str().split('/').position(is_meant)?;
    parts.uri.path().split('/').nth(place)
}

fn part<'a>(parameters: &'a RawPathParams, name: &str) -> Result<&'a str, Problem> {
    parameters.iter().find(|(key, _)| *key == name).map(|(_, value)| value).ok_or_else(Problem::not_found)
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
