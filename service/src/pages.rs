//! The pages: all of them on one screen, each with its address, and the navigation.
//!
//! Only lists them: `page` has the frame around them, and `resources` what they show. Below the
//! canvas, an address is that of the API's route without `/v1`.

use axum::Router;
use axum::routing::get;

use crate::access::Scope;
use crate::page::{Group, Link, Page};
use crate::resources::events::page as events;
use crate::resources::overview::page as overview;

/// The navigation.
pub(crate) const SECTIONS: &[Group] = &[Group {
    heading: "Now",
    links: &[link("", "Overview", 'o', Scope::Read), link("events", "Events", 'e', Scope::Read)],
}];

/// All pages.
pub(crate) fn pages() -> Router<Page> {
    Router::new()
        .route("/canvases/{canvas}", get(overview::show))
        .route("/canvases/{canvas}/events", get(events::list))
        .route("/canvases/{canvas}/events/{id}", get(events::one))
        .route("/canvases/{canvas}/events/{id}/run-now", axum::routing::post(events::run_now))
        .route("/canvases/{canvas}/events/{id}/cancel", get(events::ask_cancel).post(events::cancel))
}

const fn link(path: &'static str, label: &'static str, key: char, scope: Scope) -> Link {
    Link { path, label, key, scope, everywhere: false }
}
