//! Registration of handlers: an explicit list of routes, each with its policy.

mod execution;
mod layer;
mod middleware;
mod registry;
mod route;
mod state;

use std::error::Error;
use std::future::ready;
use std::sync::Arc;

use futures_util::future::Either;
use serde::de::DeserializeOwned;
use tower_layer::Layer as TowerLayer;
use tower_service::Service;

use super::answers::HandlerResult;
use layer::Layer;

pub use execution::{BoxedHandler, Execution, Origin};
pub use layer::Next;
pub use middleware::{HandlerFailure, HandlerService};
pub(super) use registry::{Handler, Registry, canvas_key};
pub(super) use route::PATIENCE;
pub use route::{InvalidRoute, Route};
pub use state::WithState;

/// The handlers of a worker: an explicit list.
///
/// The parameter is the state that the next handlers share. It is `()` until
/// [`Handlers::state`] sets one.
#[derive(Clone)]
pub struct Handlers<S = ()> {
    routes: Vec<(Route, BoxedHandler)>,
    queues: Vec<(Route, BoxedHandler)>,
    /// From the outermost to the innermost.
    layers: Vec<Layer>,
    state: S,
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
    pub fn on<F, R>(mut self, route: impl Into<Route>, handler: F) -> Self
    where
        F: Fn(Execution) -> R + Send + Sync + 'static,
        R: Future<Output = HandlerResult> + Send + 'static,
    {
        self.routes.push((route.into(), Arc::new(move |event| Box::pin(handler(event)))));
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
    pub fn on_value<T, F, R>(self, route: impl Into<Route>, handler: F) -> Self
    where
        T: DeserializeOwned,
        F: Fn(T, Execution) -> R + Send + Sync + 'static,
        R: Future<Output = HandlerResult> + Send + 'static,
    {
        self.on(route, move |event: Execution| match event.value() {
            Ok(value) => Either::Left(handler(value, event)),
            Err(error) => Either::Right(ready(HandlerResult::Err(error))),
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
    pub fn on_queue<F, R>(mut self, queue: impl Into<Route>, handler: F) -> Self
    where
        F: Fn(Execution) -> R + Send + Sync + 'static,
        R: Future<Output = HandlerResult> + Send + 'static,
    {
        self.queues.push((queue.into(), Arc::new(move |event| Box::pin(handler(event)))));
        self
    }

    /// The modules and names of its functions.
    pub(super) fn names(&self) -> impl Iterator<Item = (&str, &str)> {
        self.routes.iter().map(|(route, _)| (route.module.as_str(), route.name.as_str()))
    }

    pub(super) fn registry(self) -> Result<Registry, InvalidRoute> {
        let Self { routes, queues, layers, state: () } = self;
        let mut registry = Registry::default();
        for (route, run) in routes {
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
    /// use wakeq::workers::Next;
    /// use wakeq::{CanvasId, Execution, HandlerError, HandlerResult, Handlers};
    ///
    /// async fn only_ours(execution: Execution, next: Next) -> HandlerResult {
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
        R: Future<Output = HandlerResult> + Send + 'static,
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
        T: Service<Execution, Response = ()> + Clone + Send + 'static,
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
}
