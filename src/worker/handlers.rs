//! Registration of handlers: an explicit list of routes, each with its policy.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;
use uuid::Uuid;

use super::answers::{HandlerError, HandlerResult};
use crate::event::{
    CanvasId, CopyOf, EventId, HandlerAddress, InvalidName, Name, Place, Timestamp, Traceparent,
};
use crate::machine::RetryPolicy;

/// How long after its emit an event may be told that it is too early, unless its route says otherwise.
pub(super) const PATIENCE: Duration = Duration::from_secs(24 * 3600);

/// An event on its handler.
#[derive(Clone, Debug)]
pub struct Execution {
    /// The event's id: the same for every attempt, so a key for idempotent effects. If its caller chose one, it is
    /// [`EventId::chosen`] of that.
    pub id: EventId,
    /// The handler it runs on.
    pub address: HandlerAddress,
    /// The emitted value, as JSON.
    pub json: String,
    /// Which attempt this is, from 1. Attempts whose process died are not counted.
    pub attempt: u32,
    /// When it was emitted.
    pub enqueued_at: Timestamp,
    /// When it was due.
    pub due_at: Timestamp,
    /// When this attempt claimed it, on the database's clock.
    pub claimed_at: Timestamp,
    /// The trace it belongs to.
    pub traceparent: Option<Traceparent>,
    /// The object it is about, and its link in the object's chain.
    pub place: Option<Place>,
    /// The registered queue that it is in, and the event that it is a copy of, if it is one.
    pub copy_of: Option<CopyOf>,
}

/// What emitted an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Origin {
    /// Somebody: a program with the library, or a caller of the API. What it says is theirs.
    Emitted,
    /// A tick of a cron of the event's canvas.
    Cron,
    /// An entity of the event's canvas that says what became of an event.
    Entity,
}

impl Execution {
    /// What emitted it: events of the modules `CRON` and `ANSWER` come from crons and entities alone, by whatever way somebody
    /// else tries to emit them. A copy in a queue comes from where its event came from.
    ///
    /// ```
    /// use wakeq::{Execution, HandlerError, HandlerResult, Origin};
    ///
    /// async fn nightly(execution: Execution) -> HandlerResult {
    ///     match execution.origin() {
    ///         Origin::Cron => Ok(()),
    ///         _ => Err(HandlerError::operational("this is for the cron")),
    ///     }
    /// }
    /// ```
    pub fn origin(&self) -> Origin {
        match self.address.scope.module.as_str() {
            "CRON" => Origin::Cron,
            "ANSWER" => Origin::Entity,
            _ => Origin::Emitted,
        }
    }

    /// The emitted value. A value of another shape is an operational error, so that the event ends among the dead,
    /// where it can be seen.
    pub fn value<T: DeserializeOwned>(&self) -> Result<T, HandlerError> {
        serde_json::from_str(&self.json).map_err(|error| {
            HandlerError::operational(format!("the event's value does not fit the handler: {error}"))
        })
    }
}

/// Which events go to a handler, and how it runs.
///
/// ```
/// use std::time::Duration;
/// use wakeq::{Handlers, RetryPolicy, Route};
///
/// let retry = RetryPolicy { retries: 5, delay: Duration::from_secs(10), factor: 2, ..Default::default() };
/// let weekly = Route::new("report").module("REPORTS").modifier("weekly").retry(retry).concurrency(2);
/// let handlers = Handlers::new().on(weekly, |_event| async { Ok(()) });
/// ```
#[derive(Clone, Debug)]
pub struct Route {
    canvas: Option<CanvasId>,
    module: String,
    name: String,
    modifier: String,
    retry: RetryPolicy,
    timeout: Option<Duration>,
    concurrency: Option<usize>,
    halts: bool,
    patience: Duration,
}

impl Route {
    /// Events for the handler `name` of module `WORKER`, modifier `_`, of every canvas.
    pub fn new(name: &str) -> Self {
        Self {
            canvas: None,
            module: "WORKER".into(),
            name: name.into(),
            modifier: "_".into(),
            retry: RetryPolicy::default(),
            timeout: None,
            concurrency: None,
            halts: false,
            patience: PATIENCE,
        }
    }

    /// Only of this canvas; goes before a route for every canvas.
    pub fn canvas(mut self, canvas: CanvasId) -> Self {
        self.canvas = Some(canvas);
        self
    }

    /// Of another module.
    pub fn module(mut self, module: &str) -> Self {
        self.module = module.into();
        self
    }

    /// With another modifier.
    pub fn modifier(mut self, modifier: &str) -> Self {
        self.modifier = modifier.into();
        self
    }

    /// How it is tried again.
    pub fn retry(mut self, retry: RetryPolicy) -> Self {
        self.retry = retry;
        self
    }

    /// An attempt that takes longer is cut off and counts as an operational error. Default: no limit.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// How long after its emit an event may be told [`HandlerError::not_yet`] without an attempt being counted. Default 24 h;
    /// longer where events are emitted with a longer delay, which counts too.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// When an event of an object dies, the object's later events for this handler wait, until somebody brings the dead one
    /// back or passes over it. Default: they run, and the dead event is all that is left of it.
    ///
    /// ```
    /// use wakeq::{Handlers, Route};
    ///
    /// let bookings = Route::new("book").halt_on_death();
    /// let handlers = Handlers::new().on(bookings, |_event| async { Ok(()) });
    /// ```
    pub fn halt_on_death(mut self) -> Self {
        self.halts = true;
        self
    }

    /// At most this many at a time on a worker. Default: as many as the worker has room for.
    pub fn concurrency(mut self, concurrency: usize) -> Self {
        self.concurrency = Some(concurrency);
        self
    }
}

impl From<&str> for Route {
    fn from(name: &str) -> Self {
        Self::new(name)
    }
}

/// Why a list of handlers is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRoute {
    /// A part of a route's address is no valid name.
    #[error(transparent)]
    Name(#[from] InvalidName),
    /// Two handlers for the same events.
    #[error("two handlers are registered for {0}: keep one")]
    Twice(String),
    /// A handler that may never run.
    #[error("the handler for {0} has concurrency 0: use at least 1, or leave it out")]
    NoConcurrency(String),
}

pub(super) type BoxedHandler = Arc<dyn Fn(Execution) -> BoxFuture<'static, HandlerResult> + Send + Sync>;

/// The handlers of a worker: an explicit list.
#[derive(Clone, Default)]
pub struct Handlers {
    routes: Vec<(Route, BoxedHandler)>,
    queues: Vec<(Route, BoxedHandler)>,
}

impl Handlers {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a handler for a name, or for a [`Route`]. It must not block its thread, which would stop the renewal of
    /// leases: what computes for long belongs on [`tokio::task::spawn_blocking`].
    pub fn on<F, R>(mut self, route: impl Into<Route>, handler: F) -> Self
    where
        F: Fn(Execution) -> R + Send + Sync + 'static,
        R: Future<Output = HandlerResult> + Send + 'static,
    {
        self.routes.push((route.into(), Arc::new(move |event| Box::pin(handler(event)))));
        self
    }

    /// Adds a handler for a registered queue, whatever events are copied into it. Of a [`Route`] the name is the queue's;
    /// canvas, module and modifier mean nothing.
    ///
    /// ```
    /// use wakeq::{Handlers, Route};
    ///
    /// let handlers = Handlers::new().on_queue(Route::new("email-events").concurrency(8), |event| async move {
    ///     println!("{} of canvas {}", event.address, event.address.scope.canvas);
    ///     Ok(())
    /// });
    /// ```
    pub fn on_queue<F, R>(mut self, queue: impl Into<Route>, handler: F) -> Self
    where
        F: Fn(Execution) -> R + Send + Sync + 'static,
        R: Future<Output = HandlerResult> + Send + 'static,
    {
        self.queues.push((queue.into(), Arc::new(move |event| Box::pin(handler(event)))));
        self
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.routes.is_empty() && self.queues.is_empty()
    }

    pub(super) fn registry(self) -> Result<Registry, InvalidRoute> {
        let mut handlers = HashMap::new();
        for (route, run) in self.routes {
            for part in [&route.module, &route.name, &route.modifier] {
                part.parse::<Name>()?;
            }
            let key = key(route.canvas, &route.module, &route.name, &route.modifier);
            let of_one_canvas = route.canvas.is_some();
            let handler = handler(&key, route, run)?;
            if handlers.insert(key.clone(), (of_one_canvas, Arc::new(handler))).is_some() {
                return Err(InvalidRoute::Twice(key));
            }
        }
        let mut queues = HashMap::new();
        for (route, run) in self.queues {
            let queue: Name = route.name.parse()?;
            let called = format!("queue {queue}");
            let handler = handler(&called, route, run)?;
            if queues.insert(queue, Arc::new(handler)).is_some() {
                return Err(InvalidRoute::Twice(called));
            }
        }
        Ok(Registry { handlers, queues })
    }
}

fn handler(called: &str, route: Route, run: BoxedHandler) -> Result<Handler, InvalidRoute> {
    if route.concurrency == Some(0) {
        return Err(InvalidRoute::NoConcurrency(called.to_owned()));
    }
    let room = route.concurrency.map(|limit| Arc::new(Semaphore::new(limit.min(Semaphore::MAX_PERMITS))));
    let Route { retry, timeout, halts, patience, .. } = route;
    Ok(Handler { run, retry, timeout, room, share: None, halts, patience, revision: None })
}

/// A registered handler.
pub(super) struct Handler {
    pub(super) run: BoxedHandler,
    pub(super) retry: RetryPolicy,
    pub(super) timeout: Option<Duration>,
    /// Room for more runs, where that is limited.
    pub(super) room: Option<Arc<Semaphore>>,
    /// What its canvas may take of the worker, if others may not wait for that.
    pub(super) share: Option<Arc<Semaphore>>,
    /// Whether an object stands still when an event of it dies.
    pub(super) halts: bool,
    /// How old an event may be that is told to come again without being counted.
    pub(super) patience: Duration,
    /// Which registration it is of, if it is a target and not a function.
    pub(super) revision: Option<Uuid>,
}

/// The handlers by their keys.
pub(super) struct Registry {
    handlers: HashMap<String, (bool, Arc<Handler>)>,
    queues: HashMap<Name, Arc<Handler>>,
}

impl Registry {
    pub(super) fn find(&self, address: &HandlerAddress) -> Option<&Arc<Handler>> {
        let scope = &address.scope;
        let key = |canvas| key(canvas, scope.module.as_str(), scope.name.as_str(), address.modifier.as_str());
        let found = self.handlers.get(&key(Some(scope.canvas))).or_else(|| self.handlers.get(&key(None)));
        found.map(|(_, handler)| handler)
    }

    /// The handler of a registered queue.
    pub(super) fn of_queue(&self, queue: &Name) -> Option<&Arc<Handler>> {
        self.queues.get(queue)
    }

    /// The longest time-out of a handler that has one.
    pub(super) fn longest_timeout(&self) -> Option<Duration> {
        let all = self.handlers.values().map(|(_, handler)| handler).chain(self.queues.values());
        all.filter_map(|handler| handler.timeout).max()
    }

    /// Keys of the handlers for every canvas.
    pub(super) fn any_canvas(&self) -> Vec<String> {
        self.keys(|of_one_canvas, _| !of_one_canvas)
    }

    /// Keys of the handlers for one canvas.
    pub(super) fn one_canvas(&self) -> Vec<String> {
        self.keys(|of_one_canvas, _| of_one_canvas)
    }

    /// Keys of the handlers without a limit, for every canvas and for one: their events may be claimed before anything
    /// is known of them. A handler for every canvas is not among them if one canvas has a limited one in its place.
    pub(super) fn unlimited(&self) -> (Vec<String>, Vec<String>) {
        let limited: Vec<String> =
            self.keys(|of_one_canvas, handler| of_one_canvas && handler.room.is_some());
        let replaced = |key: &str| {
            limited.iter().any(|limited| limited.split_once('/').is_some_and(|(_, rest)| rest == key))
        };
        let mut any_canvas = self.keys(|of_one_canvas, handler| !of_one_canvas && handler.room.is_none());
        any_canvas.retain(|key| !replaced(key));
        (any_canvas, self.keys(|of_one_canvas, handler| of_one_canvas && handler.room.is_none()))
    }

    fn keys(&self, wanted: impl Fn(bool, &Handler) -> bool) -> Vec<String> {
        let entries =
            self.handlers.iter().filter(|(_, (of_one_canvas, handler))| wanted(*of_one_canvas, handler));
        entries.map(|(key, _)| key.clone()).collect()
    }
}

/// The form in which the claim compares the handlers of one canvas.
pub(super) fn canvas_key(address: &HandlerAddress) -> String {
    format!("{}/{address}", address.scope.canvas)
}

/// The form in which the claim compares handlers.
fn key(canvas: Option<CanvasId>, module: &str, name: &str, modifier: &str) -> String {
    match canvas {
        Some(canvas) => format!("{canvas}/{module}/{name}/{modifier}"),
        None => format!("{module}/{name}/{modifier}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn nothing(_event: Execution) -> HandlerResult {
        Ok(())
    }

    #[test]
    fn wrong_lists_are_refused() {
        let refused = |handlers: Handlers| handlers.registry().err().map(|error| error.to_string());
        assert_eq!(
            refused(Handlers::new().on("a", nothing).on(Route::new("a").modifier("b"), nothing)),
            None
        );
        assert!(refused(Handlers::new().on("a", nothing).on("a", nothing)).unwrap().contains("two handlers"));
        assert!(refused(Handlers::new().on("a b", nothing)).unwrap().contains("no valid name"));
        let never = Handlers::new().on(Route::new("a").concurrency(0), nothing);
        assert!(refused(never).unwrap().contains("concurrency 0"));
    }
}
