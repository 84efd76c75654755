//! Documents as answers: with the headers that keep what others write from acting in them.

use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use maud::{Markup, html};

use super::layout;
use crate::http::mounted::Root;
use crate::http::problem::Problem;

/// The page's files are its own, and nothing is sent elsewhere.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
                      connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

const OPENER: HeaderName = HeaderName::from_static("cross-origin-opener-policy");
const RESOURCE: HeaderName = HeaderName::from_static("cross-origin-resource-policy");

/// An answer with a document.
pub(super) fn document(status: StatusCode, markup: Markup) -> Response {
    let mut response = (status, Html(markup.into_string())).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("same-origin"));
    headers.insert(header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    headers.insert(OPENER, HeaderValue::from_static("same-origin"));
    headers.insert(RESOURCE, HeaderValue::from_static("same-origin"));
    response
}

/// An answer with a document that says what is wrong. It has the headers of the problem, which is
/// delayed like one.
pub(super) fn refusal(problem: Problem, markup: Markup) -> Response {
    problem.log();
    let (shown, body) = document(problem.kind.status(), markup).into_parts();
    let mut response = problem.into_response();
    response.headers_mut().extend(shown.headers);
    *response.body_mut() = body;
    response
}

/// A problem without a visit: there is no navigation.
pub(super) fn alone(root: &Root, problem: Problem) -> Response {
    let contents = html! {
        h1 { (problem.kind.title()) }
        p role="alert" { (problem.detail()) }
        p { a href=(root.home()) { "Begin" } " at the first page" }
    };
    let markup = layout::bare(root, problem.kind.title(), &contents);
    refusal(problem, markup)
}

/// A page that loads itself again. A browser sends the cookie of the session only from a page of
/// ours, so this comes before everything that a link elsewhere leads to.
pub(super) fn again(root: &Root, path_and_query: &str) -> Response {
    let to = root.path(path_and_query);
    let contents = html! {
        meta http-equiv="refresh" content=(format!("0;url={to}"));
        p { a href=(to) { "Go on to the page" } }
    };
    document(StatusCode::OK, layout::bare(root, "wakeq", &contents))
}
