//! Who sends a request for a page: a person with a session, a person whom Google's proxy vouches
//! for, or a stranger.

use axum::extract::{Request, State};
use axum::http::{Extensions, HeaderMap, HeaderName, header};
use axum::middleware::Next;
use axum::response::Response;

use super::cookies::Cookie;
use super::document::alone;
use super::state::Page;
use crate::access::{Browser, Principal, SignIn, Unauthenticated};
use crate::http::client::Client;
use crate::http::mounted::Root;
use crate::http::problem::{Kind, Problem};
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
