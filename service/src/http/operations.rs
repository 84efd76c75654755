//! The operations of a route as the OpenAPI document declares them, and what they accept: a query
//! parameter that an operation does not declare, or an `Idempotency-Key` that it does not honour,
//! is refused rather than ignored, so that no caller relies on an effect that it does not have.

use std::borrow::Cow;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderName, Method};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use url::form_urlencoded;
use utoipa::openapi::path::{Operation, ParameterIn, PathItem, Paths};
use utoipa::openapi::{RefOr, ResponseBuilder};
use utoipa_axum::router::{UtoipaMethodRouter, UtoipaMethodRouterExt};

use super::Api;
use super::problem::Problem;

/// The header of a request that may be repeated without a second effect.
pub(crate) const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// The operations of a route, by method.
#[derive(Clone)]
pub(super) struct Operations(Arc<[Declared]>);

/// The description of an operation in the document.
struct Declared {
    method: Method,
    /// Its name in the document, and so in the audit log.
    action: Arc<str>,
    /// The names of its query parameters.
    query: Vec<String>,
    honours_key: bool,
    has_body: bool,
}

impl Operations {
    pub(super) fn of(paths: &Paths) -> Self {
        Self(paths.paths.values().flat_map(of_path).collect())
    }

    /// The operation's name in the OpenAPI document and the audit log.
    pub(super) fn action(&self, method: &Method) -> Arc<str> {
        self.find(method).map_or_else(|| "call".into(), |declared| Arc::clone(&declared.action))
    }

    /// Checks that the operation declares what the request sends beside path and body.
    pub(super) fn accept(&self, parts: &Parts) -> Result<(), Problem> {
        let Some(declared) = self.find(&parts.method) else { return Ok(()) };
        declared.accept_query(parts.uri.query().unwrap_or_default())?;
        if !declared.honours_key && !parts.method.is_safe() && parts.headers.contains_key(IDEMPOTENCY_KEY) {
            return Err(Problem::bad_request(
                "this request does not honour an Idempotency-Key, and nothing was done: send it \
                 without one, and see docs/http.md for how it can be repeated",
            ));
        }
        Ok(())
    }

    fn find(&self, method: &Method) -> Option<&Declared> {
        let method = if method == Method::HEAD { &Method::GET } else { method };
        self.0.iter().find(|declared| declared.method == method)
    }
}

fn of_path(item: &PathItem) -> impl Iterator<Item = Declared> + use<> {
    let declared = [
        (Method::GET, &item.get),
        (Method::PUT, &item.put),
        (Method::POST, &item.post),
        (Method::DELETE, &item.delete),
    ]
    .map(|(method, operation)| Declared::of(method, operation.as_ref()?));
    declared.into_iter().flatten()
}

impl Declared {
    fn of(method: Method, operation: &Operation) -> Option<Self> {
        let action = operation.operation_id.as_deref()?.into();
        let parameters = operation.parameters.iter().flatten();
        let named = |within: ParameterIn| {
            let parameters = parameters.clone().filter_map(|parameter| match parameter {
                RefOr::T(parameter) => Some(parameter),
                RefOr::Ref(_) => None,
            });
            parameters
                .filter(move |parameter| parameter.parameter_in == within)
                .map(|found| found.name.clone())
        };
        let honours_key = named(ParameterIn::Header).any(|name| IDEMPOTENCY_KEY == name.as_str());
        let (query, has_body) = (named(ParameterIn::Query).collect(), operation.request_body.is_some());
        Some(Self { method, action, query, honours_key, has_body })
    }

    /// The words name what is accepted, and never what was sent.
    fn accept_query(&self, query: &str) -> Result<(), Problem> {
        let is_known = |name: Cow<'_, str>| self.query.iter().any(|known| *known == name);
        if form_urlencoded::parse(query.as_bytes()).all(|(name, _)| is_known(name)) {
            return Ok(());
        }
        let names: Vec<_> = self.query.iter().map(|name| format!("`{name}`")).collect();
        Err(Problem::bad_request(match (names.as_slice(), self.has_body) {
            ([], true) => "this accepts no query: everything belongs in the body".to_owned(),
            ([], false) => "this accepts no query parameters".to_owned(),
            (names, _) => format!("a query parameter is unknown: this accepts {}", names.join(", ")),
        }))
    }
}

/// A route without a guard, which accepts what it declares, and documents that.
pub(crate) fn strict((schemas, mut paths, methods): UtoipaMethodRouter<Api>) -> UtoipaMethodRouter<Api> {
    for item in paths.paths.values_mut() {
        for operation in [&mut item.get, &mut item.post].into_iter().flatten() {
            let refused = ResponseBuilder::new().description("The request is not valid").build();
            operation.responses.responses.entry("400".to_owned()).or_insert(RefOr::T(refused));
        }
    }
    let layer = from_fn_with_state(Operations::of(&paths), admit);
    let routes: UtoipaMethodRouter<Api> = (schemas, paths, methods);
    routes.map(|methods| methods.route_layer(layer))
}

async fn admit(State(operations): State<Operations>, request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    match operations.accept(&parts) {
        Ok(()) => next.run(Request::from_parts(parts, body)).await,
        Err(problem) => problem.into_response(),
    }
}
