//! Signing in with a key, and out.

use std::net::IpAddr;

use axum::Form;
use axum::extract::{Query, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use maud::{Markup, html};
use serde::Deserialize;

use super::frame::{SESSION, document, is_from_elsewhere};
use super::visit::Visit;
use super::{Page, layout};
use crate::access::{SESSION as SESSION_LENGTH, Unauthenticated};
use crate::http::client::Client;
use crate::http::mounted::Root;
use crate::http::problem::{Kind, Problem};

/// Where to go on, and a link that signs in.
#[derive(Default, Deserialize)]
pub(super) struct SignInQuery {
    #[serde(default)]
    next: String,
    #[serde(default)]
    link: String,
}

#[derive(Deserialize)]
pub(super) struct SignInForm {
    key: String,
    #[serde(default)]
    next: String,
}

/// `/`: the first canvas.
pub(super) async fn home(visit: Visit) -> Redirect {
    Redirect::to(&visit.link(&[]))
}

/// An address that no page has.
pub(super) async fn nowhere() -> Problem {
    Problem::new(Kind::NotFound, "there is no such page: the navigation shows those that there are")
}

#[derive(Deserialize)]
pub(super) struct GoQuery {
    #[serde(default)]
    canvas: String,
}

/// `/go?canvas=`: another canvas.
pub(super) async fn go(visit: Visit, Query(query): Query<GoQuery>) -> Result<Redirect, Problem> {
    let canvas = query.canvas.trim().parse::<uuid::Uuid>();
    let canvas = canvas.map_err(|_| Problem::bad_request("a canvas is a uuid, such as its emits name it"))?;
    Ok(Redirect::to(&visit.from_root(&format!("/canvases/{canvas}"))))
}

/// The way to sign in, for a request that needs it: a page is asked for again afterwards.
pub(super) fn first(request: &Request, root: &Root) -> Response {
    let next = match (request.method().is_safe(), request.uri().path_and_query()) {
        (true, Some(path)) if path.as_str() != "/" => path.as_str(),
        _ => "",
    };
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    let query = if next.is_empty() { String::new() } else { query.append_pair("next", next).finish() };
    let to = if query.is_empty() { "/sign-in".to_owned() } else { format!("/sign-in?{query}") };
    Redirect::to(&root.path(&to)).into_response()
}

/// The form, or the session of a link.
pub(super) async fn show(
    State(page): State<Page>,
    root: Root,
    client: Client,
    headers: HeaderMap,
    Query(query): Query<SignInQuery>,
) -> Response {
    if query.link.is_empty() {
        return form(&root, &query.next, StatusCode::OK, None);
    }
    match counted(&page, client, page.api.access.follow_link(&query.link).await) {
        Ok(token) => opened(&root, &headers, &token, &query.next),
        Err(problem) => {
            let words = "This link was used before or is too old. Sign in with a key, or ask for a new link.";
            form(&root, &query.next, problem.kind.status(), Some(words))
        }
    }
}

/// Opens a session with a key.
pub(super) async fn sign_in(
    State(page): State<Page>,
    root: Root,
    client: Client,
    headers: HeaderMap,
    Form(given): Form<SignInForm>,
) -> Response {
    if is_from_elsewhere(&headers) {
        return form(&root, &given.next, StatusCode::FORBIDDEN, Some("Sign in on this page."));
    }
    let opened_session = page.api.access.open_session(&given.key).await;
    let refused = match opened_session {
        Ok(token) => return opened(&root, &headers, &token, &given.next),
        Err(refused) => refused,
    };
    let (status, words) = match (&refused, page.api.shares.count_unauthenticated(client)) {
        (_, Err(problem)) => (problem.kind.status(), "Too many attempts: try again in a moment."),
        (Unauthenticated::Unavailable(_), _) => (
            StatusCode::SERVICE_UNAVAILABLE,
            "The key can't be checked now, since the database does not answer. Try again.",
        ),
        (Unauthenticated::Malformed | Unauthenticated::Missing, _) => (
            StatusCode::UNAUTHORIZED,
            "This is not a key. A key begins with wakeq_ and is 99 characters long; wakeq keys create makes one.",
        ),
        (Unauthenticated::Unknown(_), _) => {
            (StatusCode::UNAUTHORIZED, "This key is not valid here, or no longer valid.")
        }
    };
    form(&root, &given.next, status, Some(words))
}

fn counted(page: &Page, client: Client, token: Result<String, Unauthenticated>) -> Result<String, Problem> {
    token.map_err(|refused| {
        let counted = page.api.shares.count_unauthenticated(client);
        counted.err().unwrap_or_else(|| refused.into())
    })
}

/// Ends the session in this browser. Its key stays valid.
pub(super) async fn sign_out(root: Root, headers: HeaderMap) -> Response {
    if is_from_elsewhere(&headers) {
        return StatusCode::FORBIDDEN.into_response();
    }
    let mut response = Redirect::to(&root.path("/sign-in")).into_response();
    set(&mut response, &format!("{SESSION}=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict"));
    response
}

fn opened(root: &Root, headers: &HeaderMap, token: &str, next: &str) -> Response {
    // Only to a page of ours.
    let next =
        if next.starts_with('/') && !next.starts_with("//") && !next.contains('\\') { next } else { "/" };
    let mut response = Redirect::to(&root.path(next)).into_response();
    let secure = if is_loopback(headers) { "" } else { "; Secure" };
    let seconds = SESSION_LENGTH.as_secs();
    set(
        &mut response,
        &format!("{SESSION}={token}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}"),
    );
    response
}

fn set(response: &mut Response, cookie: &str) {
    if let Ok(cookie) = HeaderValue::from_str(cookie) {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
}

/// Whether the browser is on this machine, to which it may speak without TLS.
fn is_loopback(headers: &HeaderMap) -> bool {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let name =
        host.rsplit_once(':').map_or(host, |(name, port)| if port.ends_with(']') { host } else { name });
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    bare.eq_ignore_ascii_case("localhost")
        || bare.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn form(root: &Root, next: &str, status: StatusCode, trouble: Option<&str>) -> Response {
    let contents: Markup = html! {
        form.sign-in method="post" action=(root.path("/sign-in")) {
            h1 { "Sign in" }
            p.quiet { "With an API key: its scopes are what you can see and do here, until it is revoked." }
            @if let Some(trouble) = trouble { p.trouble role="alert" { (trouble) } }
            input type="hidden" name="next" value=(next);
            label for="key" { "Key" }
            input #key name="key" type="password" required autofocus autocomplete="current-password"
                placeholder="wakeq_…" spellcheck="false";
            button.main type="submit" { "Sign in" }
            details {
                summary { "Where do I get a key?" }
                p { "An operator makes one, and it is shown once:" }
                pre { "wakeq keys create ada --scope read --scope operate" }
                p { "Over plain HTTP, a session can be kept only on this machine (localhost): elsewhere, open \
                     this page over HTTPS." }
            }
        }
    };
    document(status, layout::bare(root, "Sign in", &contents))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_without_tls_is_for_this_machine_only() {
        for (host, own) in [
            ("localhost", true),
            ("localhost:8080", true),
            ("127.0.0.1:8080", true),
            ("[::1]:8080", true),
            ("[::1]", true),
            ("queue.example", false),
            ("localhost.example:8080", false),
            ("10.0.0.1:8080", false),
            ("[fe80::1]:80", false),
            ("", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, HeaderValue::from_static(host));
            assert_eq!(is_loopback(&headers), own, "{host}");
        }
    }

    #[test]
    fn one_goes_on_to_a_page_of_ours_only() {
        let root = Root::default();
        for (next, to) in [
            ("/canvases/x/events?state=ready", "/canvases/x/events?state=ready"),
            ("", "/"),
            ("//evil.example", "/"),
            ("/\\evil.example", "/"),
            ("https://evil.example", "/"),
            ("javascript:alert(1)", "/"),
        ] {
            let response = opened(&root, &HeaderMap::new(), "token", next);
            assert_eq!(response.headers()[header::LOCATION], to);
            let cookie = response.headers()[header::SET_COOKIE].to_str().unwrap();
            assert!(cookie.starts_with("wakeq_session=token; Path=/; Max-Age=43200; HttpOnly"), "{cookie}");
            assert!(cookie.ends_with("; SameSite=Strict; Secure"), "{cookie}");
        }
    }
}
