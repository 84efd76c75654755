//! The signals that end a process.

use std::io;

/// Listens for SIGTERM and SIGINT from now on; the returned future completes when the first of them
/// arrives. The signals no longer end the process: shut the worker down, and return from `main`. On
/// systems other than Unix it listens for Ctrl-C.
///
/// ```no_run
/// # async fn example(worker: wakeq::QueueWorker) -> Result<(), Box<dyn std::error::Error>> {
/// let (signal, stop) = (wakeq::shutdown_signal()?, worker.stop_token());
/// tokio::spawn(async move {
///     signal.await;
///     stop.cancel();
/// });
/// worker.run().await?;
/// # Ok(())
/// # }
/// ```
#[cfg(unix)]
pub fn shutdown_signal() -> io::Result<impl Future<Output = ()> + Send + 'static> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

#[cfg(not(unix))]
#[expect(missing_docs, reason = "as above")]
pub fn shutdown_signal() -> io::Result<impl Future<Output = ()> + Send + 'static> {
    Ok(async {
        let _ = tokio::signal::ctrl_c().await;
    })
}
