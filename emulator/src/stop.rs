//! What asks the program to stop: signals, or on Windows the events of its console.
//!
//! It only listens for them, and must never end the program itself.

use anyhow::Context as _;

/// Listens for SIGTERM and Ctrl-C from now on; the future completes with the first of them.
#[cfg(unix)]
pub(crate) fn stop_requests() -> anyhow::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};

    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for Ctrl-C")?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

/// Listens for Ctrl-C, Ctrl-Break, the end of the console, and the system's shutdown, which is the
/// end of a container, too. After the last two, Windows ends the process within seconds.
#[cfg(windows)]
pub(crate) fn stop_requests() -> anyhow::Result<impl Future<Output = ()>> {
    use tokio::signal::windows::{ctrl_break, ctrl_c, ctrl_close, ctrl_shutdown};

    let mut interrupt = ctrl_c().context("cannot listen for Ctrl-C")?;
    let mut terminate = ctrl_break().context("cannot listen for Ctrl-Break")?;
    let mut close = ctrl_close().context("cannot listen for the end of the console")?;
    let mut shutdown = ctrl_shutdown().context("cannot listen for the system's shutdown")?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = close.recv() => {}
            _ = shutdown.recv() => {}
        }
    })
}
