//! The handlers of a worker by their keys, as runs look them up. Nothing is added once it runs.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use uuid::Uuid;

use super::route::{InvalidRoute, Route};
use crate::event::{
    CanvasId, EventOptions, HandlerAddress, HandlerScope, Keep, LimitName, Name, NewLimit, target_of_queue,
};
use crate::machine::RetryPolicy;
use crate::worker::execution::BoxedHandler;
use crate::worker::places::PlaceKind;

/// A registered handler, or a target.
pub(in crate::worker) struct Handler {
    pub(in crate::worker) run: BoxedHandler,
    pub(in crate::worker) retry: RetryPolicy,
    pub(in crate::worker) timeout: Option<Duration>,
    /// Limits how many of its events run at once.
    pub(in crate::worker) concurrency: Option<Arc<Semaphore>>,
    /// Whether the death of an event halts its lane.
    pub(in crate::worker) halts: bool,
    /// How long "not yet" is not counted as an attempt, from the first time.
    pub(in crate::worker) patience: Duration,
    /// How long its events are kept after they have ended.
    pub(in crate::worker) keep: Keep,
    /// Whether its events are looked at before others that wait here.
    pub(in crate::worker) urgent: bool,
    /// The revision of the target's registration; `None` for a function.
    pub(in crate::worker) revision: Option<Uuid>,
}

impl Handler {
    /// The kind of handler under which it takes a place.
    pub(in crate::worker) fn kind(&self) -> PlaceKind {
        match (self.revision, &self.concurrency) {
            (None, _) => PlaceKind::Function,
            (Some(_), None) => PlaceKind::Target,
            (Some(_), Some(_)) => PlaceKind::LimitedTarget,
        }
    }

    /// After how long an attempt is cut off of an event with these options. A target's attempt ends
    /// by itself when the time that the event asks for is over, so there its own comes on top.
    pub(in crate::worker) fn timeout_for(&self, options: Option<&EventOptions>) -> Option<Duration> {
        let Some(asked) = options.and_then(EventOptions::timeout) else { return self.timeout };
        let own = self.revision.and(self.timeout).unwrap_or_default();
        Some(asked.saturating_add(own))
    }
}

/// The handlers by key.
#[derive(Default)]
pub(in crate::worker) struct Registry {
    of_all: HashMap<String, Arc<Handler>>,
    of_canvas: HashMap<CanvasId, HashMap<String, Arc<Handler>>>,
    queues: HashMap<Name, Arc<Handler>>,
    limits: BTreeMap<(CanvasId, LimitName), NewLimit>,
}

impl Registry {
    /// Adds the handler of a route.
    pub(super) fn add(&mut self, route: Route, run: BoxedHandler) -> Result<(), InvalidRoute> {
        let (module, name): (Name, Name) = (route.module.parse()?, route.name.parse()?);
        route.modifier.parse::<Name>()?;
        self.add_limit(&route, module, name)?;
        let (canvas, key) = (route.canvas, key(&route.module, &route.name, &route.modifier));
        let called = canvas.map_or_else(|| key.clone(), |canvas| format!("{canvas}/{key}"));
        let handler = handler(&called, route, run)?;
        let routes = match canvas {
            Some(canvas) => self.of_canvas.entry(canvas).or_default(),
            None => &mut self.of_all,
        };
        match routes.insert(key, Arc::new(handler)) {
            Some(_) => Err(InvalidRoute::Twice(called)),
            None => Ok(()),
        }
    }

    /// Adds the limit that a route asks for: on its canvas, or that of the operator.
    fn add_limit(&mut self, route: &Route, module: Name, name: Name) -> Result<(), InvalidRoute> {
        let Some(limit) = route.limit else { return Ok(()) };
        let canvas = route.canvas.unwrap_or(CanvasId::OF_ALL);
        let limited = LimitName::of_handler(&HandlerScope { canvas, module, name });
        limit.check_as(&limited).map_err(|invalid| InvalidRoute::Limit(limited.to_string(), invalid))?;
        match self.limits.insert((canvas, limited.clone()), limit) {
            Some(other) if other != limit => Err(InvalidRoute::TwoLimits(limited.to_string())),
            Some(_) | None => Ok(()),
        }
    }

    /// Adds the handler of a registered queue.
    pub(super) fn add_queue(&mut self, route: Route, run: BoxedHandler) -> Result<(), InvalidRoute> {
        let queue: Name = route.name.parse()?;
        let called = format!("queue {queue}");
        if route.limit.is_some() {
            return Err(InvalidRoute::LimitOfQueue(called));
        }
        let handler = handler(&called, route, run)?;
        match self.queues.insert(queue, Arc::new(handler)) {
            Some(_) => Err(InvalidRoute::Twice(called)),
            None => Ok(()),
        }
    }

    /// The limits that the routes ask for.
    pub(in crate::worker) fn limits(&self) -> &BTreeMap<(CanvasId, LimitName), NewLimit> {
        &self.limits
    }

    pub(in crate::worker) fn find(&self, address: &HandlerAddress) -> Option<&Arc<Handler>> {
        let scope = &address.scope;
        let key = key(scope.module.as_str(), scope.name.as_str(), address.modifier.as_str());
        let of_canvas = self.of_canvas.get(&scope.canvas).and_then(|handlers| handlers.get(&key));
        of_canvas.or_else(|| self.of_all.get(&key))
    }

    /// The handler for a registered queue.
    pub(in crate::worker) fn of_queue(&self, queue: &Name) -> Option<&Arc<Handler>> {
        self.queues.get(queue)
    }

    /// The longest timeout of all handlers that have one.
    pub(in crate::worker) fn longest_timeout(&self) -> Option<Duration> {
        let of_canvas = self.of_canvas.values().flat_map(HashMap::values);
        let all = self.of_all.values().chain(of_canvas).chain(self.queues.values());
        all.filter_map(|handler| handler.timeout).max()
    }

    /// Keys of the handlers for every canvas.
    pub(in crate::worker) fn any_canvas(&self) -> Vec<String> {
        self.of_all.keys().cloned().collect()
    }

    /// Keys of the handlers for one canvas.
    pub(in crate::worker) fn one_canvas(&self) -> Vec<String> {
        self.routes_of_canvases().map(|(canvas, key, _)| format!("{canvas}/{key}")).collect()
    }

    /// The addresses of all handlers, in order: `module/name/modifier`, after a canvas if it is the
    /// only one. The module of queues is `QUEUE`.
    pub(in crate::worker) fn addresses(&self) -> Vec<String> {
        let queues = self.queues.keys().map(|queue| target_of_queue(queue).to_string());
        let mut all: Vec<String> =
            self.any_canvas().into_iter().chain(self.one_canvas()).chain(queues).collect();
        all.sort_unstable();
        all
    }

    /// Keys of the handlers without a concurrency limit, for every canvas and for one: their events
    /// may be claimed before they are loaded. A handler for every canvas is left out if a limited
    /// one replaces it on some canvas.
    pub(in crate::worker) fn unlimited(&self) -> (Vec<String>, Vec<String>) {
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

    /// Keys of the urgent handlers, for every canvas and for one. A handler for every canvas counts
    /// as urgent on a canvas where another replaces it.
    pub(in crate::worker) fn urgent(&self) -> (Vec<String>, Vec<String>) {
        let of_all = self.of_all.iter().filter(|(_, handler)| handler.urgent);
        let of_canvas = self.routes_of_canvases().filter(|(.., handler)| handler.urgent);
        (
            of_all.map(|(key, _)| key.clone()).collect(),
            of_canvas.map(|(canvas, key, _)| format!("{canvas}/{key}")).collect(),
        )
    }

    pub(in crate::worker) fn has_urgent(&self) -> bool {
        let mut of_canvas = self.routes_of_canvases();
        self.of_all.values().any(|handler| handler.urgent) || of_canvas.any(|(.., handler)| handler.urgent)
    }

    fn routes_of_canvases(&self) -> impl Iterator<Item = (CanvasId, &str, &Handler)> {
        self.of_canvas.iter().flat_map(|(canvas, handlers)| {
            handlers.iter().map(|(key, handler)| (*canvas, key.as_str(), handler.as_ref()))
        })
    }
}

fn handler(called: &str, route: Route, run: BoxedHandler) -> Result<Handler, InvalidRoute> {
    if route.concurrency == Some(0) {
        return Err(InvalidRoute::NoConcurrency(called.to_owned()));
    }
    if !route.keep.is_within_limits() {
        return Err(InvalidRoute::Keep(called.to_owned()));
    }
    let concurrency =
        route.concurrency.map(|limit| Arc::new(Semaphore::new(limit.min(Semaphore::MAX_PERMITS))));
    let Route { retry, timeout, halts, patience, keep, urgent, .. } = route;
    Ok(Handler { run, retry, timeout, concurrency, halts, patience, keep, urgent, revision: None })
}

/// A handler's key on one canvas, as the claim compares it.
pub(in crate::worker) fn canvas_key(address: &HandlerAddress) -> String {
    format!("{}/{address}", address.scope.canvas)
}

/// A handler's key on every canvas, as the claim compares it.
fn key(module: &str, name: &str, modifier: &str) -> String {
    [module, "/", name, "/", modifier].concat()
}
