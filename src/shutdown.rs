//! The signals that ask a process to end.

use tokio::signal::unix::{SignalKind, signal};

/// Waits for SIGTERM or SIGINT, and says which it was. Ends never if the signals can't be listened for.
///
/// ```no_run
/// # async fn example(worker: wakeq::QueueWorker) -> Result<(), wakeq::WorkerError> {
/// let stop = worker.stop_token();
/// tokio::spawn(async move {
///     wakeq::shutdown_signal().await;
///     stop.cancel();
/// });
/// worker.run().await
/// # }
/// ```
pub async fn shutdown_signal() -> &'static str {
    let (Ok(mut terminate), Ok(mut interrupt)) =
        (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
    else {
        tracing::error!("SIGTERM and SIGINT can't be listened for: they end the process at once");
        return std::future::pending().await;
    };
    tokio::select! {
        _ = terminate.recv() => "SIGTERM",
        _ = interrupt.recv() => "SIGINT",
    }
}
