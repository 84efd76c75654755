//! What a request of a person who is signed in has to pass before its page is shown: rights on the
//! canvas, and for a form the field of the session.

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, Method, header};

use super::cookies::said;
use super::form::TOKEN;
use super::gate::is_from_elsewhere;
use super::sent::Sent;
use super::state::Page;
use super::visit::{Visit, VisitParts, canvas_of, first_canvas};
use crate::access::{Principal, Scope, SignIn, authorize};
use crate::http::body::CompleteBody;
use crate::http::inside::Person;
use crate::http::mounted::Root;
use crate::http::problem::{Kind, Problem};

/// How many times as large as a request's body a form may be: its values are percent-encoded.
const FORM_FACTOR: usize = 4;
/// How many fields a form may have: ours have some twenty.
const FIELDS_MAX: usize = 200;

/// Whether a request asks for the live part of a page, again and again. A form would be sent again
/// with each tick.
pub(super) fn is_watching(method: &Method, headers: &HeaderMap) -> bool {
    let accepts = headers.get(header::ACCEPT).is_some_and(|accept| accept == "text/event-stream");
    accepts && method == Method::GET
}

/// The visit of a request, which is then its extension.
pub(super) async fn admitted(
    page: &Page,
    mut request: Request,
    root: Root,
    sign_in: &SignIn,
    principal: Principal,
) -> Result<(Visit, Request), Problem> {
    let canvas = canvas_of(&request).transpose()?.unwrap_or_else(|| first_canvas(&principal));
    if authorize(&principal, canvas, Scope::Read)
        .is_err_and(|denied| Problem::from(denied).kind == Kind::NotFound)
    {
        return Err(Problem::new(Kind::NotFound, "you have no rights on this canvas, if there is one"));
    }
    let mut sent = None;
    if !request.method().is_safe() {
        (request, sent) = checked(page, sign_in, request).await?;
    }
    let form_token = page.api.access.form_token(sign_in).await?;
    let visit = Visit::new(VisitParts {
        page: page.clone(),
        person: Person::of(principal, request.extensions()),
        said: said(&root, request.headers()),
        root,
        canvas,
        path: request.uri().path().to_owned(),
        query: request.uri().query().unwrap_or_default().to_owned(),
        alone: request.extensions().get().cloned(),
        form_token,
        sent,
    });
    request.extensions_mut().insert(visit.clone());
    Ok((visit, request))
}

/// Checks that a form was sent by a page of this session. Its body is read within the limits of any
/// request's, and its fields, each of which takes more memory than bytes, are counted.
async fn checked(
    page: &Page,
    sign_in: &SignIn,
    request: Request,
) -> Result<(Request, Option<Sent>), Problem> {
    let (parts, body) = request.into_parts();
    let limit = page.api.limits.body_bytes.saturating_mul(FORM_FACTOR);
    let whole = Request::from_parts(parts.clone(), body);
    let CompleteBody(body) = CompleteBody::read(whole, &page.api, limit).await?;
    if url::form_urlencoded::parse(&body).nth(FIELDS_MAX).is_some() {
        let words = format!(
            "this form has more than {FIELDS_MAX} fields, and nothing was changed: send fewer at a time"
        );
        return Err(Problem::bad_request(words));
    }
    let given = url::form_urlencoded::parse(&body).find(|(name, _)| name == TOKEN);
    let given = given.map(|(_, value)| value.into_owned()).unwrap_or_default();
    if is_from_elsewhere(&parts.headers) || !page.api.access.is_form_of(sign_in, &given).await? {
        let words = "this form is not of your session, and nothing was changed: load the page again, and \
                     send it once more";
        return Err(Problem::new(Kind::Forbidden, words));
    }
    let sent = Sent::read(&body);
    Ok((Request::from_parts(parts, Body::from(body)), sent))
}
