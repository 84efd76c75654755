//! Signing in at an OpenID provider: the way there, and the way back.

use axum::extract::{Query, Request, State};
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Redirect, Response};
use serde::Deserialize;

use super::cookies::Cookie;
use super::gate::{browser_of, is_from_elsewhere};
use super::sign_in::{NEXT_MAX, form, opened, refuse_with};
use super::state::Page;
use crate::access::{InvalidSignIn, IssuerAnswer, Refusal, SIGN_IN_S, Unauthenticated};
use crate::http::mounted::Root;

/// Where to go on.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct BeginQuery {
    next: String,
}

/// Sends somebody to the provider who has asked for it on our page. Nobody is sent there by another
/// site, nor by a look ahead.
pub(super) async fn begin(
    State(page): State<Page>,
    root: Root,
    Query(query): Query<BeginQuery>,
    request: Request,
) -> Response {
    let headers = request.headers();
    if is_from_elsewhere(headers) || *request.method() != Method::GET {
        return form(&page, &root, &query.next, StatusCode::OK, None);
    }
    let next = if query.next.len() <= NEXT_MAX { query.next.as_str() } else { "" };
    match page.api.access.begin_sign_in(next).await {
        Ok(begun) => {
            let mut response = Redirect::to(&begun.address).into_response();
            Cookie::Flow.set(&root, headers, &mut response, (&begun.kept, SIGN_IN_S));
            response
        }
        Err(refused) => {
            let (status, words) = said(&refused, page.api.access.provider_name());
            refuse_with(&page, &root, &request, &refused, (&query.next, status, &words))
        }
    }
}

/// Receives somebody whom the provider has sent back. What the browser has kept is of use once.
pub(super) async fn end(
    State(page): State<Page>,
    root: Root,
    Query(answer): Query<IssuerAnswer>,
    request: Request,
) -> Response {
    if *request.method() != Method::GET {
        return form(&page, &root, "", StatusCode::OK, None);
    }
    let kept = Cookie::Flow.of(&root, request.headers());
    let browser = browser_of(request.extensions(), request.headers());
    let mut response = match page.api.access.end_sign_in(kept.as_deref(), &answer, &browser).await {
        Ok(ended) => opened(&root, request.headers(), &ended.token, &ended.next),
        Err(refused) => {
            let (status, words) = said(&refused, page.api.access.provider_name());
            refuse_with(&page, &root, &request, &refused, ("", status, &words))
        }
    };
    Cookie::Flow.unset(&root, request.headers(), &mut response);
    response
}

/// What to tell somebody who did not get in.
fn said(refused: &Unauthenticated, provider: Option<&str>) -> (StatusCode, String) {
    let provider = provider.unwrap_or("the provider");
    match refused {
        Unauthenticated::Unavailable(_) => (
            StatusCode::SERVICE_UNAVAILABLE,
            format!(
                "This can't be checked now, since {provider} or the database does not answer. Try again, or sign \
                     in with a key."
            ),
        ),
        Unauthenticated::Unknown(Refusal::NotListed { email }) => (
            StatusCode::FORBIDDEN,
            format!(
                "{provider} says that you are {email}, who has no rights here. An operator grants them with: \
                     wakeq accounts allow {email} --scope read. Or sign in with a key."
            ),
        ),
        Unauthenticated::Unknown(Refusal::SignIn(InvalidSignIn::Off)) => {
            (StatusCode::NOT_FOUND, "People sign in here with keys only.".to_owned())
        }
        Unauthenticated::Unknown(Refusal::SignIn(InvalidSignIn::Refused)) => {
            (StatusCode::UNAUTHORIZED, format!("{provider} did not let you in."))
        }
        Unauthenticated::Unknown(Refusal::Token(_)) => (
            StatusCode::UNAUTHORIZED,
            format!(
                "What {provider} says about you is not accepted here, for example because it has not verified \
                     your address. The record has the reason, which an operator can look up."
            ),
        ),
        Unauthenticated::Unknown(_) | Unauthenticated::Malformed | Unauthenticated::Missing => (
            StatusCode::UNAUTHORIZED,
            "This sign-in was not begun in this browser, was used before or took too long. Begin again."
                .to_owned(),
        ),
    }
}
