//! State that handlers share: each run gets a clone of it, so that a list of handlers has no clones
//! of its own to make.
//!
//! Only adds the state to what is passed to a handler. What a route is, is decided by the list.

use std::future::ready;

use futures_util::future::Either;
use serde::de::DeserializeOwned;

use super::Handlers;
use super::batch::{Batch, IntoResults};
use super::route::Route;
use crate::worker::answers::{HandlerError, HandlerOutput, HandlerResult};
use crate::worker::execution::Execution;

/// A list of handlers of this type, [`Handlers<WithState<S>>`](Handlers), passes the state `S` to
/// those that are added next.
#[derive(Clone, Debug)]
pub struct WithState<S>(S);

impl<S> Handlers<S> {
    /// Shares a state, such as pools and clients, with the handlers that are added from here on:
    /// their first argument is a clone of it. Those that were added before remain as they are, with
    /// the state that they had.
    ///
    /// ```
    /// use wakeq::{Execution, HandlerResult, Handlers};
    ///
    /// #[derive(Clone)]
    /// struct App {
    ///     sender: String,
    /// }
    ///
    /// #[derive(serde::Deserialize)]
    /// struct Mail {
    ///     to: String,
    /// }
    ///
    /// async fn send(app: App, mail: Mail, execution: Execution) -> HandlerResult {
    ///     println!("{} from {} to {}", execution.id, app.sender, mail.to);
    ///     Ok(())
    /// }
    ///
    /// let handlers = Handlers::new()
    ///     .on("greet", async |_event: Execution| Ok(()))
    ///     .state(App { sender: "queue@example.org".to_owned() })
    ///     .on_value("send", send)
    ///     .on("sent", async |app: App, event: Execution| {
    ///         println!("{} has sent {}", app.sender, event.id);
    ///         Ok(())
    ///     });
    /// ```
    pub fn state<N: Clone + Send + Sync + 'static>(self, state: N) -> Handlers<WithState<N>> {
        let Self { routes, queues, layers, state: _ } = self;
        Handlers { routes, queues, layers, state: WithState(state) }
    }
}

impl<S: Clone + Send + Sync + 'static> Handlers<WithState<S>> {
    /// As [`Handlers::on`], with the state before the execution.
    pub fn on<F, R, O>(self, route: impl Into<Route>, handler: F) -> Self
    where
        F: Fn(S, Execution) -> R + Send + Sync + 'static,
        R: Future<Output = HandlerResult<O>> + Send + 'static,
        O: HandlerOutput,
    {
        self.adding(|list, state| list.on(route, move |event: Execution| handler(state.clone(), event)))
    }

    /// As [`Handlers::on_value`], with the state before the value.
    pub fn on_value<T, F, R, O>(self, route: impl Into<Route>, handler: F) -> Self
    where
        T: DeserializeOwned,
        F: Fn(S, T, Execution) -> R + Send + Sync + 'static,
        R: Future<Output = HandlerResult<O>> + Send + 'static,
        O: HandlerOutput,
    {
        self.on(route, move |state: S, event: Execution| match event.value() {
            Ok(value) => Either::Left(handler(state, value, event)),
            Err(error) => Either::Right(ready(Err(error))),
        })
    }

    /// As [`Handlers::on_queue`], with the state before the execution.
    pub fn on_queue<F, R, O>(self, queue: impl Into<Route>, handler: F) -> Self
    where
        F: Fn(S, Execution) -> R + Send + Sync + 'static,
        R: Future<Output = HandlerResult<O>> + Send + 'static,
        O: HandlerOutput,
    {
        self.adding(|list, state| list.on_queue(queue, move |event: Execution| handler(state.clone(), event)))
    }

    /// As [`Handlers::on_batch`], with the state before the executions.
    pub fn on_batch<F, R, O>(self, route: impl Into<Route>, batch: Batch, handler: F) -> Self
    where
        F: Fn(S, Vec<Execution>) -> R + Send + Sync + 'static,
        R: Future<Output = Result<O, HandlerError>> + Send + 'static,
        O: IntoResults,
    {
        self.adding(|list, state| {
            list.on_batch(route, batch, move |events: Vec<Execution>| handler(state.clone(), events))
        })
    }

    /// Adds to the list without its state, which is passed along.
    fn adding(self, add: impl FnOnce(Handlers, S) -> Handlers) -> Self {
        let Self { routes, queues, layers, state } = self;
        let WithState(shared) = state.clone();
        let Handlers { routes, queues, layers, state: () } =
            add(Handlers { routes, queues, layers, state: () }, shared);
        Self { routes, queues, layers, state }
    }
}

impl<S> From<Handlers<WithState<S>>> for Handlers {
    /// The list for a worker: the handlers keep their states.
    fn from(handlers: Handlers<WithState<S>>) -> Self {
        let Handlers { routes, queues, layers, state: _ } = handlers;
        Self { routes, queues, layers, state: () }
    }
}
