//! Signing in with a key, and out.

use axum::body::Body;
use axum::extract::{Query, Request, State};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::{IntoResponse, Redirect, Response};
use maud::{Markup, html};
use serde::Deserialize;

use super::cookies::Cookie;
use super::document::{alone, document};
use super::gate::{browser_of, is_from_elsewhere, person};
use super::layout;
use super::state::Page;
use super::visit::Visit;
use crate::access::{Refusal, SESSION, Unauthenticated};
use crate::http::body::CompleteBody;
use crate::http::client::Client;
use crate::http::mounted::Root;
use crate::http::problem::{Kind, Problem};
use crate::http::visitors::record_refused_sign_in;

/// How large the form may be, and how long the address that it leads to.
const FORM_BYTES_MAX: usize = 16 * 1024;
pub(super) const NEXT_MAX: usize = 2_000;

/// Where Google's proxy forgets the person who has signed in to it.
const PROXY_SIGN_OUT: &str = "/_gcp_iap/clear_login_cookie";

/// Where to go on, and a link that signs in.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct SignInQuery {
    next: String,
    link: String,
}

/// A key or, if there is one, a link that signs in.
#[derive(Default)]
struct SignInForm {
    key: String,
    link: String,
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
    Ok(Redirect::to(&visit.at_root(&format!("/canvases/{canvas}"))))
}

/// The way to sign in. Afterwards the page at `next` is asked for again.
pub(super) fn first(root: &Root, next: &str) -> Response {
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    let to = match next != "/" && is_ours(next) {
        true => format!("/sign-in?{}", query.append_pair("next", next).finish()),
        false => "/sign-in".to_owned(),
    };
    Redirect::to(&root.path(&to)).into_response()
}

/// Whether an address is that of a page of ours, also as browsers read it: to them, a tab in it is
/// nothing, and two slashes are another host.
pub(super) fn is_ours(next: &str) -> bool {
    let is_plain = next.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    is_plain && next.len() <= NEXT_MAX && next.starts_with('/') && !next.starts_with("//")
}

/// The form, or the session of a link. A link that another site leads to is followed once somebody
/// says so: else that site could choose whose session it is.
pub(super) async fn show(
    State(page): State<Page>,
    root: Root,
    Query(query): Query<SignInQuery>,
    request: Request,
) -> Response {
    let SignInQuery { next, link } = &query;
    let headers = request.headers();
    if link.is_empty() {
        let unknown = unknown_to_us(&page, &root, headers).await;
        return form(&page, &root, next, StatusCode::OK, unknown.as_deref());
    }
    if is_from_elsewhere(headers) || *request.method() != Method::GET {
        return form_of_link(&root, &query);
    }
    match page.api.access.follow_link(link, &browser_of(request.extensions(), headers)).await {
        Ok(token) => {
            end_earlier(&page, &root, headers).await;
            opened(&root, headers, &token, next)
        }
        Err(refused) => refuse(&page, &root, &request, &refused, &query),
    }
}

/// What to tell a person whom Google's proxy has let through, or a provider has signed in, and who
/// was granted nothing here, or no longer.
async fn unknown_to_us(page: &Page, root: &Root, headers: &HeaderMap) -> Option<String> {
    match person(page, root, headers).await {
        Err(Unauthenticated::Unknown(Refusal::NotListed { email })) => {
            let who = match page.api.access.trusts_proxy() {
                true => "Google says that you are",
                false => "You have signed in as",
            };
            Some(format!(
                "{who} {email}, who has no rights here. An operator grants them with: wakeq accounts allow {email} \
                 --scope read. Or sign in with a key."
            ))
        }
        Ok(_) | Err(_) => None,
    }
}

/// Opens a session with a key or a link.
pub(super) async fn sign_in(State(page): State<Page>, root: Root, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let whole = Request::from_parts(parts.clone(), body);
    let form_given = match CompleteBody::read(whole, &page.api, FORM_BYTES_MAX).await {
        Ok(CompleteBody(body)) => read(&body),
        Err(problem) => return alone(&root, problem),
    };
    let request = Request::from_parts(parts, Body::empty());
    let SignInForm { key, link, next } = form_given;
    if is_from_elsewhere(request.headers()) {
        return form(&page, &root, &next, StatusCode::FORBIDDEN, Some("Sign in on this page."));
    }
    let browser = browser_of(request.extensions(), request.headers());
    let session = match link.as_str() {
        "" => page.api.access.open_session(&key, &browser).await,
        link => page.api.access.follow_link(link, &browser).await,
    };
    match session {
        Ok(token) => {
            end_earlier(&page, &root, request.headers()).await;
            opened(&root, request.headers(), &token, &next)
        }
        Err(refused) => refuse(&page, &root, &request, &refused, &SignInQuery { next, link }),
    }
}

fn read(body: &[u8]) -> SignInForm {
    let mut given = SignInForm::default();
    for (name, value) in url::form_urlencoded::parse(body) {
        match name.as_ref() {
            "key" => given.key = value.into_owned(),
            "link" => given.link = value.into_owned(),
            "next" => given.next = value.into_owned(),
            _ => {}
        }
    }
    given
}

/// The form once more, with the reason.
fn refuse(
    page: &Page,
    root: &Root,
    request: &Request,
    refused: &Unauthenticated,
    given: &SignInQuery,
) -> Response {
    let (status, words) = match refused {
        Unauthenticated::Unavailable(_) => (
            StatusCode::SERVICE_UNAVAILABLE,
            "This can't be checked now, since the database does not answer. Try again.",
        ),
        _ if !given.link.is_empty() => (
            StatusCode::UNAUTHORIZED,
            "This link was used before or is too old. Sign in with a key, or ask for a new link.",
        ),
        Unauthenticated::Malformed | Unauthenticated::Missing => (
            StatusCode::UNAUTHORIZED,
            "This is not a key. A key begins with wakeq_ and is 99 characters long; wakeq keys create makes one.",
        ),
        Unauthenticated::Unknown(_) => {
            (StatusCode::UNAUTHORIZED, "This key is not valid here, or no longer valid.")
        }
    };
    refuse_with(page, root, request, refused, (&given.next, status, words))
}

/// The form once more, with these words. The attempt is recorded, and counts for its address.
pub(super) fn refuse_with(
    page: &Page,
    root: &Root,
    request: &Request,
    refused: &Unauthenticated,
    (next, status, words): (&str, StatusCode, &str),
) -> Response {
    record_refused_sign_in(&page.api, request.extensions(), refused);
    match page.api.shares.count_unauthenticated(Client::of(request.extensions())) {
        Ok(()) => form(page, root, next, status, Some(words)),
        Err(problem) => {
            let words = "Too many attempts: try again in a moment.";
            form(page, root, next, problem.kind.status(), Some(words))
        }
    }
}

/// Ends the session that a browser has had, in whose place another one comes. If that can't be done
/// now, it ends like one that nobody uses.
async fn end_earlier(page: &Page, root: &Root, headers: &HeaderMap) {
    if let Some(token) = Cookie::Session.of(root, headers) {
        drop(page.api.access.sign_out(&token).await);
    }
}

/// Ends the session, also for whoever has a copy of its cookie. Its key stays valid.
pub(super) async fn sign_out(State(page): State<Page>, root: Root, headers: HeaderMap) -> Response {
    if is_from_elsewhere(&headers) {
        return StatusCode::FORBIDDEN.into_response();
    }
    let session = Cookie::Session.of(&root, &headers);
    if let Some(token) = &session
        && let Err(Unauthenticated::Unavailable(_)) = page.api.access.sign_out(token).await
    {
        return alone(&root, Problem::unavailable("the database, which has to end the session,"));
    }
    let to = match page.api.access.trusts_proxy() && session.is_none() {
        true => PROXY_SIGN_OUT.to_owned(),
        false => root.path("/sign-in"),
    };
    let mut response = Redirect::to(&to).into_response();
    Cookie::Session.unset(&root, &headers, &mut response);
    response
}

pub(super) fn opened(root: &Root, request: &HeaderMap, token: &str, next: &str) -> Response {
    let to = if next != "/" && is_ours(next) { root.path(next) } else { root.home().to_owned() };
    let mut response = Redirect::to(&to).into_response();
    Cookie::Session.set(root, request, &mut response, (token, SESSION.as_secs()));
    response
}

/// The form for a key, and a link to the provider, if there is one: a form's answer may lead to our
/// own pages only.
pub(super) fn form(
    page: &Page,
    root: &Root,
    next: &str,
    status: StatusCode,
    trouble: Option<&str>,
) -> Response {
    let provider = page.api.access.provider_name();
    let contents: Markup = html! {
        form.sign-in method="post" action=(root.path("/sign-in")) {
            h1 { "Sign in" }
            @if let Some(trouble) = trouble { p.trouble role="alert" { (trouble) } }
            @if let Some(provider) = provider {
                p { a.button href=(to_provider(root, next)) { "Sign in with " (provider) } }
                p.quiet { "What was granted to your address there is what you can see and do here." }
            }
            p.quiet { "With an API key: its scopes are what you can see and do here, until it is revoked." }
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

fn to_provider(root: &Root, next: &str) -> String {
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    match next != "/" && is_ours(next) {
        true => root.path(&format!("/sign-in/oidc?{}", query.append_pair("next", next).finish())),
        false => root.path("/sign-in/oidc"),
    }
}

/// A button that follows a link, for somebody who comes from elsewhere.
fn form_of_link(root: &Root, given: &SignInQuery) -> Response {
    let contents: Markup = html! {
        form.sign-in method="post" action=(root.path("/sign-in")) {
            h1 { "Sign in" }
            p.quiet { "This link signs you in. Go on if you have asked for it yourself." }
            input type="hidden" name="next" value=(given.next);
            input type="hidden" name="link" value=(given.link);
            button.main type="submit" { "Sign in" }
        }
    };
    document(StatusCode::OK, layout::bare(root, "Sign in", &contents))
}

#[cfg(test)]
mod tests {
    use axum::http::header;

    use super::*;

    #[test]
    fn one_goes_on_to_a_page_of_ours_only() {
        let root = Root::default();
        let long = format!("/{}", "x".repeat(NEXT_MAX));
        for (next, to) in [
            ("/canvases/x/events?state=ready", "/canvases/x/events?state=ready"),
            ("", "/"),
            ("/", "/"),
            ("//evil.example", "/"),
            ("/\\evil.example", "/"),
            ("/\t/evil.example", "/"),
            ("/\n/evil.example", "/"),
            ("/ /evil.example", "/"),
            ("/é", "/"),
            ("https://evil.example", "/"),
            ("javascript:alert(1)", "/"),
            (&long, "/"),
        ] {
            let response = opened(&root, &HeaderMap::new(), "token", next);
            assert_eq!(response.headers()[header::LOCATION], to, "{next:?}");
            let cookie = response.headers()[header::SET_COOKIE].to_str().unwrap();
            assert!(cookie.starts_with("__Host-wakeq_session=token; Path=/; Max-Age=43200; "), "{cookie}");
        }
    }
}
