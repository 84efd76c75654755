//! Points where a test can kill the process. In release builds there are none.

/// Ends the process at once, without any clean-up, when `WAKEQ_FAULT` names this point.
#[cfg(debug_assertions)]
pub(crate) fn point(name: &str) {
    if std::env::var("WAKEQ_FAULT").is_ok_and(|chosen| chosen == name) {
        std::process::abort();
    }
}

/// Does nothing.
#[cfg(not(debug_assertions))]
pub(crate) fn point(_name: &str) {}
