//! What the routes of the HTTP API are built on: the state of their handlers, the guard, limits and
//! problem details.
//!
//! Parses requests, authorizes callers and passes on; what an event is, and what becomes of it, is
//! decided elsewhere. Must not know which resources there are.

pub(crate) mod answer;
pub(crate) mod body;
pub(crate) mod bytes;
pub(crate) mod caller;
pub(crate) mod client;
pub(crate) mod connection;
mod credential;
pub(crate) mod filter;
pub(crate) mod guard;
pub(crate) mod health;
pub(crate) mod idempotency;
pub(crate) mod inside;
pub(crate) mod limits;
pub(crate) mod listen;
pub(crate) mod listeners;
mod llms;
pub(crate) mod mounted;
pub(crate) mod openapi;
pub(crate) mod operations;
pub(crate) mod own;
pub(crate) mod paging;
pub(crate) mod path;
pub(crate) mod problem;
pub(crate) mod pull_state;
pub(crate) mod push;
pub(crate) mod push_state;
mod readiness;
mod reads;
mod recent_canvases;
pub(crate) mod record;
pub(crate) mod senders;
pub(crate) mod shares;
pub(crate) mod slots;
pub(crate) mod strangers;
pub(crate) mod visitors;

use std::ops::Deref;
use std::sync::Arc;

use crate::access::Access;
use crate::checkup::Checkup;
use crate::delivery::Deliverer;
use crate::telemetry::WebhookMetrics;
use limits::Limits;
use listeners::Listeners;
use problem::{Kind, Problem};
use pull_state::PullState;
use push_state::Push;
use readiness::Readiness;
use recent_canvases::RecentCanvases;
use record::AuditBuffer;
use shares::Shares;
use wakeq::log::Log;
use wakeq::targets::NewTarget;
use wakeq::{Admin, CanvasId, Queue};
use wakeq_streams::{Entities, Groups};

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
    pub(crate) deliverer: Option<Deliverer>,
    pub(crate) limits: Limits,
    pub(crate) shares: Shares,
    pub(crate) recent_canvases: Arc<RecentCanvases>,
    pub(crate) audit: AuditBuffer,
    pub(crate) readiness: Arc<Readiness>,
    pub(crate) checkup: Checkup,
    pub(crate) push: Push,
    pub(crate) pulls: PullState,
    pub(crate) listeners: Listeners,
    pub(crate) webhooks: WebhookMetrics,
}

impl Api {
    pub(crate) fn new(parts: ApiParts) -> Self {
        Self(Arc::new(parts))
    }
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
