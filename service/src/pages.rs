//! The pages: all of them on one screen, each with its address, and the navigation.
//!
//! Only lists them: `page` has the frame around them, and `resources` what they show. Below the
//! canvas, an address is that of the API's route without `/v1`.

use axum::Router;
use axum::routing::{get, post};

use crate::access::Scope;
use crate::page::{Group, Held, Link, Page};
use crate::resources::audit::page as audit;
use crate::resources::batches::page as batches;
use crate::resources::crons::page as crons;
use crate::resources::dead_events::page as dead_events;
use crate::resources::dead_events::page::{error_group, error_groups};
use crate::resources::emit::page as emit;
use crate::resources::ended_events::page as ended_events;
use crate::resources::entities::page as entities;
use crate::resources::events::page as events;
use crate::resources::find::page as find;
use crate::resources::groups::page as groups;
use crate::resources::handlers::page as handlers;
use crate::resources::handlers::page::{purge, stops};
use crate::resources::hooks::page as hooks;
use crate::resources::keys::page as keys;
use crate::resources::limits::page as limits;
use crate::resources::log::page as log;
use crate::resources::objects::page as objects;
use crate::resources::operations::page as operations;
use crate::resources::overview::page as overview;
use crate::resources::pulled::page as pulled;
use crate::resources::queues::page as queues;
use crate::resources::queues::page::{facets, leases, removal};
use crate::resources::quotas::page as quotas;
use crate::resources::switches::page as switches;
use crate::resources::targets::page as targets;
use crate::resources::targets::page::{changes, secret};
use crate::resources::workers::page as workers;

/// The navigation. A link stands here once its page does.
pub(crate) const SECTIONS: &[Group] = &[
    Group {
        heading: "Now",
        links: &[
            // A key for some handlers begins here, too.
            Link { held: Held::Nowhere, ..link("", "Overview", 'o', Scope::Read) },
            link("events", "Events", 'e', Scope::Read),
            link("dead-events", "Dead events", 'd', Scope::Read),
            link("ended-events", "Kept events", 'k', Scope::Read),
            Link { held: Held::OnSome, ..link("new-event", "New event", 'n', Scope::Emit) },
        ],
    },
    Group {
        heading: "Work",
        links: &[
            link("handlers", "Handlers", 'h', Scope::Read),
            link("cron", "Crons", 'c', Scope::Read),
            link("hooks", "Webhooks", 'w', Scope::Read),
            link("batches", "Batches", 'b', Scope::Read),
            link("pulled-handlers", "Pulled handlers", 'i', Scope::Read),
            everywhere("queues", "Queues", 'q', Scope::Read),
        ],
    },
    Group {
        heading: "Order",
        links: &[
            link("halted-objects", "Objects", 'j', Scope::Read),
            link("entities", "Entities", 't', Scope::Read),
            link("log", "Log", 'l', Scope::Read),
            everywhere("groups", "Groups", 'r', Scope::Read),
        ],
    },
    Group {
        heading: "Operate",
        links: &[
            everywhere("workers", "Workers", 'y', Scope::Read),
            link("limits", "Limits", 'm', Scope::Read),
            link("quotas", "Quotas", 'a', Scope::Read),
            link("operations", "Operations", 'u', Scope::Read),
            link("keys", "Keys", 'x', Scope::Admin),
            link("record", "Record", 'z', Scope::Admin),
        ],
    },
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
        .route("/canvases/{canvas}/find", get(find::find))
        .route("/canvases/{canvas}/events", get(events::list))
        .route("/canvases/{canvas}/events/{id}", get(events::one))
        .route("/canvases/{canvas}/events/{id}/run-now", post(events::run_now))
        .route("/canvases/{canvas}/events/{id}/due", post(events::set_due))
        .route("/canvases/{canvas}/events/{id}/redrive", post(events::redrive))
        .route("/canvases/{canvas}/events/{id}/tags", post(events::set_tags))
        .route("/canvases/{canvas}/events/{id}/cancel", get(events::ask_cancel).post(events::cancel))
        .route("/canvases/{canvas}/ended-events", get(ended_events::list))
}

/// What dead events died of, and the events.
fn of_dead_events(router: Router<Page>) -> Router<Page> {
    router
        .route("/canvases/{canvas}/dead-events", get(error_groups::list))
        .route("/canvases/{canvas}/dead-events/groups/{error_group}", get(error_group::one))
        .route("/canvases/{canvas}/dead-events/groups/{error_group}/known", post(error_group::know))
        .route("/canvases/{canvas}/dead-events/groups/{error_group}/forget", post(error_group::forget))
        .route("/canvases/{canvas}/dead-events/list", get(dead_events::list))
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
        .route("/canvases/{canvas}/cron", get(crons::list).post(crons::create))
        .route("/canvases/{canvas}/cron/{cron}", get(crons::one).post(crons::put))
        .route("/canvases/{canvas}/cron/{cron}/run-now", post(crons::run_now))
        .route("/canvases/{canvas}/cron/{cron}/pause", post(crons::pause))
        .route("/canvases/{canvas}/cron/{cron}/unpause", post(crons::unpause))
        .route("/canvases/{canvas}/cron/{cron}/delete", get(crons::ask_delete).post(crons::delete))
        .route("/canvases/{canvas}/hooks", get(hooks::list).post(hooks::create))
        .route("/canvases/{canvas}/hooks/{hook}", get(hooks::one).post(hooks::put))
        .route("/canvases/{canvas}/hooks/{hook}/rotate-secret", post(hooks::rotate))
        .route("/canvases/{canvas}/hooks/{hook}/delete", get(hooks::ask_delete).post(hooks::delete))
        .route("/canvases/{canvas}/new-event", get(emit::show).post(emit::emit))
}

fn of_batches(router: Router<Page>) -> Router<Page> {
    router
        .route("/canvases/{canvas}/batches", get(batches::list))
        .route("/canvases/{canvas}/batches/{batch}", get(batches::one))
        .route("/canvases/{canvas}/batches/{batch}/close", get(batches::ask_close).post(batches::close))
        .route("/canvases/{canvas}/batches/{batch}/give-up", get(batches::ask_give_up).post(batches::give_up))
}

/// Registered queues, and handlers that programs pull.
fn of_queues(router: Router<Page>) -> Router<Page> {
    router
        .route("/canvases/{canvas}/queues", get(queues::list))
        .route("/canvases/{canvas}/queues/{queue}", get(queues::one))
        .route("/canvases/{canvas}/queues/{queue}/delete", get(removal::ask).post(removal::delete))
        .route("/canvases/{canvas}/queues/{queue}/settings", get(facets::settings))
        .route("/canvases/{canvas}/queues/{queue}/facets", get(facets::list).post(facets::set_any))
        .route("/canvases/{canvas}/queues/{queue}/facets/{facet}", get(facets::one).post(facets::set))
        .route("/canvases/{canvas}/queues/{queue}/leases", get(leases::list))
        .route("/canvases/{canvas}/queues/{queue}/leases/{id}/end", get(leases::ask_end).post(leases::end))
        .route("/canvases/{canvas}/pulled-handlers", get(pulled::list).post(pulled::create))
        .route("/canvases/{canvas}/pulled-handlers/{module}/{name}", get(pulled::one).post(pulled::put))
        .route(
            "/canvases/{canvas}/pulled-handlers/{module}/{name}/delete",
            get(pulled::ask_delete).post(pulled::delete),
        )
}

/// Objects and entities.
fn of_objects(router: Router<Page>) -> Router<Page> {
    router
        .route("/canvases/{canvas}/halted-objects", get(objects::halted))
        .route("/canvases/{canvas}/objects/{object}", get(objects::one))
        .route("/canvases/{canvas}/objects/{object}/skip", get(objects::ask_skip).post(objects::skip))
        .route("/canvases/{canvas}/entities", get(entities::list))
        .route("/canvases/{canvas}/entities/status/{id}", get(entities::status))
        .route("/canvases/{canvas}/entities/{type}/{entity}", get(entities::one))
        .route(
            "/canvases/{canvas}/entities/{type}/{entity}/erase",
            get(entities::ask_erase).post(entities::erase),
        )
}

/// The log and its groups.
fn of_log(router: Router<Page>) -> Router<Page> {
    router
        .route("/canvases/{canvas}/log", get(log::list))
        .route("/canvases/{canvas}/log/categories", get(log::names::categories))
        .route("/canvases/{canvas}/log/streams", get(log::names::streams))
        .route("/canvases/{canvas}/groups", get(groups::list))
        .route("/canvases/{canvas}/groups/{group}", get(groups::one))
        .route(
            "/canvases/{canvas}/groups/{group}/reset",
            get(groups::change::ask_reset).post(groups::change::reset),
        )
        .route("/canvases/{canvas}/groups/{group}/recover", post(groups::change::recover))
        .route(
            "/canvases/{canvas}/groups/{group}/remove",
            get(groups::change::ask_remove).post(groups::change::remove),
        )
        .route("/canvases/{canvas}/groups/{group}/dead", get(groups::dead::list))
        .route(
            "/canvases/{canvas}/groups/{group}/dead/redrive",
            get(groups::dead::ask_redrive).post(groups::dead::redrive),
        )
}

fn of_workers(router: Router<Page>) -> Router<Page> {
    router
        .route("/canvases/{canvas}/workers", get(workers::list))
        .route("/canvases/{canvas}/workers/{worker}", get(workers::one))
}

/// Limits and quotas.
fn of_limits(router: Router<Page>) -> Router<Page> {
    router
        .route("/canvases/{canvas}/limits", get(limits::list).post(limits::change::put))
        .route("/canvases/{canvas}/limits/{limit}", get(limits::one))
        .route("/canvases/{canvas}/limits/{limit}/holders", get(limits::holders::show))
        .route("/canvases/{canvas}/limits/{limit}/set", get(limits::change::ask_set))
        .route(
            "/canvases/{canvas}/limits/{limit}/remove",
            get(limits::change::ask_remove).post(limits::change::remove),
        )
        .route("/canvases/{canvas}/quotas", get(quotas::list))
        .route("/canvases/{canvas}/quotas/{quota}", get(quotas::ask_set).post(quotas::set))
        .route("/canvases/{canvas}/quotas/{quota}/unset", post(quotas::unset))
}

fn of_operations(router: Router<Page>) -> Router<Page> {
    router
        .route("/canvases/{canvas}/operations", get(operations::list).post(operations::begin))
        .route("/canvases/{canvas}/operations/new", get(operations::show_new))
        .route("/canvases/{canvas}/operations/{operation}", get(operations::one))
        .route("/canvases/{canvas}/operations/{operation}/cancel", post(operations::cancel))
}

/// Keys, and the record of what was done.
fn of_keys(router: Router<Page>) -> Router<Page> {
    router
        .route("/canvases/{canvas}/keys", get(keys::list).post(keys::create))
        .route("/canvases/{canvas}/keys/{key}/revoke", get(keys::ask_revoke).post(keys::revoke))
        .route("/canvases/{canvas}/record", get(audit::list))
}

const fn link(path: &'static str, label: &'static str, key: char, scope: Scope) -> Link {
    Link { path, label, key, scope, held: Held::OnCanvas }
}

/// A link to what concerns every canvas.
const fn everywhere(path: &'static str, label: &'static str, key: char, scope: Scope) -> Link {
    Link { path, label, key, scope, held: Held::Everywhere }
}
