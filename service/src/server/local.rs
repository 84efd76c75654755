//! The API in process, for the operator of a command: the same routes without a connection, and so
//! without credentials, limits, and records of requests.
//!
//! Must never be reached over a network.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::http::Method;
use tokio_util::sync::CancellationToken;

use super::HttpConfig;
use crate::access::{Access, AccessConfig, AccessError};
use crate::checkup::Checkup;
use crate::delivery::Deliverer;
use crate::http::caller::Operator;
use crate::http::inside::{Inside, Sender};
use crate::http::limits::Limits;
use crate::http::listeners::Listeners;
use crate::http::problem::{Cause, Problem, Words};
use crate::http::pull_state::PullState;
use crate::http::push_state::Push;
use crate::http::record::AuditBuffer;
use crate::http::shares::Shares;
use crate::http::{Api, ApiParts};
use crate::routes::routes;
use wakeq::log::Log;
use wakeq::notify::Notifier;
use wakeq::{Actor, Admin, Queue, QueueConfig, Store};
use wakeq_streams::{Entities, Groups};

/// The API of a database.
pub(crate) struct LocalApi {
    routes: Inside,
    operator: Operator,
}

/// Why a call failed.
pub(crate) enum CallError {
    /// The error behind the answer.
    Error(SharedError),
    /// An answer with this status, and what is wrong.
    Refused(u16, String),
}

impl LocalApi {
    /// The operator is named by `actor`. `patience` limits the time for which a call wakes events.
    /// Without a deliverer, no targets can be registered.
    pub(crate) fn new(
        store: Store,
        notifier: Arc<dyn Notifier>,
        patience: Option<Duration>,
        deliverer: Option<Deliverer>,
        actor: &Actor,
    ) -> Result<Self, AccessError> {
        let (config, stop) = (HttpConfig::default(), CancellationToken::new());
        let admin = Admin::new(store.clone(), Arc::clone(&notifier));
        let admin = patience.into_iter().fold(admin, Admin::patience);
        let log = Log::new(store.clone(), notifier.as_ref());
        let queue = Queue::new(store.clone(), notifier, QueueConfig::default());
        let api = ApiParts {
            log,
            groups: Groups::new(store.clone()),
            entities: Entities::new(queue.clone()),
            queue,
            access: Access::new(store.clone(), AccessConfig::default())?,
            deliverer,
            limits: Limits { body_bytes: usize::MAX, request_time: Duration::MAX, ..config.limits() },
            shares: Shares::new(config.share_limits()),
            recent_canvases: Arc::default(),
            audit: AuditBuffer::start(&admin),
            readiness: Arc::default(),
            checkup: Checkup::new(store),
            push: Push::new(None),
            pulls: PullState::new(stop.clone()),
            listeners: Listeners::new(config.listener_limits(), None, stop),
            webhooks: Default::default(),
            admin,
        };
        let api = Api::new(api);
        let (router, _) = routes(&api).split_for_parts();
        Ok(Self { routes: Inside::new(router.with_state(api)), operator: Operator(actor.name().into()) })
    }

    /// Answers a request to a path with its query; a body is JSON.
    pub(crate) async fn call(
        self,
        method: Method,
        path: &str,
        body: Option<Vec<u8>>,
    ) -> Result<Vec<u8>, CallError> {
        let answered = self.routes.call(Sender::Operator(self.operator), method, path, body.into()).await;
        Ok(answered.map_err(CallError::from)?.body.into())
    }
}

impl From<Problem> for CallError {
    fn from(problem: Problem) -> Self {
        let status = problem.kind.status().as_u16();
        match problem.cause() {
            Some(cause) => match cause.downcast_ref() {
                Some(Words(words)) => Self::Refused(status, words.clone()),
                None => Self::Error(SharedError(Arc::clone(cause))),
            },
            None => Self::Refused(status, problem.detail().to_owned()),
        }
    }
}

/// An error that several places hold: says what that error says, which is its source.
#[derive(Debug)]
pub(crate) struct SharedError(Cause);

impl fmt::Display for SharedError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

impl Error for SharedError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(self.0.as_ref())
    }
}
