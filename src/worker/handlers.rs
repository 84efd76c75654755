//! Registration of handlers: an explicit list of routes, each with its policy.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;
use uuid::Uuid;

use super::answers::{HandlerError, HandlerResult};
use super::places::PlaceKind;
use crate::event::{
    CanvasId, CopyOf, EventId, HandlerAddress, InvalidName, Metadata, Name, Place, Timestamp, target_of_queue,
};
use crate::machine::RetryPolicy;
use crate::store::ClaimedEvent;

/// Default of [`Route::patience`].
pub(super) const PATIENCE: Duration = Duration::from_secs(24 * 3600);

/// An event passed to its handler.
#[derive(Clone, Debug)]
pub struct Execution {
    /// The event's id: the same in every attempt, so it can be a key for idempotent effects. If the
    /// caller chose an id, this is [`EventId::chosen`] of it.
    pub id: EventId,
    /// The handler's address.
    pub address: HandlerAddress,
    /// The emitted value as JSON.
    pub json: String,
    /// The attempt, counted from 1. Attempts whose process died are not counted.
    pub attempt: u32,
    /// When it was emitted.
    pub enqueued_at: Timestamp,
    /// When it was due.
    pub due_at: Timestamp,
    /// When this attempt claimed the event, on the database's clock.
    pub claimed_at: Timestamp,
    /// Its metadata, with the trace of this attempt.
    pub metadata: Metadata,
    /// The object that the event is on, and its link in the object's chain.
    pub place: Option<Place>,
    /// If the event is a copy: its registered queue, and the event that was copied.
    pub copy_of: Option<CopyOf>,
}

/// The kind of source that emitted an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Origin {
    /// A program that uses the library, or a caller of the API. The content is theirs.
    Emitted,
    /// A tick of a cron on the event's canvas.
    Cron,
    /// An entity on the event's canvas, reporting the outcome of another event.
    Entity,
}

impl Execution {
    pub(super) fn of(event: ClaimedEvent, attempt: u32) -> Self {
        Self {
            id: event.claim.id,
            address: event.address,
            json: event.value,
            attempt,
            enqueued_at: event.enqueued_at,
            due_at: event.delay_until,
            claimed_at: event.locked_at,
            metadata: event.metadata,
            place: event.place,
            copy_of: event.copy_of,
        }
    }

    /// The source of the event. Only crons and entities can emit events of the modules `CRON` and
    /// `ANSWER`: every other way to emit refuses these modules. A copy in a queue has the origin of
    /// the event that was copied.
    ///
    /// ```
    /// use wakeq::workers::Origin;
    /// use wakeq::{Execution, HandlerError, HandlerResult};
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

    /// Deserializes the emitted value. A value of another shape is an operational error, so that
    /// the event ends up among the dead events, where it can be seen.
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
    /// Events for the handler `name` of module `WORKER`, modifier `_`, on every canvas.
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

    /// Restricts the route to this canvas. It takes precedence over a route for every canvas.
    pub fn canvas(mut self, canvas: CanvasId) -> Self {
        self.canvas = Some(canvas);
        self
    }

    /// Sets the module. Default `WORKER`.
    pub fn module(mut self, module: &str) -> Self {
        self.module = module.into();
        self
    }

    /// Sets the modifier. Default `_`.
    pub fn modifier(mut self, modifier: &str) -> Self {
        self.modifier = modifier.into();
        self
    }

    /// Sets when and how often a failed event is retried.
    pub fn retry(mut self, retry: RetryPolicy) -> Self {
        self.retry = retry;
        self
    }

    /// Sets the time after which an attempt is cut off as an operational error. Default: none.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Sets for how long an event can be postponed with [`HandlerError::not_yet`] without counting
    /// an attempt, from the first time. Default 24 h. Earlier waits of the event do not count, and
    /// a redriven event starts anew.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// When an event of an object dies, halts the object's later events for this handler until the
    /// dead event is redriven or skipped. Default: they run.
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

    /// Sets how many of these events run at once on one worker. Default: the worker's capacity.
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

/// Why a list of handlers is not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidRoute {
    /// A part of a route's address is not a valid name.
    #[error(transparent)]
    Name(#[from] InvalidName),
    /// Two handlers for the same events.
    #[error("two handlers are registered for {0}: keep one")]
    Twice(String),
    /// A handler that could never run.
    #[error("the handler for {0} has concurrency 0: use at least 1, or leave it out")]
    NoConcurrency(String),
}

/// A handler, called once per attempt.
pub type BoxedHandler = Arc<dyn Fn(Execution) -> BoxFuture<'static, HandlerResult> + Send + Sync>;

/// The handlers of a worker: an explicit list.
#[derive(Clone, Default)]
pub struct Handlers {
    routes: Vec<(Route, BoxedHandler)>,
    queues: Vec<(Route, BoxedHandler)>,
}

impl Handlers {
    /// An empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a handler for a name or a [`Route`]. The handler must not block its thread, because
    /// that stops the renewal of leases: move long computations to [`tokio::task::spawn_blocking`].
    pub fn on<F, R>(mut self, route: impl Into<Route>, handler: F) -> Self
    where
        F: Fn(Execution) -> R + Send + Sync + 'static,
        R: Future<Output = HandlerResult> + Send + 'static,
    {
        self.routes.push((route.into(), Arc::new(move |event| Box::pin(handler(event)))));
        self
    }

    /// Adds a handler for a registered queue, whatever events are copied into it. The name of the
    /// [`Route`] is the queue's; its canvas, module and modifier are ignored.
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

    /// Whether no handler was added.
    pub fn is_empty(&self) -> bool {
        self.routes.is_empty() && self.queues.is_empty()
    }

    /// The modules and names of its functions.
    pub(super) fn names(&self) -> impl Iterator<Item = (&str, &str)> {
        self.routes.iter().map(|(route, _)| (route.module.as_str(), route.name.as_str()))
    }

    pub(super) fn registry(self) -> Result<Registry, InvalidRoute> {
        let mut registry = Registry::default();
        for (route, run) in self.routes {
            for part in [&route.module, &route.name, &route.modifier] {
                part.parse::<Name>()?;
            }
            let (canvas, key) = (route.canvas, key(&route.module, &route.name, &route.modifier));
            let called = canvas.map_or_else(|| key.clone(), |canvas| format!("{canvas}/{key}"));
            let handler = Arc::new(handler(&called, route, run)?);
            let routes = match canvas {
                Some(canvas) => registry.of_canvas.entry(canvas).or_default(),
                None => &mut registry.of_all,
            };
            if routes.insert(key, handler).is_some() {
                return Err(InvalidRoute::Twice(called));
            }
        }
        for (route, run) in self.queues {
            let queue: Name = route.name.parse()?;
            let called = format!("queue {queue}");
            let handler = handler(&called, route, run)?;
            if registry.queues.insert(queue, Arc::new(handler)).is_some() {
                return Err(InvalidRoute::Twice(called));
            }
        }
        Ok(registry)
    }
}

fn handler(called: &str, route: Route, run: BoxedHandler) -> Result<Handler, InvalidRoute> {
    if route.concurrency == Some(0) {
        return Err(InvalidRoute::NoConcurrency(called.to_owned()));
    }
    let concurrency =
        route.concurrency.map(|limit| Arc::new(Semaphore::new(limit.min(Semaphore::MAX_PERMITS))));
    let Route { retry, timeout, halts, patience, .. } = route;
    Ok(Handler { run, retry, timeout, concurrency, halts, patience, revision: None })
}

/// A registered handler, or a target.
pub(super) struct Handler {
    pub(super) run: BoxedHandler,
    pub(super) retry: RetryPolicy,
    pub(super) timeout: Option<Duration>,
    /// Limits how many of its events run at once.
    pub(super) concurrency: Option<Arc<Semaphore>>,
    /// Whether the death of an event halts its lane.
    pub(super) halts: bool,
    /// How long "not yet" is not counted as an attempt, from the first time.
    pub(super) patience: Duration,
    /// The revision of the target's registration; `None` for a function.
    pub(super) revision: Option<Uuid>,
}

impl Handler {
    /// The kind of handler under which it takes a place.
    pub(super) fn kind(&self) -> PlaceKind {
        match (self.revision, &self.concurrency) {
            (None, _) => PlaceKind::Function,
            (Some(_), None) => PlaceKind::Target,
            (Some(_), Some(_)) => PlaceKind::LimitedTarget,
        }
    }
}

/// The handlers by key.
#[derive(Default)]
pub(super) struct Registry {
    of_all: HashMap<String, Arc<Handler>>,
    of_canvas: HashMap<CanvasId, HashMap<String, Arc<Handler>>>,
    queues: HashMap<Name, Arc<Handler>>,
}

impl Registry {
    pub(super) fn find(&self, address: &HandlerAddress) -> Option<&Arc<Handler>> {
        let scope = &address.scope;
        let key = key(scope.module.as_str(), scope.name.as_str(), address.modifier.as_str());
        let of_canvas = self.of_canvas.get(&scope.canvas).and_then(|handlers| handlers.get(&key));
        of_canvas.or_else(|| self.of_all.get(&key))
    }

    /// The handler for a registered queue.
    pub(super) fn of_queue(&self, queue: &Name) -> Option<&Arc<Handler>> {
        self.queues.get(queue)
    }

    /// The longest timeout of all handlers that have one.
    pub(super) fn longest_timeout(&self) -> Option<Duration> {
        let of_canvas = self.of_canvas.values().flat_map(HashMap::values);
        let all = self.of_all.values().chain(of_canvas).chain(self.queues.values());
        all.filter_map(|handler| handler.timeout).max()
    }

    /// Keys of the handlers for every canvas.
    pub(super) fn any_canvas(&self) -> Vec<String> {
        self.of_all.keys().cloned().collect()
    }

    /// Keys of the handlers for one canvas.
    pub(super) fn one_canvas(&self) -> Vec<String> {
        self.routes_of_canvases().map(|(canvas, key, _)| format!("{canvas}/{key}")).collect()
    }

    /// The addresses of all handlers, in order: `module/name/modifier`, after a canvas if it is the
    /// only one. The module of queues is `QUEUE`.
    pub(super) fn addresses(&self) -> Vec<String> {
        let queues = self.queues.keys().map(|queue| target_of_queue(queue).to_string());
        let mut all: Vec<String> =
            self.any_canvas().into_iter().chain(self.one_canvas()).chain(queues).collect();
        all.sort_unstable();
        all
    }

    /// Keys of the handlers without a concurrency limit, for every canvas and for one: their events
    /// may be claimed before they are loaded. A handler for every canvas is left out if a limited
    /// one replaces it on some canvas.
    pub(super) fn unlimited(&self) -> (Vec<String>, Vec<String>) {
        let limited = self.routes_of_canvases().filter(|(.., handler)| handler.concurrency.is_some());
        let replaced: HashSet<&str> = limited.map(|(_, key, _)| key).collect();
        let of_all = self.of_all.iter().filter(|(_, handler)| handler.concurrency.is_none());
        let of_all = of_all.filter(|(key, _)| !replaced.contains(key.as_str()));
        let of_canvas = self.routes_of_canvases().filter(|(.., handler)| handler.concurrency.is_none());
        (
            of_all.map(|(key, _)| key.clone()).collect(),
            of_canvas.map(|(canvas, key, _)| format!("{canvas}/{key}")).collect(),
        )
    }

    fn routes_of_canvases(&self) -> impl Iterator<Item = (CanvasId, &str, &Handler)> {
        self.of_canvas.iter().flat_map(|(canvas, handlers)| {
            handlers.iter().map(|(key, handler)| (*canvas, key.as_str(), handler.as_ref()))
        })
    }
}

/// A handler's key on one canvas, as the claim compares it.
pub(super) fn canvas_key(address: &HandlerAddress) -> String {
    format!("{}/{address}", address.scope.canvas)
}

/// A handler's key on every canvas, as the claim compares it.
fn key(module: &str, name: &str, modifier: &str) -> String {
    [module, "/", name, "/", modifier].concat()
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
        assert!(refused(Handlers::new().on("a b", nothing)).unwrap().contains("not a valid name"));
        let never = Handlers::new().on(Route::new("a").concurrency(0), nothing);
        assert!(refused(never).unwrap().contains("concurrency 0"));
    }

    #[test]
    fn the_addresses_of_all_handlers_are_listed() {
        let one = Route::new("a").modifier("big").canvas(CanvasId::DEFAULT);
        let handlers = Handlers::new().on_queue("mail", nothing).on(one, nothing).on("b", nothing);
        let listed = handlers.registry().unwrap().addresses();
        let expected = ["00000000-0000-0000-0000-000000000000/WORKER/a/big", "QUEUE/mail/_", "WORKER/b/_"];
        assert_eq!(listed, expected);
    }
}
