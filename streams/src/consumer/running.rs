//! A source that is being worked on: the task, and whether it has ended.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

/// A source that is, or was, being worked on under an epoch.
pub(crate) struct Running {
    pub(crate) epoch: i64,
    /// Ends the task when it is dropped.
    pub(crate) cancel: DropGuard,
    pub(crate) task: JoinHandle<()>,
    /// Whether the work has ended, even if the task has not finished yet.
    over: Arc<AtomicBool>,
}

impl Running {
    /// Starts the work; `ended` follows its end.
    pub(crate) fn start<T>(
        epoch: i64,
        cancel: CancellationToken,
        work: impl Future<Output = T> + Send + 'static,
        ended: impl FnOnce(T) + Send + 'static,
    ) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&over);
        let task = tokio::spawn(async move {
            let end = work.await;
            // Before the health changes: a caller that then recovers the subscriber must see that
            // this work has ended.
            is_over.store(true, Ordering::SeqCst);
            ended(end);
        });
        Self { epoch, cancel: cancel.drop_guard(), task, over }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst) || self.task.is_finished()
    }

    /// Whether it continues when it is offered the source under this epoch. Work that has ended,
    /// for example because it was fenced out, restarts only under a higher epoch: another owner may
    /// have had the source meanwhile.
    pub(crate) fn continues(&self, epoch: i64) -> bool {
        self.epoch >= epoch || !self.is_over()
    }
}
