//! What requests in push mode share in this process: what runs a message, and the minute's pass.

use std::error::Error;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::Semaphore;

use wakeq::database::Retention;

type Failure = Box<dyn Error + Send + Sync>;
type Run = Arc<dyn Fn(Vec<u8>) -> BoxFuture<'static, Result<(), Failure>> + Send + Sync>;

/// The state of the routes of push mode.
pub(crate) struct Push {
    pub(super) run: Option<Run>,
    pub(super) retention: Option<Retention>,
    /// One pass at a time: a second one would find nothing to do.
    pub(super) passing: Arc<Semaphore>,
}

impl Push {
    pub(crate) fn new(retention: Option<Retention>) -> Self {
        Self { run: None, retention, passing: Arc::new(Semaphore::new(1)) }
    }

    /// Sets the function that runs pushed messages.
    pub(crate) fn set_runner<F, R, E>(&mut self, run: F)
    where
        F: Fn(Vec<u8>) -> R + Send + Sync + 'static,
        R: Future<Output = Result<(), E>> + Send + 'static,
        E: Error + Send + Sync + 'static,
    {
        self.run =
            Some(Arc::new(move |message| run(message).map(|ended| ended.map_err(Failure::from)).boxed()));
    }
}
