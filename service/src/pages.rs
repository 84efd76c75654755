//! The pages: all of them on one screen, each with its address, and the navigation.
//!
//! Only lists them: `page` has the frame around them, and `resources` what they show. Below the
//! canvas, an address is that of the API's route without `/v1`.

use axum::Router;
use axum::routing::{get, post};

use crate::access::Scope;
use crate::page::{Group, Link, Page};
use crate::resources::events::page as events;
use crate::resources::overview::page as overview;

/// The navigation. A link stands here once its page does.
pub(crate) const SECTIONS: &[Group] = &[
    Group {
        heading: "Now",
        links: &[link("", "Overview", 'o', Scope::Read), link("events", "Events", 'e', Scope::Read)],
    },
    Group { heading: "Work", links: &[] },
    Group { heading: "Order", links: &[] },
    Group { heading: "Operate", links: &[] },
];

/// All pages.
pub(crate) fn pages() -> Router<Page> {
    let router = Router::new().route("/canvases/{canvas}", get(overview::show));
    let router = of_dead_events(of_events(router));
    let router = of_batches(of_crons(of_handlers(router)));
    let router = of_log(of_objects(of_queues(router)));
    of_keys(of_operations(of_limits(of_workers(router))))
}

fn of_events(router: Router<Page>) -> Router<Page> {
    router
        .route("/canvases/{canvas}/events", get(events::list))
        .route("/canvases/{canvas}/events/{id}", get(events::one))
        .route("/canvases/{canvas}/events/{id}/run-now", post(events::run_now))
        .route("/canvases/{canvas}/events/{id}/cancel", get(events::ask_cancel).post(events::cancel))
}

fn of_dead_events(router: Router<Page>) -> Router<Page> {
    router
}

/// Handlers, their targets, and what stops them.
fn of_handlers(router: Router<Page>) -> Router<Page> {
    router
}

/// Crons and webhooks, and new events.
fn of_crons(router: Router<Page>) -> Router<Page> {
    router
}

fn of_batches(router: Router<Page>) -> Router<Page> {
    router
}

fn of_queues(router: Router<Page>) -> Router<Page> {
    router
}

/// Objects and entities.
fn of_objects(router: Router<Page>) -> Router<Page> {
    router
}

/// The log and its groups.
fn of_log(router: Router<Page>) -> Router<Page> {
    router
}

fn of_workers(router: Router<Page>) -> Router<Page> {
    router
}

/// Limits and quotas.
fn of_limits(router: Router<Page>) -> Router<Page> {
    router
}

fn of_operations(router: Router<Page>) -> Router<Page> {
    router
}

/// Keys, and the record of what was done.
fn of_keys(router: Router<Page>) -> Router<Page> {
    router
}

const fn link(path: &'static str, label: &'static str, key: char, scope: Scope) -> Link {
    Link { path, label, key, scope, everywhere: false }
}
