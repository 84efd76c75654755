//! Requests that no guard sees: for the documentation, and for paths and methods that do not exist.
//! They count for the client's address, as requests without a valid credential do.

use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::Api;
use super::client::Client;
use super::problem::{Kind, Problem};

/// Counts a request, and passes it on.
pub(crate) async fn count(State(api): State<Api>, request: Request, next: Next) -> Response {
    match counted(&api, &request) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

/// The answer to a path that no route has.
pub(crate) async fn no_path(State(api): State<Api>, request: Request) -> Problem {
    let words = "this API has no such path: /docs/ shows those that there are";
    counted(&api, &request).err().unwrap_or_else(|| Problem::new(Kind::NotFound, words))
}

/// Counts a request with a method that its path does not have. The router answers it, with the
/// methods that there are in the header `allow`.
pub(crate) async fn no_method(State(api): State<Api>, request: Request, next: Next) -> Response {
    let client = Client::of(request.extensions());
    let response = next.run(request).await;
    if response.status() != StatusCode::METHOD_NOT_ALLOWED {
        return response;
    }
    api.shares.count_unauthenticated(client).map_or_else(IntoResponse::into_response, |()| response)
}

/// Counts a request for its address, if that has not sent too many.
pub(crate) fn counted(api: &Api, request: &Request) -> Result<(), Problem> {
    api.shares.count_unauthenticated(Client::of(request.extensions()))
}

/// Refuses a request with two `Host` headers (RFC 9112, section 3.2): a proxy and this server might
/// each go by another one.
pub(crate) async fn one_host(request: Request, next: Next) -> Response {
    if request.headers().get_all(header::HOST).iter().count() > 1 {
        return Problem::bad_request("a request has one Host header").into_response();
    }
    next.run(request).await
}
