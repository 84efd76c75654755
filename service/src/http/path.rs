//! Extractors of what a request names: the typed parts of its path, and its query.

use axum::extract::{FromRequestParts, MatchedPath, Query, RawPathParams};
use axum::http::Uri;
use axum::http::request::Parts;
use serde::de::DeserializeOwned;

use super::problem::{Kind, Problem};
use super::{Api, filter};
use crate::access::KeyId;
use wakeq::control::{ErrorGroupId, OperationId, Quota};
use wakeq::events::BatchName;
use wakeq::limits::LimitName;
use wakeq::order::ObjectKey;
use wakeq::{CanvasId, EventId, Name};
use wakeq_streams::{EntityId, EntityType};

/// The query's parameters. Their types refuse unknown ones.
pub(crate) struct Parameters<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequestParts<Api> for Parameters<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &Api) -> Result<Self, Problem> {
        let gathered = filter::gathered(parts.uri.query().unwrap_or_default());
        let uri = gathered.and_then(|query| Uri::try_from(format!("/?{query}")).ok());
        match Query::<T>::try_from_uri(uri.as_ref().unwrap_or(&parts.uri)) {
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

/// The operation in the path: `{operation}`.
pub(crate) struct OperationPath(pub(crate) OperationId);

impl FromRequestParts<Api> for OperationPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
        let parameters = parameters(parts, api).await?;
        let id = plain(&parameters, "operation", parts).and_then(|text| text.parse().ok());
        id.map(Self)
            .ok_or_else(|| Problem::bad_request("an operation's id is a uuid, as its begin returned it"))
    }
}

/// The error group in the path: `{error_group}`.
pub(crate) struct ErrorGroupPath(pub(crate) ErrorGroupId);

impl FromRequestParts<Api> for ErrorGroupPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
        let parameters = parameters(parts, api).await?;
        let id = plain(&parameters, "error_group", parts).and_then(|text| text.parse().ok());
        id.map(Self)
            .ok_or_else(|| Problem::bad_request("an error group's id is a uuid, as the list of them has it"))
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
    /// The batch in the path: `{batch}`.
    BatchPath(BatchName) = "batch";
    /// The hook in the path: `{hook}`.
    HookPath(Name) = "hook";
    /// The object in the path: `{object}`.
    ObjectPath(ObjectKey) = "object";
    /// The entity type in the path: `{type}`.
    EntityTypePath(EntityType) = "type";
    /// The public part of the key in the path: `{key}`.
    KeyPath(KeyId) = "key";
    /// The quota in the path: `{quota}`.
    QuotaPath(Quota) = "quota";
    /// The limit in the path: `{limit}`.
    LimitPath(LimitName) = "limit";
    /// The queue in the path: `{queue}`.
    QueuePath(Name) = "queue";
    /// The consumer group in the path: `{group}`.
    GroupPath(Name) = "group";
    /// The worker in the path: `{worker}`.
    WorkerPath(Name) = "worker";
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

/// The segment of the path as it was sent, at the place that the route has for this name. It counts
/// from the end: a server that has this API below a path of its own puts that before the route.
fn placed<'a>(parts: &'a Parts, name: &str) -> Option<&'a str> {
    let route = parts.extensions.get::<MatchedPath>()?;
    let is_meant = |segment: &str| {
        segment.strip_prefix('{').and_then(|segment| segment.strip_suffix('}')).is_some_and(|it| it == name)
    };
    let place = route.as_str().rsplit('/').position(is_meant)?;
    parts.uri.path().rsplit('/').nth(place)
}

fn part<'a>(parameters: &'a RawPathParams, name: &str) -> Result<&'a str, Problem> {
    parameters.iter().find(|(key, _)| *key == name).map(|(_, value)| value).ok_or_else(Problem::not_found)
}
