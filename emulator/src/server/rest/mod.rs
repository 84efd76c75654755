//! The services over REST: every route in the protos, with JSON requests and responses.
//!
//! It knows no method: a route yields a method's name and a request in JSON, and `calls` does the
//! rest.

mod answer;
mod body;
mod query;
mod request;
mod template;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, Request, Response, StatusCode};
use tonic::Code;

use self::answer::Form;
use self::query::Query;
use self::template::{Bound, Template};
use super::calls::{Calls, PullGuard};
use crate::broker::{Answer, Refusal};
use crate::proto::{ROUTES, Route};

const PULL: &str = "google.pubsub.v1.Subscriber/Pull";

/// Routes of the service that are missing in its protos.
const MORE_ROUTES: &[Route] = &[Route {
    verb: "GET",
    template: "/v1/{resource=**}:getIamPolicy",
    body: "",
    method: "google.iam.v1.IAMPolicy/GetIamPolicy",
}];

#[derive(Clone)]
struct Rest {
    calls: Calls,
    templates: Arc<[Template]>,
}

/// Takes every request that no other route of the port takes.
pub(super) fn routes(calls: &Calls) -> Router {
    let mut templates: Vec<Template> = ROUTES.iter().chain(MORE_ROUTES).map(Template::parse).collect();
    // `{name}:verb` before `{name}`, which would take the verb for a part of the name.
    templates.sort_by_key(|template| !template.has_verb());
    let rest = Rest { calls: calls.clone(), templates: templates.into() };
    Router::new().fallback(answer).with_state(rest)
}

/// The response to a request that was refused before it reached a method.
pub(super) fn refused(refusal: Refusal) -> Response<Body> {
    Form::default().refused(refusal)
}

/// The HTTP status of a code.
pub(super) fn status_of(code: Code) -> StatusCode {
    answer::names(code).0
}

/// A code's name, as JSON has it.
pub(super) fn name_of(code: Code) -> &'static str {
    answer::names(code).1
}

async fn answer(State(rest): State<Rest>, request: Request<Body>) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let query = Query::parse(parts.uri.query().unwrap_or_default());
    let form = match Form::of(&query) {
        Ok(form) => form,
        Err(refusal) => return refused(refusal),
    };
    let path = parts.uri.path();
    let bound = rest.templates.iter().find_map(|template| template.bind(parts.method.as_str(), path));
    let Some(bound) = bound else {
        return form.no_such_route(&parts.method, path);
    };
    match rest.call(&bound, &query, &parts.headers, body).await {
        Err(refusal) => form.refused(refusal),
        Ok((value, pull_guard)) => {
            let mut response = form.answered(value);
            if let Some(pull_guard) = pull_guard {
                response.extensions_mut().insert(pull_guard);
            }
            response
        }
    }
}

impl Rest {
    async fn call(
        &self,
        bound: &Bound<'_>,
        query: &Query,
        headers: &HeaderMap,
        body: Body,
    ) -> Answer<(serde_json::Value, Option<PullGuard>)> {
        let body = body::read(headers, body).await?;
        let request = request::assemble(bound, query, &body)?;
        let method = bound.route.method;
        if method == PULL {
            let (value, pull_guard) = self.calls.pull_json(request, timeout(headers)).await?;
            return Ok((value, Some(pull_guard)));
        }
        Ok((self.calls.json(method, request).await?, None))
    }
}

/// How long Google's REST clients declare that they will wait, in seconds.
fn timeout(headers: &HeaderMap) -> Option<Duration> {
    let seconds: f64 = headers.get("x-server-timeout")?.to_str().ok()?.parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}
