//! What the pages in a browser are built on: signing in, the frame around each page, the parts that
//! pages are made of, and requests to the API in the name of the person who is signed in.
//!
//! A page is a client of the API that happens to run in the same process: whatever it shows or does
//! is a request to a route, with that route's scopes, limits and records. Must know no resource,
//! and nothing that is behind the API.

pub(crate) mod ask;
pub(crate) mod chart;
mod files;
pub(crate) mod form;
mod frame;
pub(crate) mod given;
mod layout;
mod memo;
pub(crate) mod parts;
mod sign_in;
pub(crate) mod time;
pub(crate) mod view;
pub(crate) mod visit;

use std::ops::Deref;
use std::sync::Arc;

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::get;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::http::Api;
use crate::http::inside::Inside;
pub(crate) use layout::{Group, Link};
use memo::Memo;

/// How many browsers may watch a page at once.
const WATCHERS_MAX: usize = 256;

/// The state of the pages.
#[derive(Clone)]
pub(crate) struct Page(Arc<PageParts>);

/// What the pages use.
pub(crate) struct PageParts {
    api: Api,
    inside: Inside,
    memo: Memo,
    watchers: Arc<Semaphore>,
    /// Cancelled when the process stops.
    stop: CancellationToken,
    /// The sections, as the navigation lists them.
    sections: &'static [Group],
}

impl Page {
    /// Pages whose requests `inside` answers.
    pub(crate) fn new(api: Api, inside: Inside, stop: CancellationToken, sections: &'static [Group]) -> Self {
        let watchers = Arc::new(Semaphore::new(WATCHERS_MAX));
        Self(Arc::new(PageParts { api, inside, memo: Memo::default(), watchers, stop, sections }))
    }

    /// Serves these pages: each in the frame, and only to a person who is signed in.
    pub(crate) fn serve(self, pages: Router<Self>) -> Router {
        let framed = pages
            .route("/", get(sign_in::home))
            .route("/go", get(sign_in::go))
            .route("/canvases/{canvas}/{*rest}", get(sign_in::nowhere))
            .route_layer(from_fn_with_state(self.clone(), frame::frame));
        framed
            .route("/sign-in", get(sign_in::show).post(sign_in::sign_in))
            .route("/sign-out", axum::routing::post(sign_in::sign_out))
            .route("/assets/{file}", get(files::file))
            .with_state(self)
    }
}

impl Deref for Page {
    type Target = PageParts;

    fn deref(&self) -> &PageParts {
        &self.0
    }
}
