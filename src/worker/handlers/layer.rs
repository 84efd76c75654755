//! Layers: code around every run of a handler. A handler is wrapped once, when the list of handlers
//! becomes a worker's; without layers it is left as it is.
//!
//! Must never decide how a run ends: what a layer returns is the handler's result.

use std::sync::Arc;

use futures_util::future::BoxFuture;

use crate::worker::answers::{Completion, HandlerResult};
use crate::worker::execution::{BoxedHandler, Execution};

/// Puts a layer around a handler.
pub(super) type Layer = Arc<dyn Fn(BoxedHandler) -> BoxedHandler + Send + Sync>;

/// What a layer is around: the next layer or, behind the last one, the handler.
///
/// ```
/// use wakeq::workers::{Completion, Next};
/// use wakeq::{Execution, HandlerResult, Handlers};
///
/// async fn timed(execution: Execution, next: Next) -> HandlerResult<Completion> {
///     let (address, begun) = (execution.address.clone(), std::time::Instant::now());
///     let result = next.run(execution).await;
///     println!("{address} took {:?}", begun.elapsed());
///     result
/// }
///
/// let handlers = Handlers::new().layer(timed).on("greet", |_event| async { Ok(()) });
/// ```
#[derive(Clone)]
pub struct Next(BoxedHandler);

impl Next {
    /// Runs the rest. A layer may call it several times, on clones, or not at all.
    pub fn run(self, execution: Execution) -> BoxFuture<'static, HandlerResult<Completion>> {
        (self.0)(execution)
    }
}

/// A function as a layer.
pub(super) fn of_function<F, R>(layer: F) -> Layer
where
    F: Fn(Execution, Next) -> R + Send + Sync + 'static,
    R: Future<Output = HandlerResult<Completion>> + Send + 'static,
{
    let layer = Arc::new(layer);
    Arc::new(move |inner: BoxedHandler| -> BoxedHandler {
        let layer = Arc::clone(&layer);
        Arc::new(move |execution: Execution| -> BoxFuture<'static, HandlerResult<Completion>> {
            Box::pin(layer(execution, Next(Arc::clone(&inner))))
        })
    })
}

/// A handler with layers around it, of which the first is the outermost.
pub(super) fn around(layers: &[Layer], handler: BoxedHandler) -> BoxedHandler {
    layers.iter().rev().fold(handler, |inner, layer| layer(inner))
}
