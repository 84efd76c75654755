//! Points at which a test can kill or stop the process. Builds that are not for tests have none.

/// Aborts the process, without clean-up, if `WAKEQ_FAULT` names this point. With the prefix `stop:`
/// the process is stopped there instead, once, until it is continued.
#[cfg(all(debug_assertions, feature = "testing"))]
pub fn point(name: &str) {
    let Ok(chosen) = std::env::var("WAKEQ_FAULT") else { return };
    if chosen == name {
        std::process::abort();
    }
    if chosen.strip_prefix("stop:") == Some(name) {
        stop_once();
    }
}

/// The signal is sent to this very thread, which then stops the process. Sent to the process,
/// another thread might receive it, and this one would continue until that is scheduled.
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
pub fn point(_name: &str) {}
