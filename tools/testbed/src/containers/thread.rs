//! The thread on which this process talks to an engine, with a runtime of its own.
//!
//! The engine's client shares its connections between all callers, and a connection dies with the
//! runtime on which it was opened. That must never be a test's runtime, which ends with its test
//! while other tests still use the client.

use std::io;
use std::panic::resume_unwind;

use tokio::runtime::{Builder, Runtime};
use tokio::sync::OnceCell;

/// A handle to the thread, which ends with the process.
#[derive(Clone, Copy, Debug)]
pub(super) struct EngineThread(&'static Runtime);

impl EngineThread {
    pub(super) async fn shared() -> io::Result<Self> {
        static SHARED: OnceCell<Runtime> = OnceCell::const_new();
        let runtime = SHARED.get_or_try_init(async || {
            Builder::new_multi_thread().worker_threads(1).thread_name("containers").enable_all().build()
        });
        runtime.await.map(Self)
    }

    /// Returns the result of the work, or resumes its panic. The work continues if the caller stops
    /// waiting.
    pub(super) async fn run<T: Send + 'static>(self, work: impl Future<Output = T> + Send + 'static) -> T {
        match self.0.spawn(work).await {
            Ok(done) => done,
            // The thread never ends, so nothing cancels what it does.
            Err(failed) => resume_unwind(failed.into_panic()),
        }
    }

    /// Work whose result is not awaited.
    pub(super) fn leave(self, work: impl Future<Output = ()> + Send + 'static) {
        self.0.spawn(work);
    }
}
