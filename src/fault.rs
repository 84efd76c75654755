//! Points where a test can kill the process, or stop it. In builds that are not for tests there are none.

/// Ends the process at once, without any clean-up, when `WAKEQ_FAULT` names this point; after `stop:` the process is stopped
/// there instead, once, until somebody continues it.
#[cfg(all(debug_assertions, feature = "testing"))]
pub(crate) fn point(name: &str) {
    let Ok(chosen) = std::env::var("WAKEQ_FAULT") else { return };
    if chosen == name {
        std::process::abort();
    }
    if chosen.strip_prefix("stop:") == Some(name) {
        stop_once();
    }
}

/// The signal goes to this very thread, which then stops the process: one to the process may be taken by another thread, and this
/// one would go on until that is scheduled.
#[cfg(all(debug_assertions, feature = "testing"))]
fn stop_once() {
    use std::sync::atomic::{AtomicBool, Ordering};

    static STOPPED: AtomicBool = AtomicBool::new(false);
    if !STOPPED.swap(true, Ordering::Relaxed)
        && let Err(error) = nix::sys::signal::raise(nix::sys::signal::Signal::SIGSTOP)
    {
        panic!("the process could not be stopped: {error}");
    }
}

/// Does nothing.
#[cfg(not(all(debug_assertions, feature = "testing")))]
pub(crate) fn point(_name: &str) {}
