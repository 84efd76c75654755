//! Who sends a request for a page: a person with a session, a person whom Google's proxy vouches
//! for, or a stranger; and what is answered where there is no page, whoever asks.

use axum::extract::{Request, State};
use axum::http::{Extensions, HeaderMap, HeaderName, Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::cookies::Cookie;
use super::document::alone;
use super::state::Page;
use crate::access::{Browser, Principal, SignIn, Unauthenticated};
use crate::http::client::Client;
use crate::http::mounted::Root;
use crate::http::problem::{Kind, Problem};
use crate::http::strangers;
use crate::http::visitors::Visitor;

const SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// Google's identity-aware proxy puts this in, and removes what a client has sent.
const ASSERTION: HeaderName = HeaderName::from_static("x-goog-iap-jwt-assertion");

/// The person who sends a request. A session, which somebody has chosen to open, counts before the
/// word of a proxy.
pub(super) async fn person(
    page: &Page,
    root: &Root,
    headers: &HeaderMap,
) -> Result<(SignIn, Principal), Unauthenticated> {
    let access = &page.api.access;
    let by_session = match Cookie::Session.of(root, headers) {
        Some(token) => access.resume(&token).await,
        None => Err(Unauthenticated::Missing),
    };
    let mut assertions = headers.get_all(ASSERTION).iter();
    match (by_session, assertions.next(), assertions.next()) {
        (Err(refused), Some(assertion), None) if access.trusts_proxy() && !is_unavailable(&refused) => {
            access.by_assertion(assertion.to_str().unwrap_or_default()).await
        }
        (known, ..) => known,
    }
}

pub(super) fn is_unavailable(refused: &Unauthenticated) -> bool {
    matches!(refused, Unauthenticated::Unavailable(_))
}

/// Whether another site has led here, or sent the form. Browsers say so.
pub(super) fn is_from_elsewhere(headers: &HeaderMap) -> bool {
    headers.get(SITE).is_some_and(|site| site == "cross-site" || site == "same-site")
}

/// The browser that sends a request, for the list of sessions.
pub(super) fn browser_of(extensions: &Extensions, headers: &HeaderMap) -> Browser {
    let name = headers.get(header::USER_AGENT).and_then(|name| name.to_str().ok());
    Browser::new(Client::of(extensions).0.to_string(), name.unwrap_or_default())
}

/// An address to which only forms are sent, asked for as a page: so does a browser that loads once
/// more what was refused.
pub(super) async fn no_page(root: Root) -> Response {
    let words = "nothing is shown at this address, to which only forms are sent: go back to the page before";
    alone(&root, Problem::new(Kind::MethodNotAllowed, words))
}

/// The answer to a path that neither a page nor a route has. A browser is shown the same page
/// whoever is signed in.
pub(super) async fn nowhere(State(page): State<Page>, root: Root, request: Request) -> Response {
    if !is_for_a_page(&request) {
        return strangers::no_path(State(page.api.clone()), request).await.into_response();
    }
    let words = "there is no page at this address, which may be mistyped or of an earlier release";
    let refused = strangers::counted(&page.api, &request).err();
    alone(&root, refused.unwrap_or_else(|| Problem::new(Kind::NotFound, words)))
}

/// Whether a request is a browser's for a page. The paths of the API are for programs, whatever
/// they accept.
fn is_for_a_page(request: &Request) -> bool {
    let is_of_api = request.uri().path().split('/').nth(1) == Some("v1");
    let wanted = |kind| wanted(request.headers(), kind);
    matches!(*request.method(), Method::GET | Method::HEAD)
        && !is_of_api
        && wanted("text/html") > wanted("application/json")
}

/// How much an answer of a kind is wanted that a request names: from 0 to 1.
fn wanted(headers: &HeaderMap, kind: &str) -> f32 {
    let lines = headers.get_all(header::ACCEPT).iter().filter_map(|line| line.to_str().ok());
    let ranges = lines.flat_map(|line| line.split(',')).filter_map(|range| {
        let (name, parameters) = range.split_once(';').unwrap_or((range, ""));
        name.trim().eq_ignore_ascii_case(kind).then_some(parameters)
    });
    let weights = ranges.map(|parameters| {
        let weight = parameters.split(';').find_map(|parameter| parameter.trim().strip_prefix("q="));
        weight.map_or(1.0, |weight| weight.parse::<f32>().unwrap_or(0.0))
    });
    weights.fold(0.0, f32::max)
}

/// Counts requests for what anybody may see: how to sign in, and the files of pages. Those of a
/// person who is signed in count for the person.
pub(super) async fn counted(State(page): State<Page>, mut request: Request, next: Next) -> Response {
    let root = Root::of(request.extensions(), request.uri());
    let visitor = match person(&page, &root, request.headers()).await {
        Ok((_, principal)) => Visitor::signed_in(&page.api, &principal, &mut request),
        Err(_) => Visitor::stranger(&page.api, &mut request),
    };
    let method = request.method().clone();
    match visitor {
        Ok(visitor) => visitor.count(&page.api, &method, next.run(request).await),
        Err(problem) => alone(&root, problem),
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    #[test]
    fn a_page_is_for_those_who_name_html_before_json() {
        let is_for_a_page = |method: &str, path: &str, accept: &str| {
            let request =
                axum::http::Request::builder().method(method).uri(path).header(header::ACCEPT, accept);
            is_for_a_page(&request.body(Body::empty()).unwrap())
        };
        let browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
        for accept in [browser, "text/html", "application/json;q=0.5, Text/HTML; level=1; q=0.6"] {
            assert!(is_for_a_page("GET", "/nowhere", accept), "{accept}");
        }
        for accept in
            ["", "*/*", "application/json", "text/html, application/json", "text/html;q=0", "text/html;q=x"]
        {
            assert!(!is_for_a_page("GET", "/nowhere", accept), "{accept}");
        }
        for (method, path, is_page) in [
            ("HEAD", "/", true),
            ("POST", "/", false),
            ("GET", "/v1", false),
            ("GET", "/v1/nothing", false),
            ("GET", "/v10", true),
        ] {
            assert_eq!(is_for_a_page(method, path, browser), is_page, "{method} {path}");
        }
    }
}
