//! Finds programs by name. It must never start one.

use std::env;
use std::path::PathBuf;

/// The first program of this name in the folders of `PATH`.
///
/// ```
/// assert!(wakeq_testbed::program_on_path("sh").is_some());
/// ```
pub fn program_on_path(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|folder| folder.join(name)).find(|program| program.is_file())
}
