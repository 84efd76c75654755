//! Middleware that is written for tower, as layers. Only its two traits are known here, which are
//! crates without dependencies of their own.

use std::error::Error;
use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use tower_layer::Layer as TowerLayer;
use tower_service::Service;

use super::layer::Layer;
use crate::worker::answers::{Completion, HandlerError, HandlerResult};
use crate::worker::execution::{BoxedHandler, Execution};

type BoxError = Box<dyn Error + Send + Sync>;

/// A handler as tower's services see it: what a tower layer is put around.
///
/// ```
/// use wakeq::Handlers;
/// use wakeq::workers::HandlerService;
///
/// /// Changes nothing.
/// #[derive(Clone)]
/// struct Through;
///
/// impl tower_layer::Layer<HandlerService> for Through {
///     type Service = HandlerService;
///
///     fn layer(&self, inner: HandlerService) -> HandlerService {
///         inner
///     }
/// }
///
/// let handlers = Handlers::new().tower_layer(Through).on("greet", |_event| async { Ok(()) });
/// ```
#[derive(Clone)]
pub struct HandlerService(BoxedHandler);

impl Service<Execution> for HandlerService {
    type Response = Completion;
    type Error = HandlerFailure;
    type Future = BoxFuture<'static, Result<Completion, HandlerFailure>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), HandlerFailure>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, execution: Execution) -> Self::Future {
        let running = (self.0)(execution);
        Box::pin(async move { running.await.map_err(HandlerFailure) })
    }
}

/// The error of a handler as an error that tower's middleware can pass on. If it comes out of the
/// outermost layer, alone or as the source of another error, the run ends as the handler said.
#[derive(Clone, Debug)]
pub struct HandlerFailure(HandlerError);

impl HandlerFailure {
    /// What the handler returned.
    pub fn error(&self) -> &HandlerError {
        &self.0
    }
}

impl fmt::Display for HandlerFailure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.0.message())
    }
}

impl Error for HandlerFailure {}

/// A tower layer as one of ours. A service is made per handler, and cloned per run.
pub(super) fn of_tower<L, T>(layer: L) -> Layer
where
    L: TowerLayer<HandlerService, Service = T> + Send + Sync + 'static,
    T: Service<Execution, Response = Completion> + Clone + Send + 'static,
    T::Error: Into<BoxError>,
    T::Future: Send,
{
    Arc::new(move |inner: BoxedHandler| -> BoxedHandler {
        // A service need not be `Sync`.
        let service = Mutex::new(layer.layer(HandlerService(inner)));
        Arc::new(move |execution: Execution| -> BoxFuture<'static, HandlerResult<Completion>> {
            let service = service.lock().unwrap_or_else(PoisonError::into_inner).clone();
            Box::pin(call(service, execution))
        })
    })
}

async fn call<T>(mut service: T, execution: Execution) -> HandlerResult<Completion>
where
    T: Service<Execution, Response = Completion> + Send,
    T::Error: Into<BoxError>,
    T::Future: Send,
{
    poll_fn(|context| service.poll_ready(context)).await.map_err(|error| said(error.into()))?;
    service.call(execution).await.map_err(|error| said(error.into()))
}

/// What an error says about the run: what the handler said, if it came from there; otherwise it is
/// operational, as any error that `?` passes on.
fn said(error: BoxError) -> HandlerError {
    let error: &(dyn Error + 'static) = &*error;
    let mut next = Some(error);
    while let Some(cause) = next {
        if let Some(HandlerFailure(error)) = cause.downcast_ref() {
            return error.clone();
        }
        next = cause.source();
    }
    HandlerError::of_chain(error)
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use crate::machine::HandlerEnd;

    #[derive(Debug, thiserror::Error)]
    #[error("the service failed")]
    struct Wrapped(#[source] HandlerFailure);

    #[test]
    fn what_the_handler_said_comes_through() {
        let value = HandlerFailure(HandlerError::value("no address"));
        for error in [BoxError::from(value.clone()), BoxError::from(Wrapped(value))] {
            let said = said(error);
            assert_eq!((said.end(), said.message()), (HandlerEnd::Completed, "no address"));
        }
        let other = said(io::Error::other("no route").into());
        assert_eq!((other.end(), other.message()), (HandlerEnd::Failed(None), "no route"));
    }
}
