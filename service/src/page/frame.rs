//! The frame around each page: only a person who is signed in gets in, and what the page answers
//! becomes a document.

use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use maud::html;

use super::admission::{admitted, is_watching};
use super::cookies::{self, Cookie};
use super::document::{again, alone, document, refusal};
use super::state::Page;
use super::view::{Said, View};
use super::visit::Visit;
use super::{gate, layout, partial, sign_in, watch};
use crate::access::Unauthenticated;
use crate::http::mounted::Root;
use crate::http::problem::Problem;
use crate::http::visitors::Visitor;

/// Lets a person who is signed in through, and makes a document of what the page answers.
pub(super) async fn frame(State(page): State<Page>, mut request: Request, next: Next) -> Response {
    let root = Root::of(request.extensions(), request.uri());
    let (signed_in, principal) = match gate::person(&page, &root, request.headers()).await {
        Ok(known) => known,
        Err(refused) => return stranger(&page, &root, &mut request, &refused),
    };
    let visitor = match Visitor::signed_in(&page.api, &principal, &mut request) {
        Ok(visitor) => visitor,
        Err(problem) => return alone(&root, problem),
    };
    let method = request.method().clone();
    let headers = request.headers().clone();
    match admitted(&page, request, root.clone(), &signed_in, principal).await {
        Ok((_, request)) if is_watching(&method, &headers) => watch::watch(page, &visitor, request, next),
        Ok((visit, request)) => {
            page.api.access.note_activity(&signed_in).await;
            let answer = answered(&visit, &headers, next.run(request).await);
            visitor.count(&page.api, &method, answer)
        }
        Err(problem) => alone(&root, problem),
    }
}

/// The answer to somebody who is not signed in: the way to do that.
fn stranger(page: &Page, root: &Root, request: &mut Request, refused: &Unauthenticated) -> Response {
    if gate::is_unavailable(refused) {
        return alone(root, Problem::unavailable("the verification of credentials"));
    }
    if let Err(problem) = Visitor::stranger(&page.api, request) {
        return alone(root, problem);
    }
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    let (method, headers) = (request.method(), request.headers());
    if matches!(*method, Method::GET | Method::HEAD) && gate::is_from_elsewhere(headers) {
        return again(root, path);
    }
    partial::redirected(headers, sign_in::first(root, if method.is_safe() { path } else { "" }))
}

/// A document of a page's answer, or its redirect with what it has done.
fn answered(visit: &Visit, request: &HeaderMap, mut response: Response) -> Response {
    let root = &visit.parts().root;
    if let Some(Said(said)) = response.extensions_mut().remove() {
        cookies::say(root, request, &mut response, &said);
        return response;
    }
    let mut response = match response.extensions_mut().remove::<View>() {
        Some(view) if partial::is_wanted(request) => return document(view.status, layout::part(&view)),
        Some(view) => document(view.status, layout::document(visit, &view)),
        None => match response.extensions_mut().remove::<Problem>() {
            Some(problem) => refused(visit, request, problem),
            None if response.status().is_redirection() => return partial::redirected(request, response),
            None => refused(visit, request, unread(response.status())),
        },
    };
    if visit.parts().said.is_some() {
        Cookie::Said.unset(root, request, &mut response);
    }
    response
}

/// The problem of an answer that no page has given, such as one to a form that it could not read.
fn unread(status: StatusCode) -> Problem {
    if status == StatusCode::UNPROCESSABLE_ENTITY {
        let words = "a field of this form is missing, given twice, or not what it should be, and nothing was \
                     changed: load the page again, and fill it in there";
        return Problem::bad_request(words);
    }
    Problem::of_status(status)
}

/// What is wrong, in words, and what to do.
fn refused(visit: &Visit, request: &HeaderMap, problem: Problem) -> Response {
    let words = html! {
        div.trouble role="alert" {
            p { (problem.detail()) }
            p { a href=(before(visit, request)) data-back { "Back" } " to the page before" }
        }
    };
    let view = View::new(problem.kind.title()).above(words);
    let markup = layout::document(visit, &view);
    refusal(problem, markup)
}

/// The page that a request has come from, if it was one of ours. What was refused may have been a
/// form, whose address shows nothing.
fn before(visit: &Visit, request: &HeaderMap) -> String {
    let from = request.get(header::REFERER).and_then(|from| url::Url::parse(from.to_str().ok()?).ok());
    let page = from.map(|from| from[url::Position::BeforePath..url::Position::AfterQuery].to_owned());
    page.filter(|page| sign_in::is_ours(page)).unwrap_or_else(|| visit.link(&[]))
}
