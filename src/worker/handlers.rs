//! Registration of handlers: an explicit list of routes, each with its policy.

mod batch;
mod gathering;
mod layer;
mod middleware;
mod registry;
mod room;
mod route;
mod state;

use std::error::Error;
use std::future::ready;
use std::sync::Arc;

use futures_util::future::Either;
use serde::de::DeserializeOwned;
use tower_layer::Layer as TowerLayer;
use tower_service::Service;

use super::answers::{Completion, HandlerError, HandlerOutput, HandlerResult};
use super::execution::{BoxedHandler, Execution};
use batch::BatchHandler;
use gathering::Gatherer;
use layer::Layer;

pub use batch::{Batch, IntoResults};
pub use layer::Next;
pub use middleware::{HandlerFailure, HandlerService};
pub(super) use registry::{Handler, Registry, canvas_key};
pub(super) use room::Room;
pub(super) use route::PATIENCE;
pub use route::{InvalidRoute, Route};
pub use state::WithState;

/// The handlers of a worker: an explicit list.
///
/// The parameter is the state that the next handlers share. It is `()` until
/// [`Handlers::state`] sets one.
#[derive(Clone)]
pub struct Handlers<S = ()> {
    routes: Vec<(Route, RouteHandler)>,
    queues: Vec<(Route, BoxedHandler)>,
    /// From the outermost to the innermost.
    layers: Vec<Layer>,
    state: S,
}

/// The handler of a route.
#[derive(Clone)]
enum RouteHandler {
    /// Called once per attempt at an event.
    Single(BoxedHandler),
    Batch(BatchHandler),
}

impl Default for Handlers {
    fn default() -> Self {
        Self::new()
    }
}

impl Handlers {
    /// An empty list.
    pub fn new() -> Self {
        Self { routes: Vec::new(), queues: Vec::new(), layers: Vec::new(), state: () }
    }

    /// Adds a handler for a name or a [`Route`]. The handler must not block its thread, because
    /// that stops the renewal of leases: move long computations to [`tokio::task::spawn_blocking`].
    pub fn on<F, R, O>(mut self, route: impl Into<Route>, handler: F) -> Self
    where
        F: Fn(Execution) -> R + Send + Sync + 'static,
        R: Future<Output = HandlerResult<O>> + Send + 'static,
        O: HandlerOutput,
    {
        self.routes.push((route.into(), RouteHandler::Single(boxed(handler))));
        self
    }

    /// Adds a handler that receives the event's value as its own type. If the value does not fit,
    /// the handler is not called, and the error is that of [`Execution::value`].
    ///
    /// ```
    /// use wakeq::{Execution, Handlers};
    ///
    /// let handlers = Handlers::new().on_value("greet", async |name: String, event: Execution| {
    ///     println!("Hello {name}! (attempt {})", event.attempt);
    ///     Ok(())
    /// });
    /// ```
    pub fn on_value<T, F, R, O>(self, route: impl Into<Route>, handler: F) -> Self
    where
        T: DeserializeOwned,
        F: Fn(T, Execution) -> R + Send + Sync + 'static,
        R: Future<Output = HandlerResult<O>> + Send + 'static,
        O: HandlerOutput,
    {
        self.on(route, move |event: Execution| match event.value() {
            Ok(value) => Either::Left(handler(value, event)),
            Err(error) => Either::Right(ready(Err(error))),
        })
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
    pub fn on_queue<F, R, O>(mut self, queue: impl Into<Route>, handler: F) -> Self
    where
        F: Fn(Execution) -> R + Send + Sync + 'static,
        R: Future<Output = HandlerResult<O>> + Send + 'static,
        O: HandlerOutput,
    {
        self.queues.push((queue.into(), boxed(handler)));
        self
    }

    /// Adds a handler that receives several events in one call, such as the rows of one insert. The
    /// events of a call are of one canvas, for a handler of every canvas too. They gather in this
    /// worker, up to [`Batch::max`] or until the first has waited for [`Batch::wait`], and a call
    /// can always have fewer, because all of them take places of the worker's capacity, which
    /// canvases and handlers share. Events on the same object run one after the other, so a call
    /// never has two of them.
    ///
    /// `Ok(())` completes all of them, and an error is that of each. A
    /// [vector of results](IntoResults) has one for each event, in their order; with another length
    /// all of them fail. Each event is retried, dead or completed by itself. An event whose
    /// time-out, which includes the wait, or lease is over leaves its batch, and the call continues
    /// for the others, even with its value. If the handler panics, all events of the call fail.
    /// An event that has lost its worker repeatedly is in a call of its own.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wakeq::workers::Batch;
    /// use wakeq::{Execution, HandlerResult, Handlers};
    ///
    /// async fn insert(events: Vec<Execution>) -> HandlerResult {
    ///     let rows = events.iter().map(Execution::value).collect::<Result<Vec<String>, _>>()?;
    ///     println!("insert {} rows", rows.len());
    ///     Ok(())
    /// }
    ///
    /// let batch = Batch { max: 500, wait: Duration::from_millis(50), ..Batch::default() };
    /// let handlers = Handlers::new().on_batch("insert", batch, insert);
    /// ```
    pub fn on_batch<F, R, O>(mut self, route: impl Into<Route>, batch: Batch, handler: F) -> Self
    where
        F: Fn(Vec<Execution>) -> R + Send + Sync + 'static,
        R: Future<Output = Result<O, HandlerError>> + Send + 'static,
        O: IntoResults,
    {
        self.routes.push((route.into(), RouteHandler::Batch(BatchHandler::new(batch, handler))));
        self
    }

    /// The modules and names of its functions.
    pub(super) fn names(&self) -> impl Iterator<Item = (&str, &str)> {
        self.routes.iter().map(|(route, _)| (route.module.as_str(), route.name.as_str()))
    }

    /// Events of batch handlers gather in `room`.
    pub(super) fn registry(self, room: &Arc<Room>) -> Result<Registry, InvalidRoute> {
        let Self { routes, queues, layers, state: () } = self;
        let mut registry = Registry::default();
        for (route, handler) in routes {
            let run = match handler {
                RouteHandler::Single(run) => run,
                RouteHandler::Batch(handler) => Gatherer::joining(handler, &route, room)?,
            };
            registry.add(route, layer::around(&layers, run))?;
        }
        for (route, run) in queues {
            registry.add_queue(route, layer::around(&layers, run))?;
        }
        Ok(registry)
    }
}

impl<S> Handlers<S> {
    /// Puts a layer around every run of every handler in this list, whether that is added before or
    /// after it, and also around those of registered queues. The first layer is the outermost: a
    /// run passes them in the order in which they were added.
    ///
    /// A layer belongs to the run. The route's time-out includes it, a panic in it counts as the
    /// handler's, and what it returns decides about the event. HTTP targets, which are not in this
    /// list, run [without layers](crate::workers::RemoteHandlers).
    ///
    /// ```
    /// use wakeq::workers::{Completion, Next};
    /// use wakeq::{CanvasId, Execution, HandlerError, HandlerResult, Handlers};
    ///
    /// async fn only_ours(execution: Execution, next: Next) -> HandlerResult<Completion> {
    ///     if execution.address.scope.canvas != CanvasId::DEFAULT {
    ///         return Err(HandlerError::value("no tenant has this handler"));
    ///     }
    ///     next.run(execution).await
    /// }
    ///
    /// let handlers = Handlers::new().layer(only_ours).on("greet", |_event| async { Ok(()) });
    /// ```
    pub fn layer<F, R>(mut self, layer: F) -> Self
    where
        F: Fn(Execution, Next) -> R + Send + Sync + 'static,
        R: Future<Output = HandlerResult<Completion>> + Send + 'static,
    {
        self.layers.push(layer::of_function(layer));
        self
    }

    /// The same with a layer that is written for tower, such as its time-outs and limits. The layer
    /// is put around each handler, as tower's own documentation says, so a limit is the handler's.
    /// Its service is cloned for each run, and what it waits for until it is ready counts towards
    /// the run's time-out.
    ///
    /// An error of the middleware is operational, unless it is or contains a [`HandlerFailure`].
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower::timeout::TimeoutLayer; // of the package `tower`, with its feature `timeout`
    /// use wakeq::Handlers;
    ///
    /// let within = TimeoutLayer::new(Duration::from_secs(10));
    /// let handlers = Handlers::new().tower_layer(within).on("greet", |_event| async { Ok(()) });
    /// ```
    pub fn tower_layer<L, T>(mut self, layer: L) -> Self
    where
        L: TowerLayer<HandlerService, Service = T> + Send + Sync + 'static,
        T: Service<Execution, Response = Completion> + Clone + Send + 'static,
        T::Error: Into<Box<dyn Error + Send + Sync>>,
        T::Future: Send,
    {
        self.layers.push(middleware::of_tower(layer));
        self
    }

    /// Whether no handler was added.
    pub fn is_empty(&self) -> bool {
        self.routes.is_empty() && self.queues.is_empty()
    }
}

fn boxed<F, R, O>(handler: F) -> BoxedHandler
where
    F: Fn(Execution) -> R + Send + Sync + 'static,
    R: Future<Output = HandlerResult<O>> + Send + 'static,
    O: HandlerOutput,
{
    Arc::new(move |event| {
        let running = handler(event);
        Box::pin(async move { running.await.map(HandlerOutput::completion) })
    })
}

#[cfg(test)]
mod tests {
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::event::{CanvasId, NewLimit};

    async fn nothing(_event: Execution) -> HandlerResult {
        Ok(())
    }

    #[test]
    fn wrong_lists_are_refused() {
        let room = Room::of_test(64, CancellationToken::new());
        let refused = |handlers: Handlers| handlers.registry(&room).err().map(|error| error.to_string());
        assert_eq!(
            refused(Handlers::new().on("a", nothing).on(Route::new("a").modifier("b"), nothing)),
            None
        );
        assert!(refused(Handlers::new().on("a", nothing).on("a", nothing)).unwrap().contains("two handlers"));
        assert!(refused(Handlers::new().on("a b", nothing)).unwrap().contains("not a valid name"));
        let never = Handlers::new().on(Route::new("a").concurrency(0), nothing);
        assert!(refused(never).unwrap().contains("concurrency 0"));
        let five = NewLimit { concurrency: Some(5), ..NewLimit::default() };
        let limited = |modifier: &str, limit| Route::new("a").modifier(modifier).limit(limit);
        let alike = Handlers::new().on(limited("b", five), nothing).on(limited("c", five), nothing);
        assert_eq!(refused(alike), None);
        let other = NewLimit { concurrency: Some(6), ..five };
        let differing = Handlers::new().on(limited("b", five), nothing).on(limited("c", other), nothing);
        assert!(refused(differing).unwrap().contains("handler:WORKER/a differently"));
        let empty = Handlers::new().on(limited("_", NewLimit::default()), nothing);
        assert!(refused(empty).unwrap().starts_with("the handler for handler:WORKER/a: a limit has"));
        let of_queue = Handlers::new().on_queue(Route::new("mail").limit(five), nothing);
        assert!(refused(of_queue).unwrap().contains("in_flight_max"));
        let batch = Batch { max: 0, ..Batch::default() };
        let empty = Handlers::new().on_batch("a", batch, async |_| Ok(()));
        assert_eq!(refused(empty).unwrap(), "the batch handler for a: `max` must be 1 to 10,000");
    }

    #[test]
    fn the_limit_of_a_route_is_the_operators_unless_the_route_has_a_canvas() {
        let five = NewLimit { concurrency: Some(5), ..NewLimit::default() };
        let one = Route::new("a").canvas(CanvasId::DEFAULT).limit(five);
        let handlers = Handlers::new().on(one, nothing).on(Route::new("b").module("M").limit(five), nothing);
        let room = Room::of_test(64, CancellationToken::new());
        let registry = handlers.on("c", nothing).registry(&room).unwrap();
        let limits: Vec<_> = registry
            .limits()
            .iter()
            .map(|((canvas, name), limit)| (*canvas, name.as_str(), *limit))
            .collect();
        let expected =
            [(CanvasId::DEFAULT, "handler:WORKER/a", five), (CanvasId::OF_ALL, "handler:M/b", five)];
        assert_eq!(limits, expected);
    }

    #[test]
    fn the_addresses_of_all_handlers_are_listed() {
        let one = Route::new("a").modifier("big").canvas(CanvasId::DEFAULT);
        let handlers = Handlers::new().on_queue("mail", nothing).on(one, nothing).on("b", nothing);
        let room = Room::of_test(64, CancellationToken::new());
        let listed = handlers.registry(&room).unwrap().addresses();
        let expected = ["00000000-0000-0000-0000-000000000000/WORKER/a/big", "QUEUE/mail/_", "WORKER/b/_"];
        assert_eq!(listed, expected);
    }
}
