//! The HTTP API: all routes on one screen, each with the scopes that it needs, and the layers that
//! every request passes.
//!
//! Only lists them: `http` decides what a request may do, and `resources` has what it does.

use std::sync::Arc;

use axum::Router;
use axum::middleware::{from_fn, from_fn_with_state};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::access::Scope;
use crate::http::guard::GuardedRoutes;
use crate::http::operations::strict;
use crate::http::{Api, answer, health, listen, openapi, own, push, slots, strangers};
use crate::resources::attempts::routes as attempts;
use crate::resources::audit::routes as audit;
use crate::resources::batches::routes as batches;
use crate::resources::crons::routes as crons;
use crate::resources::dead_events::routes as dead_events;
use crate::resources::dead_events::routes::groups as error_groups;
use crate::resources::doctor::routes as doctor;
use crate::resources::emit::routes as emit;
use crate::resources::ended_events::routes as ended_events;
use crate::resources::entities::routes as entities;
use crate::resources::events::routes as events;
use crate::resources::events::routes::{checkpoints, due};
use crate::resources::groups::routes as groups;
use crate::resources::handlers::routes as handlers;
use crate::resources::hooks::routes as hooks;
use crate::resources::keys::routes as keys;
use crate::resources::limits::routes as limits;
use crate::resources::log::routes as log;
use crate::resources::objects::routes as objects;
use crate::resources::operations::routes as operations;
use crate::resources::pulled::routes as pulled;
use crate::resources::pulls::routes as pulls;
use crate::resources::pulls::routes::leases;
use crate::resources::queues::routes as queues;
use crate::resources::quotas::routes as quotas;
use crate::resources::statistics::routes as statistics;
use crate::resources::switches::routes as switches;
use crate::resources::targets::routes as targets;
use crate::resources::workers::routes as workers;
use crate::telemetry::HttpMetrics;
use wakeq::targets::OwnDeployment;

/// The API with its layers, of which the last is the outermost; with its documentation if `docs`,
/// and with the pages for browsers, if there are any. `own` identifies deliveries that this
/// deployment sent itself.
pub(crate) fn router(api: &Api, own: Arc<OwnDeployment>, docs: bool, pages: Option<Router>) -> Router {
    let (router, document) = routes(api).split_for_parts();
    let counted = from_fn_with_state(api.clone(), strangers::count);
    let router = match docs {
        true => router.merge(openapi::pages(document, pages.is_none()).route_layer(counted)),
        false => router,
    };
    let router: Router = match pages {
        // Which answer for paths that nothing is at.
        Some(pages) => router.with_state(api.clone()).merge(pages),
        None => router.fallback(strangers::no_path).with_state(api.clone()),
    };
    router
        .layer(from_fn_with_state(api.clone(), strangers::no_method))
        .layer(from_fn(strangers::one_host))
        .layer(from_fn_with_state(Arc::new(slots::Slots::new(api.clone())), slots::shed))
        .layer(from_fn_with_state(own, own::refuse))
        .layer(from_fn_with_state(HttpMetrics::new(), answer::complete))
}

/// The first five routes authenticate their callers themselves: they concern no canvas, or several.
/// So does the last, whose callers have no credential of ours.
pub(crate) fn routes(api: &Api) -> OpenApiRouter<Api> {
    OpenApiRouter::with_openapi(openapi::base())
        .routes(strict(routes!(health::alive)))
        .routes(strict(routes!(health::ready)))
        .routes(strict(routes!(push::push)))
        .routes(strict(routes!(push::wake)))
        .routes(strict(routes!(listen::listen)))
        .merge(guarded().into_router(api))
        .routes(strict(routes!(hooks::receive::receive)))
}

/// The routes that need a credential, each next to its scopes and before its marks.
fn guarded() -> GuardedRoutes {
    let of_canvases = of_pulled_handlers(of_objects(of_a_canvas(GuardedRoutes::default())));
    of_the_platform(of_admins(of_many_events(of_canvases)))
}

fn of_a_canvas(guarded: GuardedRoutes) -> GuardedRoutes {
    guarded
        .emitting(routes!(emit::one))
        .emitting(routes!(emit::batch))
        .reading(routes!(events::list))
        .records_value_searches()
        .reading(routes!(events::count))
        .records_value_searches()
        .reading(routes!(events::one))
        .records_full_views()
        .on(Scope::Operate, routes!(events::cancel))
        .on(Scope::Operate, routes!(events::run_now))
        .on(Scope::Operate, routes!(due::set))
        .on(Scope::Operate, routes!(events::set_tags))
        .on_both([Scope::Read, Scope::Values], routes!(checkpoints::show))
        .records_reads()
        // The claim of the attempt is needed as well.
        .working(routes!(checkpoints::store))
        .reading(routes!(handlers::list))
        .on(Scope::Read, routes!(handlers::one))
        // A target receives the events of its handler, so registering one includes seeing them.
        .on_all([Scope::Operate, Scope::Read, Scope::Values], routes!(targets::put))
        .on(Scope::Operate, routes!(targets::delete))
        .on(Scope::Read, routes!(targets::list))
        .on(Scope::Read, routes!(targets::one))
        .on_all([Scope::Operate, Scope::Read, Scope::Values], routes!(targets::put_modifier))
        .on(Scope::Operate, routes!(targets::delete_modifier))
        .on(Scope::Operate, routes!(handlers::pause, handlers::unpause))
        .optional_body()
        .on(Scope::Operate, routes!(handlers::purge))
        .optional_body()
        .on(Scope::Read, routes!(handlers::depth))
        .on(Scope::Read, routes!(handlers::counts))
        .on(Scope::Read, routes!(attempts::last))
        .on(Scope::Read, routes!(statistics::of_canvas))
        .on(Scope::Read, routes!(statistics::of_handler))
        .on(Scope::Read, routes!(switches::list))
        .on(Scope::Operate, routes!(switches::pause, switches::unpause))
        .optional_body()
        .on(Scope::Read, routes!(limits::list))
        .on(Scope::Read, routes!(limits::one))
        .on(Scope::Read, routes!(limits::uses))
        .on(Scope::Operate, routes!(limits::put, limits::delete))
        // Without values.
        .on(Scope::Read, routes!(crons::list))
        .records_reads()
        .on(Scope::Read, routes!(crons::one))
        .hides_values()
        // A cron emits events.
        .on_both([Scope::Operate, Scope::Emit], routes!(crons::put))
        .on_both([Scope::Operate, Scope::Emit], routes!(crons::run_now))
        .on(Scope::Operate, routes!(crons::delete))
        .on(Scope::Operate, routes!(crons::pause, crons::unpause))
        .optional_body()
        .on(Scope::Read, routes!(hooks::list))
        .on(Scope::Read, routes!(hooks::one))
        // A hook emits events.
        .on_both([Scope::Operate, Scope::Emit], routes!(hooks::put))
        .on(Scope::Operate, routes!(hooks::delete))
        .on(Scope::Read, routes!(batches::list))
        .on(Scope::Read, routes!(batches::one))
        // A batch emits an event.
        .on(Scope::Emit, routes!(batches::open))
        .on(Scope::Emit, routes!(batches::close))
        .on(Scope::Operate, routes!(batches::cancel))
}

/// Objects, entities and the log of a canvas.
fn of_objects(guarded: GuardedRoutes) -> GuardedRoutes {
    guarded
        .on(Scope::Read, routes!(objects::halted))
        .on(Scope::Read, routes!(objects::one))
        .hides_values()
        .on(Scope::Read, routes!(objects::tombstones))
        .on(Scope::Operate, routes!(objects::skip))
        .emitting(routes!(emit::change))
        .on(Scope::Read, routes!(entities::types))
        .on(Scope::Read, routes!(entities::list))
        .on(Scope::Read, routes!(entities::status))
        .hides_values()
        .on(Scope::Read, routes!(entities::one))
        .hides_values()
        .on(Scope::Emit, routes!(entities::send))
        .on(Scope::Emit, routes!(log::append))
        .on(Scope::Read, routes!(log::read))
        .hides_values()
        .on(Scope::Read, routes!(log::categories))
        .on(Scope::Read, routes!(log::streams))
}

/// Handlers whose events programs lease, and the leases.
fn of_pulled_handlers(guarded: GuardedRoutes) -> GuardedRoutes {
    guarded
        .on_both([Scope::Operate, Scope::Read], routes!(pulled::put))
        .optional_body()
        .on(Scope::Read, routes!(pulled::one))
        .on(Scope::Operate, routes!(pulled::delete))
        .on(Scope::Read, routes!(pulled::list))
        .on(Scope::Read, routes!(workers::programs))
        // Leased events contain their values.
        .on_all([Scope::Operate, Scope::Read, Scope::Values], routes!(pulled::lease))
        .optional_body()
        .records_reads()
        .works()
        .on(Scope::Operate, routes!(pulled::extend))
        .works()
        .on(Scope::Operate, routes!(pulled::complete))
        .works()
        .on(Scope::Operate, routes!(pulled::release))
        .works()
}

/// What is about events that have ended, or about many at once.
fn of_many_events(guarded: GuardedRoutes) -> GuardedRoutes {
    guarded
        .reading(routes!(dead_events::list))
        .records_reads()
        .on(Scope::Read, routes!(ended_events::list))
        .records_reads()
        .on(Scope::Read, routes!(ended_events::count))
        .records_value_searches()
        .on(Scope::Operate, routes!(dead_events::redrive_one))
        .on(Scope::Operate, routes!(dead_events::redrive))
        .on(Scope::Operate, routes!(dead_events::delete))
        .on(Scope::Read, routes!(error_groups::list))
        .on(Scope::Read, routes!(error_groups::one))
        .on(Scope::Operate, routes!(error_groups::know, error_groups::forget))
        .optional_body()
        // A filter may ask for what is in values, so a count tells of them.
        .on_both([Scope::Operate, Scope::Read], routes!(operations::begin))
        .on_both([Scope::Operate, Scope::Read], routes!(operations::preview))
        .records_reads()
        .on(Scope::Read, routes!(operations::list))
        .on(Scope::Read, routes!(operations::one))
        .on(Scope::Operate, routes!(operations::cancel))
        .on(Scope::Read, routes!(quotas::list))
        .on(Scope::Read, routes!(quotas::one))
}

/// What takes an admin of the canvas.
fn of_admins(guarded: GuardedRoutes) -> GuardedRoutes {
    guarded
        .on(Scope::Admin, routes!(handlers::block, handlers::unblock))
        .optional_body()
        .on(Scope::Admin, routes!(switches::block, switches::unblock))
        .optional_body()
        .on(Scope::Admin, routes!(entities::erase))
        .on(Scope::Admin, routes!(audit::list))
        .on(Scope::Admin, routes!(keys::list, keys::create))
        .on(Scope::Admin, routes!(keys::one, keys::revoke))
}

fn of_the_platform(guarded: GuardedRoutes) -> GuardedRoutes {
    guarded
        // Tenants may not set their own quotas.
        .everywhere([Scope::Admin], routes!(quotas::set, quotas::unset))
        .always_there()
        .everywhere([Scope::Admin], routes!(switches::block_all, switches::unblock_all))
        .optional_body()
        .always_there()
        // Tenants may set their own limits, which hold beside or in place of these.
        .everywhere([Scope::Read], routes!(limits::list_operators))
        .always_there()
        .everywhere([Scope::Read], routes!(limits::one_operators))
        .everywhere([Scope::Read], routes!(limits::uses_operators))
        .always_there()
        .everywhere([Scope::Admin], routes!(limits::put_operators))
        .always_there()
        .everywhere([Scope::Admin], routes!(limits::delete_operators))
        // A queue receives the events of every canvas.
        .everywhere([Scope::Operate, Scope::Read], routes!(queues::put))
        .always_there()
        .everywhere([Scope::Read], routes!(queues::list))
        .always_there()
        .everywhere([Scope::Read], routes!(queues::one))
        .everywhere([Scope::Operate], routes!(queues::delete))
        .everywhere([Scope::Read], routes!(handlers::total_depth))
        .always_there()
        .everywhere([Scope::Read], routes!(queues::depth))
        .everywhere([Scope::Read], routes!(queues::facets))
        .everywhere([Scope::Read], routes!(queues::facet))
        .everywhere([Scope::Operate], routes!(queues::set_facet))
        .optional_body()
        // Leased copies contain the values of events.
        .everywhere([Scope::Operate, Scope::Read, Scope::Values], routes!(pulls::lease))
        .optional_body()
        .records_reads()
        .everywhere([Scope::Operate], routes!(pulls::extend))
        .everywhere([Scope::Operate], routes!(pulls::complete))
        .everywhere([Scope::Operate], routes!(pulls::release))
        .everywhere([Scope::Read], routes!(leases::list))
        .everywhere([Scope::Operate], routes!(leases::end))
        // A worker runs the events of every canvas.
        .everywhere([Scope::Read], routes!(workers::list))
        .always_there()
        .everywhere([Scope::Read], routes!(workers::one))
        // What it finds is about the whole deployment.
        .everywhere([Scope::Admin], routes!(doctor::show))
        .always_there()
        // A group reads the log of every canvas.
        .everywhere([Scope::Read], routes!(groups::nodes))
        .always_there()
        .everywhere([Scope::Read], routes!(groups::list))
        .always_there()
        .everywhere([Scope::Read], routes!(groups::one))
        .everywhere([Scope::Operate], routes!(groups::reset))
        .everywhere([Scope::Operate], routes!(groups::recover))
        .everywhere([Scope::Operate], routes!(groups::remove))
        .everywhere([Scope::Read], routes!(groups::dead))
        .always_there()
        .hides_values()
        .everywhere([Scope::Operate], routes!(groups::redrive))
        .always_there()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_page_about_access_lists_the_reads_that_are_recorded() {
        let page = include_str!("../../docs/access.md");
        let row = page.lines().find_map(|line| line.strip_prefix("| reads of values by ")).unwrap();
        let names = row.split('`').skip(1).step_by(2).filter(|name| *name != "view=full");
        assert_eq!(names.map(str::to_owned).collect::<BTreeSet<_>>(), guarded().recorded_reads());
    }
}
