//! Errors as callers see them: problem details (RFC 9457) with stable types.
//!
//! Messages never repeat a payload or a secret that the caller sent, nor a message of the database.

mod errors;

use std::borrow::Cow;
use std::error::Error;
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

macro_rules! kinds {
    ($($(#[doc = $doc:literal])* $kind:ident $slug:literal $status:ident $title:literal;)*) => {
        /// The types of problems.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Kind {
            $($(#[doc = $doc])* $kind,)*
        }

        impl Kind {
            /// All of them, ordered by status.
            pub(crate) const ALL: &[Self] = &[$(Self::$kind,)*];

            /// The last part of the type.
            pub(crate) fn slug(self) -> &'static str {
                match self { $(Self::$kind => $slug,)* }
            }

            /// Its HTTP status.
            pub(crate) fn status(self) -> StatusCode {
                match self { $(Self::$kind => StatusCode::$status,)* }
            }

            pub(crate) fn title(self) -> &'static str {
                match self { $(Self::$kind => $title,)* }
            }
        }
    };
}

kinds! {
    /// The request itself is wrong and has to be changed.
    BadRequest "bad-request" BAD_REQUEST "The request is not valid";
    /// No valid credential.
    Unauthenticated "unauthenticated" UNAUTHORIZED "A valid credential is required";
    /// The credential does not allow it.
    Forbidden "forbidden" FORBIDDEN "The credential does not allow this";
    /// It does not exist, or is on a canvas on which the credential has no grants.
    NotFound "not-found" NOT_FOUND "Not found";
    /// The resource does not have this method.
    MethodNotAllowed "method-not-allowed" METHOD_NOT_ALLOWED "Method not allowed";
    /// The request arrived too slowly.
    Timeout "timeout" REQUEST_TIMEOUT "The request took too long to arrive";
    /// The event is running.
    NotWaiting "not-waiting" CONFLICT "The event is not waiting";
    /// The chosen id belongs to another event.
    IdTaken "id-taken" CONFLICT "The id is taken";
    /// The first request with this key is still in progress.
    IdempotencyInProgress "idempotency-in-progress" CONFLICT "A request with this Idempotency-Key is in progress";
    /// The caller has to remove an obstacle first.
    Conflict "conflict" CONFLICT "The request conflicts with the current state";
    /// A stream of the log is not in the expected state.
    ConditionFailed "condition-failed" CONFLICT "The expected condition does not hold";
    /// The lease of a copy is over.
    LeaseOver "lease-over" GONE "The lease is over";
    /// It exceeds the size limit.
    TooLarge "too-large" PAYLOAD_TOO_LARGE "The request is too large";
    /// The content type is not supported.
    UnsupportedMediaType "unsupported-media-type" UNSUPPORTED_MEDIA_TYPE "The content type is not supported";
    /// The canvas has reached a quota whose use does not shrink by itself.
    QuotaReached "quota-reached" CONFLICT "The canvas has reached a quota";
    /// The key was used for another request.
    IdempotencyMismatch "idempotency-mismatch" UNPROCESSABLE_ENTITY "The Idempotency-Key was used for another request";
    /// The process, or the caller's share of it, has reached a limit on requests.
    TooManyRequests "too-many-requests" TOO_MANY_REQUESTS "Too many requests";
    /// The canvas has reached a quota whose use shrinks as work is done.
    QuotaExceeded "quota-exceeded" TOO_MANY_REQUESTS "The canvas has reached a quota for unfinished work";
    /// A limit that the event names is at its `waiting_max`.
    LimitReached "limit-reached" TOO_MANY_REQUESTS "Too many events wait for a limit";
    /// A bug in the service.
    Internal "internal" INTERNAL_SERVER_ERROR "Internal error";
    /// Something that the service needs is unavailable.
    Unavailable "unavailable" SERVICE_UNAVAILABLE "The service is unavailable";
}

/// A problem to be reported to the caller.
#[derive(Clone, Debug)]
pub(crate) struct Problem {
    pub(crate) kind: Kind,
    detail: Cow<'static, str>,
    /// The value of `retry-after`, for problems that pass with time.
    retry_after_s: u64,
    /// Whether to delay the answer, because clients that are refused at once retry at once.
    delayed: bool,
    /// The part that is unavailable, to be logged.
    unavailable: Option<&'static str>,
    /// The error behind it: for the log, and for the operator of a command.
    cause: Option<Cause>,
}

/// The documentation, as details name it: from the root of the API.
pub(super) const DOCS: &str = "/docs";

/// The answer of most handlers: JSON, or a problem.
pub(crate) type Answer<T> = Result<Json<T>, Problem>;

/// An error that several places hold.
pub(crate) type Cause = Arc<dyn Error + Send + Sync>;

/// An error in words alone.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Words(pub(crate) String);

/// A problem as `application/problem+json` (RFC 9457).
#[derive(Serialize, ToSchema)]
#[schema(as = Problem)]
pub(crate) struct Details<'a> {
    /// `urn:wakeq:problem:` and the stable name of the type.
    #[serde(rename = "type")]
    #[schema(example = "urn:wakeq:problem:not-found")]
    kind: String,
    /// The same for every problem of a type.
    title: &'static str,
    /// The HTTP status.
    #[schema(example = 404, minimum = 400, maximum = 599)]
    status: u16,
    /// What is wrong in this case, and what to do.
    detail: &'a str,
    /// The request's id, as in the `x-request-id` header.
    request_id: &'a str,
}

impl Problem {
    pub(crate) fn new(kind: Kind, detail: impl Into<Cow<'static, str>>) -> Self {
        Self { kind, detail: detail.into(), retry_after_s: 1, delayed: false, unavailable: None, cause: None }
    }

    /// Keeps the error behind it.
    pub(crate) fn because(self, cause: impl Error + Send + Sync + 'static) -> Self {
        self.because_of(Arc::new(cause))
    }

    pub(crate) fn because_of(self, cause: Cause) -> Self {
        Self { cause: Some(cause), ..self }
    }

    pub(crate) fn cause(&self) -> Option<&Cause> {
        self.cause.as_ref()
    }

    pub(crate) fn detail(&self) -> &str {
        &self.detail
    }

    /// Sets how long to wait, rounded up to whole seconds, at least one.
    pub(crate) fn retry_after(self, wait: Duration) -> Self {
        let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        Self { retry_after_s: seconds.max(1), ..self }
    }

    /// Delays the answer: a client that exceeded its share is likely to retry at once.
    pub(crate) fn delayed(self) -> Self {
        Self { delayed: true, ..self }
    }

    pub(crate) fn is_delayed(&self) -> bool {
        self.delayed
    }

    pub(crate) fn bad_request(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Kind::BadRequest, detail)
    }

    /// The request is wrong, as this error says.
    pub(crate) fn invalid(error: impl Display) -> Self {
        Self::bad_request(error.to_string())
    }

    /// The same answer for things that do not exist and for those that the caller may not know of.
    pub(crate) fn not_found() -> Self {
        Self::new(
            Kind::NotFound,
            "no such resource on this canvas, or none that this credential has access to",
        )
    }

    /// Like [`Self::not_found`]; the operator of a command, who may know everything, learns more.
    pub(crate) fn missing(what: String) -> Self {
        Self::not_found().because(Words(what))
    }

    /// A bug: logged with all details, reported without any.
    pub(crate) fn internal() -> Self {
        Self::new(Kind::Internal, "a bug in the service; its log has the details under this request id")
    }

    /// Something is unavailable: logged with all details, reported in general terms.
    pub(crate) fn unavailable(what: &'static str) -> Self {
        let problem = Self::new(Kind::Unavailable, format!("{what} is unavailable: try again"));
        Self { unavailable: Some(what), ..problem }
    }

    /// The same where the documentation is at another path.
    pub(super) fn below(self, docs: &str) -> Self {
        let detail = self.detail.replace(DOCS, docs);
        Self { detail: detail.into(), ..self }
    }

    /// Logs what the answer does not say.
    pub(crate) fn log(&self) {
        let Some(cause) = &self.cause else { return };
        let error: &(dyn Error + 'static) = cause.as_ref();
        if let Some(what) = self.unavailable {
            tracing::warn!(error, what, "a request failed because something is unavailable");
        } else if self.kind == Kind::Internal {
            tracing::error!(error, "a request failed because of a bug in wakeq");
        }
    }

    /// The error occurred after the change was made; a worker does the rest.
    fn after_the_change(self) -> Self {
        let detail = format!(
            "the change was made, but waking the events was interrupted, and a worker continues \
             within a minute: {}",
            self.detail
        );
        Self { detail: detail.into(), ..self }
    }

    /// The problem for a bare status that none of our handlers set.
    pub(crate) fn of_status(status: StatusCode) -> Self {
        let kind = Kind::ALL.iter().copied().find(|kind| kind.status() == status);
        match kind {
            Some(Kind::NotFound) => Self::not_found(),
            Some(kind) => Self::new(kind, "see the documentation of this service at /docs"),
            None if status.is_server_error() => {
                Self::new(Kind::Internal, "a bug in the service; its log has the details")
            }
            None => Self::bad_request("see the documentation of this service at /docs"),
        }
    }

    /// The body, for the request with this id.
    pub(crate) fn details<'a>(&'a self, request_id: &'a str) -> Details<'a> {
        Details {
            kind: format!("urn:wakeq:problem:{}", self.kind.slug()),
            title: self.kind.title(),
            status: self.kind.status().as_u16(),
            detail: &self.detail,
            request_id,
        }
    }
}

/// Without a body: the outermost layer writes it, since it knows the request's id.
impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = self.kind.status().into_response();
        let headers = response.headers_mut();
        match self.kind {
            Kind::Unauthenticated => {
                headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"wakeq\""));
            }
            Kind::TooManyRequests | Kind::Unavailable | Kind::IdempotencyInProgress => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from(self.retry_after_s));
            }
            Kind::QuotaExceeded | Kind::LimitReached => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from_static("10"));
            }
            // The rest of the request is not read.
            Kind::TooLarge | Kind::Timeout => {
                headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            Kind::BadRequest
            | Kind::Forbidden
            | Kind::NotFound
            | Kind::MethodNotAllowed
            | Kind::NotWaiting
            | Kind::IdTaken
            | Kind::Conflict
            | Kind::ConditionFailed
            | Kind::LeaseOver
            | Kind::QuotaReached
            | Kind::UnsupportedMediaType
            | Kind::IdempotencyMismatch
            | Kind::Internal => {}
        }
        response.extensions_mut().insert(self);
        response
    }
}

#[cfg(test)]
mod tests {
    use wakeq::{AdminError, StoreError};

    use super::*;

    #[test]
    fn every_type_is_documented() {
        let document = include_str!("../../../docs/http.md");
        let rows = document.lines().filter_map(|line| line.strip_prefix("| `"));
        let rows: Vec<_> =
            rows.filter(|row| row.split(" | ").count() == 3).map(|row| row.split(" | ")).collect();
        for kind in Kind::ALL {
            let (slug, status) = (format!("{}`", kind.slug()), kind.status().as_u16().to_string());
            let found = rows.iter().filter(|row| {
                let mut cells = (*row).clone();
                cells.next() == Some(&slug) && cells.next() == Some(&status)
            });
            assert_eq!(found.count(), 1, "docs/http.md has to list `{}` with its status", kind.slug());
        }
        let types =
            rows.iter().filter(|row| (*row).clone().nth(1).is_some_and(|cell| cell.parse::<u16>().is_ok()));
        assert_eq!(types.count(), Kind::ALL.len(), "docs/http.md lists a type that there is not");
    }

    /// The caller that lifted a rule must not look for the fault in Pub/Sub if it was the database,
    /// nor believe that nothing was changed.
    #[test]
    fn a_database_that_fails_while_waking_is_named_and_the_change_is_made() {
        let slow =
            StoreError::TimedOut { statement: "wake", after: std::time::Duration::from_secs(6), ended: true };
        for (error, kind) in [(slow, Kind::Unavailable), (StoreError::Defect, Kind::Internal)] {
            let problem = Problem::from(AdminError::Wake(error.into()));
            assert_eq!(problem.kind, kind);
            assert!(problem.detail.starts_with("the change was made"), "{}", problem.detail);
            assert!(!problem.detail.contains("Pub/Sub"), "{}", problem.detail);
        }
    }

    #[test]
    fn every_error_status_has_a_problem_type() {
        for status in (400..600).filter_map(|status| StatusCode::from_u16(status).ok()) {
            let problem = Problem::of_status(status);
            assert_eq!(problem.kind.status().is_server_error(), status.is_server_error(), "{status}");
        }
    }
}
