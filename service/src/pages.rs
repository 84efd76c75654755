//! The pages: all of them on one screen, each with its address, and the navigation.
//!
//! Only lists them: `page` has the frame around them, and `resources` what they show. Below the
//! canvas, an address is that of the API's route without `/v1`.

use axum::Router;
use axum::routing::{get, post};

use crate::access::Scope;
use crate::page::{Group, Link, Page};
use crate::resources::events::page as events;
use crate::resources::handlers::page as handlers;
use crate::resources::handlers::page::{purge, stops};
use crate::resources::overview::page as overview;
use crate::resources::switches::page as switches;
use crate::resources::targets::page as targets;
use crate::resources::targets::page::{changes, secret};

/// The navigation. A link stands here once its page does.
pub(crate) const SECTIONS: &[Group] = &[
    Group {
        heading: "Now",
        links: &[link("", "Overview", 'o', Scope::Read), link("events", "Events", 'e', Scope::Read)],
    },
    Group { heading: "Work", links: &[link("handlers", "Handlers", 'h', Scope::Read)] },
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
    let router = router
        .route("/canvases/{canvas}/handlers", get(handlers::list))
        .route("/canvases/{canvas}/handlers/{module}/{name}", get(handlers::one))
        .route("/canvases/{canvas}/handlers/{module}/{name}/pause", get(stops::ask_pause).post(stops::pause))
        .route("/canvases/{canvas}/handlers/{module}/{name}/unpause", post(stops::unpause))
        .route("/canvases/{canvas}/handlers/{module}/{name}/block", get(stops::ask_block).post(stops::block))
        .route("/canvases/{canvas}/handlers/{module}/{name}/unblock", post(stops::unblock))
        .route("/canvases/{canvas}/handlers/{module}/{name}/purge", get(purge::ask).post(purge::purge));
    of_switches(of_targets(router))
}

fn of_targets(router: Router<Page>) -> Router<Page> {
    router
        .route("/canvases/{canvas}/targets", get(targets::list))
        .route(
            "/canvases/{canvas}/handlers/{module}/{name}/new-target",
            get(changes::ask_register).post(changes::register),
        )
        .route("/canvases/{canvas}/handlers/{module}/{name}/targets/{modifier}", get(targets::one))
        .route(
            "/canvases/{canvas}/handlers/{module}/{name}/targets/{modifier}/change",
            get(changes::ask_change).post(changes::change),
        )
        .route(
            "/canvases/{canvas}/handlers/{module}/{name}/targets/{modifier}/rotate",
            get(secret::ask_rotate).post(secret::rotate),
        )
        .route(
            "/canvases/{canvas}/handlers/{module}/{name}/targets/{modifier}/delete",
            get(targets::ask_delete).post(targets::delete),
        )
}

/// What stops a whole canvas, or everything.
fn of_switches(router: Router<Page>) -> Router<Page> {
    router
        .route("/canvases/{canvas}/switches", get(switches::list))
        .route("/canvases/{canvas}/pause", get(switches::ask_pause).post(switches::pause))
        .route("/canvases/{canvas}/unpause", post(switches::unpause))
        .route("/canvases/{canvas}/block", get(switches::ask_block).post(switches::block))
        .route("/canvases/{canvas}/unblock", post(switches::unblock))
        .route("/canvases/{canvas}/block-everything", get(switches::ask_block_all).post(switches::block_all))
        .route("/canvases/{canvas}/unblock-everything", post(switches::unblock_all))
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
