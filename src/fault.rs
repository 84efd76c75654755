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

/// A shell sends the signal: there is no call for it in the standard library.
#[cfg(all(debug_assertions, feature = "testing"))]
fn stop_once() {
    use std::sync::atomic::{AtomicBool, Ordering};

    static STOPPED: AtomicBool = AtomicBool::new(false);
    if !STOPPED.swap(true, Ordering::Relaxed) {
        let stop = format!("kill -STOP {}", std::process::id());
        // It is continued before it can read how that went.
        let _ = std::process::Command::new("sh").args(["-c", &stop]).status();
    }
}

/// Does nothing.
#[cfg(not(all(debug_assertions, feature = "testing")))]
pub(crate) fn point(_name: &str) {}
