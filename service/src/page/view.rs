//! What a page answers with: a view, or a change that was made.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use maud::Markup;

use crate::http::problem::Problem;

/// A page's contents, which the frame goes around.
#[derive(Clone)]
pub(crate) struct View {
    pub(super) title: String,
    pub(super) filter: Markup,
    pub(super) above: Markup,
    pub(super) live: Option<Markup>,
    pub(super) below: Markup,
    pub(super) status: StatusCode,
}

impl View {
    /// A page with a title, which is its heading.
    pub(crate) fn new(title: impl Into<String>) -> Self {
        let empty = || maud::html! {};
        let (filter, above, below) = (empty(), empty(), empty());
        Self { title: title.into(), filter, above, live: None, below, status: StatusCode::OK }
    }

    /// The filter, and what the page is for: it stands before everything that the filter decides
    /// about, and stays as it is while that is replaced.
    pub(crate) fn filter(self, filter: Markup) -> Self {
        Self { filter, ..self }
    }

    /// What stands before the live part, and stays as it is: controls.
    pub(crate) fn above(self, above: Markup) -> Self {
        Self { above, ..self }
    }

    /// What the browser shows as it is now: the page is asked for again while somebody looks, so
    /// this must be read with [`Ask::shared`](super::ask::Ask::shared), and must have no forms.
    pub(crate) fn live(self, live: Markup) -> Self {
        Self { live: Some(live), ..self }
    }

    /// What stands last, and stays as it is.
    pub(crate) fn below(self, below: Markup) -> Self {
        Self { below, ..self }
    }

    /// Says first why what was asked for is refused, above the fields that were filled in.
    pub(crate) fn refused(self, problem: &Problem) -> Self {
        problem.log();
        let above = maud::html! { p.trouble role="alert" { (problem.detail()) } (self.above) };
        Self { above, status: problem.kind.status(), ..self }
    }
}

/// For the frame, which has the page's address and its visitor.
impl IntoResponse for View {
    fn into_response(self) -> Response {
        let mut response = self.status.into_response();
        response.extensions_mut().insert(self);
        response
    }
}

/// A change that was made: the browser goes to an address, where it is said.
pub(crate) struct Done {
    to: String,
    said: String,
}

impl Done {
    /// `to` is an address that a [`Visit`](super::visit::Visit) has made.
    pub(crate) fn new(to: impl Into<String>, said: impl Into<String>) -> Self {
        Self { to: to.into(), said: said.into() }
    }
}

/// What is to be said on the next page.
#[derive(Clone)]
pub(super) struct Said(pub(super) String);

impl IntoResponse for Done {
    fn into_response(self) -> Response {
        let mut response = StatusCode::SEE_OTHER.into_response();
        let to = HeaderValue::from_str(&self.to).unwrap_or(HeaderValue::from_static("/"));
        response.headers_mut().insert(header::LOCATION, to);
        response.extensions_mut().insert(Said(self.said));
        response
    }
}
