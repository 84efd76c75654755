//! The HTTP API: all routes on one screen, each with the scopes that it needs.
//!
//! Parses requests, authorizes callers and passes on. Other modules decide what an event is, and
//! what becomes of it.

mod answer;
pub(crate) mod body;
mod bytes;
pub(crate) mod caller;
mod client;
mod connection;
mod guard;
mod health;
pub(crate) mod limits;
mod listen;
mod local;
mod openapi;
pub(crate) mod operations;
mod own;
pub(crate) mod paging;
pub(crate) mod problem;
mod push;
mod recent_canvases;
mod record;
mod server;
mod shares;
mod strangers;

use std::ops::Deref;
use std::sync::Arc;

use axum::Router;
use axum::middleware::{from_fn, from_fn_with_state};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::access::{Access, Scope};
use crate::delivery::Deliverer;
use crate::resources::audit::routes as audit;
use crate::resources::crons::routes as crons;
use crate::resources::dead_events::routes as dead_events;
use crate::resources::emit::routes as emit;
use crate::resources::entities::routes as entities;
use crate::resources::events::routes as events;
use crate::resources::groups::routes as groups;
use crate::resources::handlers::routes as handlers;
use crate::resources::keys::routes as keys;
use crate::resources::log::routes as log;
use crate::resources::objects::routes as objects;
use crate::resources::pulls::routes as pulls;
use crate::resources::pulls::routes::PullState;
use crate::resources::pulls::routes::leases;
use crate::resources::queues::routes as queues;
use crate::resources::quotas::routes as quotas;
use crate::resources::targets::routes as targets;
use crate::telemetry::HttpMetrics;
use guard::GuardedRoutes;
use health::Readiness;
use limits::Limits;
use listen::Listeners;
pub(crate) use local::{CallError, LocalApi};
use operations::strict;
use problem::{Kind, Problem};
use push::Push;
use recent_canvases::RecentCanvases;
use record::AuditBuffer;
use shares::Shares;
use wakeq::log::Log;
use wakeq::targets::{NewTarget, OwnDeployment};
use wakeq::{Admin, CanvasId, Queue};
use wakeq_streams::{Entities, Groups};

pub use server::{HttpConfig, HttpError, HttpServer};

/// The state of the request handlers. It is one pointer, since axum clones it several times for
/// each request.
#[derive(Clone)]
pub(crate) struct Api(Arc<ApiParts>);

/// The parts that request handlers use.
pub(crate) struct ApiParts {
    pub(crate) queue: Queue,
    pub(crate) admin: Admin,
    pub(crate) groups: Groups,
    pub(crate) entities: Entities,
    pub(crate) log: Log,
    pub(crate) access: Access,
    /// `None` if no targets can be registered here.
    deliverer: Option<Deliverer>,
    pub(crate) limits: Limits,
    pub(crate) shares: Shares,
    pub(crate) recent_canvases: Arc<RecentCanvases>,
    audit: AuditBuffer,
    readiness: Arc<Readiness>,
    push: Push,
    pub(crate) pulls: PullState,
    listeners: Listeners,
}

impl Deref for Api {
    type Target = ApiParts;

    fn deref(&self) -> &ApiParts {
        &self.0
    }
}

impl ApiParts {
    /// Checks that deliveries to this target of a canvas are allowed.
    pub(crate) fn check_target(&self, canvas: CanvasId, target: &NewTarget) -> Result<(), Problem> {
        let Some(deliverer) = &self.deliverer else {
            return Err(Problem::new(Kind::Conflict, "no targets can be registered here"));
        };
        let allowed = deliverer.check(canvas, &target.url).and_then(|()| match &target.audience {
            Some(audience) => deliverer.check_audience(canvas, &target.url, audience),
            None => Ok(()),
        });
        allowed.map_err(Problem::invalid)
    }
}

/// The API with its layers, of which the last is the outermost; with its documentation if `docs`.
/// `own` identifies deliveries that this deployment sent itself.
fn router(api: &Api, own: Arc<OwnDeployment>, docs: bool) -> Router {
    let (router, document) = routes(api).split_for_parts();
    let counted = from_fn_with_state(api.clone(), strangers::count);
    let router = if docs { router.merge(openapi::pages(document).route_layer(counted)) } else { router };
    router
        .fallback(strangers::no_path)
        .layer(from_fn_with_state(api.clone(), strangers::no_method))
        .layer(from_fn(strangers::one_host))
        .layer(from_fn_with_state(Arc::new(limits::Slots::new(api.clone())), limits::shed))
        .layer(from_fn_with_state(own, own::refuse))
        .layer(from_fn_with_state(HttpMetrics::new(), answer::complete))
        .with_state(api.clone())
}

/// The first five routes authenticate their callers themselves: they concern no canvas, or several.
fn routes(api: &Api) -> OpenApiRouter<Api> {
    OpenApiRouter::with_openapi(openapi::base())
        .routes(strict(routes!(health::alive)))
        .routes(strict(routes!(health::ready)))
        .routes(strict(routes!(push::push)))
        .routes(strict(routes!(push::wake)))
        .routes(strict(routes!(listen::listen)))
        .merge(guarded(api).into_router())
}

/// The routes that need a credential, each next to its scopes.
fn guarded(api: &Api) -> GuardedRoutes {
    of_the_platform(of_a_canvas(GuardedRoutes::new(api)))
}

fn of_a_canvas(guarded: GuardedRoutes) -> GuardedRoutes {
    guarded
        .emitting(routes!(emit::one))
        .emitting(routes!(emit::batch))
        .on(Scope::Read, routes!(events::list))
        .on(Scope::Read, routes!(events::one))
        .on(Scope::Operate, routes!(events::cancel))
        .on(Scope::Operate, routes!(events::run_now))
        .on(Scope::Read, routes!(handlers::list))
        .on(Scope::Read, routes!(handlers::one))
        // A target receives the events of its handler, so registering one includes reading.
        .on_both([Scope::Operate, Scope::Read], routes!(targets::put))
        .on(Scope::Operate, routes!(targets::delete))
        .on(Scope::Read, routes!(targets::list))
        .on(Scope::Read, routes!(targets::one))
        .on_both([Scope::Operate, Scope::Read], routes!(targets::put_modifier))
        .on(Scope::Operate, routes!(targets::delete_modifier))
        .on(Scope::Operate, routes!(handlers::pause, handlers::unpause))
        .on(Scope::Operate, routes!(handlers::purge))
        .on(Scope::Read, routes!(handlers::depth))
        .on(Scope::Read, routes!(crons::list))
        .on(Scope::Read, routes!(crons::one))
        // A cron emits events.
        .on_both([Scope::Operate, Scope::Emit], routes!(crons::put))
        .on(Scope::Operate, routes!(crons::delete))
        .on(Scope::Operate, routes!(crons::pause, crons::unpause))
        .on(Scope::Read, routes!(objects::halted))
        .on(Scope::Read, routes!(objects::one))
        .on(Scope::Read, routes!(objects::tombstones))
        .on(Scope::Operate, routes!(objects::skip))
        .emitting(routes!(emit::change))
        .on(Scope::Read, routes!(entities::list))
        .on(Scope::Read, routes!(entities::status))
        .on(Scope::Read, routes!(entities::one))
        .on(Scope::Emit, routes!(entities::send))
        .on(Scope::Admin, routes!(entities::erase))
        .on(Scope::Emit, routes!(log::append))
        .on(Scope::Read, routes!(log::read))
        .on(Scope::Read, routes!(dead_events::list))
        .on(Scope::Operate, routes!(dead_events::redrive_one))
        .on(Scope::Operate, routes!(dead_events::redrive))
        .on(Scope::Operate, routes!(dead_events::delete))
        .on(Scope::Read, routes!(quotas::list))
        .on(Scope::Admin, routes!(handlers::block, handlers::unblock))
        .on(Scope::Admin, routes!(audit::list))
        .on(Scope::Admin, routes!(keys::list, keys::create))
        .on(Scope::Admin, routes!(keys::revoke))
}

fn of_the_platform(guarded: GuardedRoutes) -> GuardedRoutes {
    guarded
        // Tenants may not set their own quotas.
        .everywhere([Scope::Admin], routes!(quotas::set, quotas::unset))
        // A queue receives the events of every canvas.
        .everywhere([Scope::Operate, Scope::Read], routes!(queues::put))
        .everywhere([Scope::Read], routes!(queues::list))
        .everywhere([Scope::Read], routes!(queues::one))
        .everywhere([Scope::Operate], routes!(queues::delete))
        .everywhere([Scope::Read], routes!(handlers::total_depth))
        .everywhere([Scope::Read], routes!(queues::depth))
        .everywhere([Scope::Read], routes!(queues::facets))
        .everywhere([Scope::Operate], routes!(queues::set_facet))
        // Leased copies contain the values of events.
        .everywhere([Scope::Operate, Scope::Read], routes!(pulls::lease))
        .everywhere([Scope::Operate], routes!(pulls::extend))
        .everywhere([Scope::Operate], routes!(pulls::complete))
        .everywhere([Scope::Operate], routes!(pulls::release))
        .everywhere([Scope::Read], routes!(leases::list))
        .everywhere([Scope::Operate], routes!(leases::end))
        // A group reads the log of every canvas.
        .everywhere([Scope::Read], routes!(groups::nodes))
        .everywhere([Scope::Read], routes!(groups::list))
        .everywhere([Scope::Read], routes!(groups::one))
        .everywhere([Scope::Operate], routes!(groups::reset))
        .everywhere([Scope::Operate], routes!(groups::recover))
        .everywhere([Scope::Operate], routes!(groups::remove))
        .everywhere([Scope::Read], routes!(groups::dead))
        .everywhere([Scope::Operate], routes!(groups::redrive))
}
