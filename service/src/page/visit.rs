//! A person's request for a page: who it is, which canvas it is about, and what may be shown.

use std::sync::Arc;

use axum::extract::{FromRequestParts, Request};
use axum::http::request::Parts;
use chrono::{DateTime, Utc};

use super::alone::Alone;
use super::sent::Sent;
use super::state::Page;
use super::time::now;
use crate::access::{
    Principal, Reach, Scope, authorize, authorize_everywhere, authorize_handler, authorize_some_handler,
};
use crate::http::inside::Person;
use crate::http::mounted::Root;
use crate::http::problem::{Kind, Problem};
use wakeq::{CanvasId, Name};

/// A request for a page, by a person who is signed in. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Visit(Arc<VisitParts>);

pub(super) struct VisitParts {
    pub(super) page: Page,
    pub(super) person: Person,
    pub(super) root: Root,
    pub(super) canvas: CanvasId,
    /// The path from the root, and the query without its question mark.
    pub(super) path: String,
    pub(super) query: String,
    /// If it is a look of a browser that was left open: what this one asks for itself alone.
    pub(super) alone: Option<Arc<Alone>>,
    /// The hidden field of forms.
    pub(super) form_token: String,
    /// The form that was sent, by its key and its fields: the same again if it is sent twice.
    pub(super) sent: Option<Sent>,
    /// What the last request has done, to be said once.
    pub(super) said: Option<String>,
}

impl Visit {
    pub(super) fn new(parts: VisitParts) -> Self {
        Self(Arc::new(parts))
    }

    pub(super) fn parts(&self) -> &VisitParts {
        &self.0
    }

    /// The canvas that the page is about.
    pub(crate) fn canvas(&self) -> CanvasId {
        self.0.canvas
    }

    /// The address of a page of this canvas, for a link: `["handlers", module, name]`.
    pub(crate) fn link(&self, path: &[&str]) -> String {
        self.0.root.path(&format!("/canvases/{}{}", self.canvas().0, linked(path)))
    }

    /// The same with a query, without parameters that are empty.
    pub(crate) fn link_with(&self, path: &[&str], query: &[(&str, &str)]) -> String {
        let mut pairs = url::form_urlencoded::Serializer::new(String::new());
        pairs.extend_pairs(query.iter().filter(|(_, value)| !value.is_empty()));
        let pairs = pairs.finish();
        let link = self.link(path);
        if pairs.is_empty() { link } else { format!("{link}?{pairs}") }
    }

    /// Where the trace of a `traceparent` is shown, if anywhere: in another program.
    pub(crate) fn trace_link(&self, traceparent: &str) -> Option<String> {
        self.0.page.trace_url.as_ref()?.of(traceparent)
    }

    /// The address of this page, without its query.
    pub(crate) fn here(&self) -> String {
        self.at_root(&self.0.path)
    }

    /// The address of a path from the root of the server.
    pub(crate) fn at_root(&self, path: &str) -> String {
        self.0.root.path(path)
    }

    /// The parameters in this page's address, without those that are empty.
    pub(crate) fn parameters(&self) -> Vec<(String, String)> {
        let pairs = url::form_urlencoded::parse(self.0.query.as_bytes()).into_owned();
        pairs.filter(|(_, value)| !value.trim().is_empty()).collect()
    }

    /// A parameter in this page's address; empty if it is missing.
    pub(crate) fn parameter(&self, name: &str) -> String {
        self.parameters()
            .into_iter()
            .find(|(given, _)| given == name)
            .map(|(_, value)| value)
            .unwrap_or_default()
    }

    /// Whether it is a look of a browser that was left open, which is shown the live part alone.
    pub(crate) fn is_look(&self) -> bool {
        self.0.alone.is_some()
    }

    /// Whether the person has a scope on this canvas. Without it, a control that needs it is not
    /// shown; the API refuses it all the same.
    pub(crate) fn may(&self, scope: Scope) -> bool {
        authorize(self.principal(), self.canvas(), scope).is_ok()
    }

    /// Whether the person has a scope on this canvas, even if for some handlers only.
    pub(crate) fn may_on_some(&self, scope: Scope) -> bool {
        authorize_some_handler(self.principal(), self.canvas(), scope).is_ok()
    }

    /// Whether the person has a scope for one handler.
    pub(crate) fn may_on(&self, scope: Scope, module: &str, name: &str) -> bool {
        let parsed = module.parse::<Name>().ok().zip(name.parse::<Name>().ok());
        parsed.is_some_and(|(module, name)| {
            authorize_handler(self.principal(), self.canvas(), scope, &module, &name).is_ok()
        })
    }

    /// The handlers of this canvas for which the person has a scope on its own: each a module, with
    /// a name unless it is all of the module.
    pub(crate) fn handlers_with(&self, scope: Scope) -> Vec<(String, Option<String>)> {
        let handlers = self.principal().handlers_on(self.canvas(), scope).into_iter();
        handlers.map(|(module, name)| (module.to_string(), name.map(|name| name.to_string()))).collect()
    }

    /// Whether the person has a scope on every canvas.
    pub(crate) fn may_everywhere(&self, scope: Scope) -> bool {
        authorize_everywhere(self.principal(), scope).is_ok()
    }

    /// Refuses a page that is of no use without a scope on this canvas, such as a form.
    pub(crate) fn needs(&self, scope: Scope) -> Result<(), Problem> {
        Ok(authorize(self.principal(), self.canvas(), scope)?)
    }

    /// The same for a scope on one handler.
    pub(crate) fn needs_on(&self, scope: Scope, module: &str, name: &str) -> Result<(), Problem> {
        let (module, name) = (module.parse::<Name>()?, name.parse::<Name>()?);
        Ok(authorize_handler(self.principal(), self.canvas(), scope, &module, &name)?)
    }

    /// The same for a scope on every canvas.
    pub(crate) fn needs_everywhere(&self, scope: Scope) -> Result<(), Problem> {
        Ok(authorize_everywhere(self.principal(), scope)?)
    }

    /// The name of the person, as the audit log shows it.
    pub(crate) fn name(&self) -> &str {
        self.principal().name()
    }

    /// The public part of the key that the person has signed in with, if it was a key.
    pub(crate) fn key(&self) -> Option<String> {
        self.principal().key().map(|key| key.to_string())
    }

    /// The moment from which a form's lengths of time are counted: when it was sent, or if it is
    /// sent twice, when it was sent first, so that it asks for the same again.
    pub(crate) fn sent_at(&self) -> DateTime<Utc> {
        let (sent, first, now) = (&self.0.sent, &self.0.page.sent_first, now());
        sent.as_ref().and_then(|sent| first.note(self.canvas(), sent, now)).unwrap_or(now)
    }

    /// Does what a form asks for whose answer is shown only once, unless it was done before.
    pub(crate) async fn once<T>(
        &self,
        doing: impl Future<Output = Result<T, Problem>>,
    ) -> Result<T, Problem> {
        let (Some(sent), before) = (&self.0.sent, &self.0.page.sent_before) else { return doing.await };
        if before.note(self.canvas(), sent, now()).is_some() {
            let words = "this form was sent before, and what it asks for was done then. The secret that it made \
                         was shown once: if you don't have it, load the page again and make another";
            return Err(Problem::new(Kind::Conflict, words));
        }
        let done = doing.await;
        if done.is_err() {
            before.forget(self.canvas(), sent);
        }
        done
    }

    pub(super) fn principal(&self) -> &Principal {
        self.0.person.principal()
    }
}

/// The canvas that somebody begins with who has named none: the first one with any rights, be it
/// for some handlers only.
pub(super) fn first_canvas(principal: &Principal) -> CanvasId {
    let own = principal.grants().iter().find_map(|grant| match grant.reach {
        Reach::Canvas(canvas) => Some(canvas),
        Reach::EveryCanvas => None,
    });
    own.unwrap_or(CanvasId::DEFAULT)
}

/// The parts of a path as a browser takes them. It would take `.` and `..`, which are names of
/// handlers, too, as ways to other pages, also if they are encoded: a link to them leads to
/// nothing.
fn linked(path: &[&str]) -> String {
    let named = path.iter().map(|part| match *part {
        "." => "%2E",
        ".." => "%2E%2E",
        part => part,
    });
    joined(&named.collect::<Vec<_>>())
}

/// The parts of a path, each after its slash.
pub(super) fn joined(path: &[&str]) -> String {
    let encoded = |part: &&str| url::form_urlencoded::byte_serialize(part.as_bytes()).collect::<String>();
    path.iter().map(|part| format!("/{}", encoded(part).replace('+', "%20"))).collect()
}

/// The parts of a page's path, such as `{module}`.
pub(crate) struct PathParts(Vec<(String, String)>);

impl PathParts {
    /// The part with this name. A page's route has it.
    pub(crate) fn get(&self, name: &str) -> &str {
        self.0.iter().find(|(given, _)| given == name).map_or("", |(_, value)| value)
    }
}

impl FromRequestParts<Page> for PathParts {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, page: &Page) -> Result<Self, Problem> {
        let raw = axum::extract::RawPathParams::from_request_parts(parts, page).await;
        let raw = raw.map_err(|_| Problem::not_found())?;
        Ok(Self(raw.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()))
    }
}

impl FromRequestParts<Page> for Visit {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &Page) -> Result<Self, Problem> {
        // A page outside the frame has no visit, and so can't show or do anything.
        parts.extensions.get::<Self>().cloned().ok_or_else(Problem::not_found)
    }
}

/// The canvas in a page's path; `None` for a page that is about none.
pub(super) fn canvas_of(request: &Request) -> Option<Result<CanvasId, Problem>> {
    let named = request.uri().path().strip_prefix("/canvases/")?;
    let text = named.split('/').next().unwrap_or_default();
    let words = "the canvas in this address is not a uuid: choose one at the top of the page";
    Some(text.parse().map(CanvasId).map_err(|_| Problem::bad_request(words)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_leads_nowhere_else() {
        assert_eq!(linked(&["handlers", "WORKER", "a/b?c#d e"]), "/handlers/WORKER/a%2Fb%3Fc%23d%20e");
        // Percent-encoded once more, so that what a browser asks for has no dots.
        assert_eq!(linked(&["handlers", "..", "."]), "/handlers/%252E%252E/%252E");
        assert_eq!(joined(&["handlers", "..", "."]), "/handlers/../.", "the API is asked for the name");
    }
}
