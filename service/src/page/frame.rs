//! The frame around each page: only a person who is signed in gets in, a form has to carry the
//! field of its session, and what the page answers becomes a document.

use std::convert::Infallible;

use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::sse::Event;
use axum::response::{Html, IntoResponse, Response, Sse};
use futures_util::stream::unfold;
use maud::{Markup, html};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::view::{Said, View};
use super::visit::{Visit, VisitParts, canvas_of, first_canvas};
use super::{Page, layout, memo, sign_in};
use crate::access::{Principal, Scope, Session, Unauthenticated, authorize};
use crate::http::connection::Endless;
use crate::http::inside::Person;
use crate::http::mounted::Root;
use crate::http::problem::{Kind, Problem};

/// The page's files are its own, and nothing is sent elsewhere.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
                      connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

const SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const NO_BUFFER: HeaderName = HeaderName::from_static("x-accel-buffering");

/// How large a form may be: an event's value and what stands around it.
const FORM_BYTES_MAX: usize = 1024 * 1024;

/// The hidden field of forms.
pub(super) const TOKEN: &str = "form_token";
/// The cookies: the session, and what the last request has done.
pub(super) const SESSION: &str = "wakeq_session";
pub(super) const SAID: &str = "wakeq_said";

/// Lets a person who is signed in through, and makes a document of what the page answers.
pub(super) async fn frame(State(page): State<Page>, request: Request, next: Next) -> Response {
    let root = Root::of(request.extensions(), request.uri());
    let headers = request.headers();
    let resumed = match cookie(headers, SESSION) {
        Some(token) => page.api.access.resume(&token).await,
        None => Err(Unauthenticated::Missing),
    };
    let (session, principal) = match resumed {
        Ok(known) => known,
        Err(Unauthenticated::Unavailable(_)) => {
            return alone(&root, &Problem::unavailable("the database"));
        }
        Err(_) if is_from_elsewhere(headers) => return again(&request, &root),
        Err(_) => return sign_in::first(&request, &root),
    };
    match admitted(&page, request, root.clone(), session, principal).await {
        Ok((_, request)) if wants_stream(request.headers()) => watch(page, request, next),
        Ok((visit, request)) => answered(&visit, next.run(request).await),
        Err(problem) => alone(&root, &problem),
    }
}

/// The visit of a request, which is then its extension, after the check of a form.
async fn admitted(
    page: &Page,
    mut request: Request,
    root: Root,
    session: Session,
    principal: Principal,
) -> Result<(Visit, Request), Problem> {
    let canvas = canvas_of(&request).transpose()?.unwrap_or_else(|| first_canvas(&principal));
    if authorize(&principal, canvas, Scope::Read)
        .is_err_and(|denied| Problem::from(denied).kind == Kind::NotFound)
    {
        return Err(Problem::new(Kind::NotFound, "your key has no rights on this canvas, if there is one"));
    }
    if !request.method().is_safe() {
        request = checked(page, &session, request).await?;
    }
    let form_token = page.api.access.form_token(&session).await?;
    let visit = Visit::new(VisitParts {
        page: page.clone(),
        person: Person::of(principal, request.extensions()),
        root,
        canvas,
        path: request.uri().path().to_owned(),
        query: request.uri().query().unwrap_or_default().to_owned(),
        form_token,
        said: cookie(request.headers(), SAID).and_then(|said| unescaped(&said)),
    });
    request.extensions_mut().insert(visit.clone());
    Ok((visit, request))
}

/// Checks that a form was sent by a page of this session.
async fn checked(page: &Page, session: &Session, request: Request) -> Result<Request, Problem> {
    let (parts, body) = request.into_parts();
    let too_large = |_| Problem::new(Kind::TooLarge, "the form is larger than 1 MiB: send less at a time");
    let body = to_bytes(body, FORM_BYTES_MAX).await.map_err(too_large)?;
    let given = url::form_urlencoded::parse(&body).find(|(name, _)| name == TOKEN);
    let given = given.map(|(_, value)| value.into_owned()).unwrap_or_default();
    if is_from_elsewhere(&parts.headers) || !page.api.access.is_form_of(session, &given).await? {
        let words = "this form is not of your session, and nothing was changed: load the page again, and \
                     send it once more";
        return Err(Problem::new(Kind::Forbidden, words));
    }
    Ok(Request::from_parts(parts, Body::from(body)))
}

/// A document of a page's answer, or its redirect with what it has done.
fn answered(visit: &Visit, mut response: Response) -> Response {
    if let Some(Said(said)) = response.extensions_mut().remove() {
        let cookie = format!("{SAID}={}; Path=/; Max-Age=10; HttpOnly; SameSite=Strict", escaped(&said));
        if let Ok(cookie) = HeaderValue::from_str(&cookie) {
            response.headers_mut().append(header::SET_COOKIE, cookie);
        }
        return response;
    }
    let view = match response.extensions_mut().remove::<View>() {
        Some(view) => view,
        None => match response.extensions_mut().remove::<Problem>() {
            Some(problem) => problem_view(&problem),
            None if response.status().is_redirection() => return response,
            None => problem_view(&Problem::of_status(response.status())),
        },
    };
    let mut response = document(view.status, layout::document(visit, &view));
    if visit.parts().said.is_some() {
        let gone = HeaderValue::from_static("wakeq_said=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict");
        response.headers_mut().append(header::SET_COOKIE, gone);
    }
    response
}

/// What is wrong, in words, and what to do.
fn problem_view(problem: &Problem) -> View {
    problem.log();
    let words = html! {
        div.trouble role="alert" {
            p { (problem.detail()) }
            p { a href="" data-back { "Back" } " to the page before" }
        }
    };
    View { status: problem.kind.status(), ..View::new(problem.kind.title()).above(words) }
}

/// A problem without a visit: there is no navigation.
fn alone(root: &Root, problem: &Problem) -> Response {
    problem.log();
    let contents = html! {
        h1 { (problem.kind.title()) }
        p role="alert" { (problem.detail()) }
        p { a href=(root.path("/")) { "Begin" } " at the first page" }
    };
    document(problem.kind.status(), layout::bare(root, problem.kind.title(), &contents))
}

/// A page that loads itself again. A browser sends the cookie of the session only from a page of
/// ours, so this comes before everything that a link elsewhere leads to.
fn again(request: &Request, root: &Root) -> Response {
    let to = root.path(request.uri().path_and_query().map_or("/", |path| path.as_str()));
    let contents = html! {
        meta http-equiv="refresh" content=(format!("0;url={to}"));
        p { a href=(to) { "Go on to the page" } }
    };
    document(StatusCode::OK, layout::bare(root, "wakeq", &contents))
}

pub(super) fn document(status: StatusCode, markup: Markup) -> Response {
    let mut response = (status, Html(markup.into_string())).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("same-origin"));
    headers.insert(header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    response
}

/// Whether another site has led here, or sent the form. Browsers say so.
pub(super) fn is_from_elsewhere(headers: &HeaderMap) -> bool {
    headers.get(SITE).is_some_and(|site| site == "cross-site" || site == "same-site")
}

/// The value of a cookie.
pub(super) fn cookie(headers: &HeaderMap, name: &str) -> Option<String> {
    let lines = headers.get_all(header::COOKIE).iter().filter_map(|line| line.to_str().ok());
    let mut pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(given, _)| *given == name).map(|(_, value)| value.to_owned())
}

fn escaped(text: &str) -> String {
    url::form_urlencoded::byte_serialize(text.as_bytes()).collect()
}

fn unescaped(text: &str) -> Option<String> {
    let line = format!("said={text}");
    url::form_urlencoded::parse(line.as_bytes()).next().map(|(_, value)| value.into_owned())
}

fn wants_stream(headers: &HeaderMap) -> bool {
    headers.get(header::ACCEPT).is_some_and(|accept| accept == "text/event-stream")
}

/// The live part of a page, again and again, as server-sent events: only when it has changed.
fn watch(page: Page, request: Request, next: Next) -> Response {
    let Ok(permit) = page.watchers.clone().try_acquire_owned() else {
        let words = "too many browsers watch pages of this process: reload the page now and then instead";
        return Problem::new(Kind::TooManyRequests, words).into_response();
    };
    let mut ticks = interval(memo::FRESH);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (parts, _) = request.into_parts();
    let watcher = Watcher { page, parts, next, ticks, shown: None, _permit: permit };
    let mut response = Sse::new(unfold(watcher, Watcher::next)).into_response();
    response.headers_mut().insert(NO_BUFFER, HeaderValue::from_static("no"));
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response.extensions_mut().insert(Endless);
    response
}

/// A browser that looks at a page.
struct Watcher {
    page: Page,
    parts: Parts,
    next: Next,
    ticks: Interval,
    /// What was sent last.
    shown: Option<String>,
    _permit: OwnedSemaphorePermit,
}

/// How often something is sent if nothing changes, in ticks: proxies end what is silent.
const SILENCE: u32 = 7;

impl Watcher {
    async fn next(mut self) -> Option<(Result<Event, Infallible>, Self)> {
        for _ in 0..SILENCE {
            tokio::select! {
                () = self.page.stop.cancelled() => return None,
                _ = self.ticks.tick() => {}
            }
            // The session may have ended, and then the browser asks again and is told.
            let token = cookie(&self.parts.headers, SESSION)?;
            self.page.api.access.resume(&token).await.ok()?;
            let request = Request::from_parts(self.parts.clone(), Body::empty());
            let mut response = self.next.clone().run(request).await;
            let view = response.extensions_mut().remove::<View>();
            let live = view.and_then(|view| view.live)?.into_string();
            if self.shown.as_ref() != Some(&live) {
                let event = Event::default().event("live").data(live.replace('\n', " "));
                self.shown = Some(live);
                return Some((Ok(event), self));
            }
        }
        Some((Ok(Event::default().comment("still here")), self))
    }
}
