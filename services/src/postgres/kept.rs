//! The folder in which a cluster is kept from one start to the next, and where root's own stands in for it.
//!
//! It must never remove what a server runs on.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::sys::signal::kill;
use nix::unistd::Pid;

use super::PostgresError;
use super::cluster::{at, give, make_folder};
use crate::process::RunAs;

/// The folder of the data in a cluster's.
pub(super) const DATA: &str = "data";

/// The given folder, or, where root keeps it from Postgres's user, one in /var/tmp that stands for it.
pub(super) fn kept_folder(folder: &Path, owner: Option<RunAs>) -> Result<PathBuf, PostgresError> {
    fs::create_dir_all(folder).map_err(at(folder))?;
    let folder = folder.canonicalize().map_err(at(folder))?;
    give(&folder, owner)?;
    let Some(RunAs { user, group }) = owner else { return Ok(folder) };
    let mut visit = Command::new("sh");
    visit
        .arg("-c")
        .arg(r#"cd "$0""#)
        .arg(&folder)
        .stderr(Stdio::null())
        .current_dir("/")
        .uid(user)
        .gid(group);
    if visit.status().map_err(at(&folder))?.success() {
        return Ok(folder);
    }
    let substitute = substitute(&folder);
    if substitute.is_dir() { Ok(substitute) } else { make_folder(&substitute, owner).map(|()| substitute) }
}

/// Where a folder is, that Postgres's user can't reach.
fn substitute(folder: &Path) -> PathBuf {
    let name = folder.display().to_string().replace('/', "-");
    Path::new("/var/tmp").join(format!("wakeq{name}"))
}

/// Removes a kept cluster with all that is in it; what was removed. It refuses while a server runs on it.
///
/// ```no_run
/// # fn example() -> Result<(), wakeq_services::PostgresError> {
/// for folder in wakeq_services::remove_kept(".dev/postgres".as_ref())? {
///     println!("removed {}", folder.display());
/// }
/// # Ok(()) }
/// ```
pub fn remove_kept(folder: &Path) -> Result<Vec<PathBuf>, PostgresError> {
    let Ok(folder) = folder.canonicalize() else { return Ok(Vec::new()) };
    let places: Vec<_> = [substitute(&folder), folder].into_iter().filter(|place| place.is_dir()).collect();
    for data in places.iter().map(|place| place.join(DATA)) {
        if let Some((pid, port)) = running_in(&data) {
            return Err(PostgresError::AlreadyRunning { folder: data, pid, port });
        }
    }
    for place in &places {
        fs::remove_dir_all(place).map_err(at(place))?;
    }
    Ok(places)
}

/// The process and the port of the server that runs in this data folder.
pub(super) fn running_in(data: &Path) -> Option<(i32, String)> {
    let lines = fs::read_to_string(data.join("postmaster.pid")).ok()?;
    let mut lines = lines.lines();
    let pid = lines.next()?.trim().parse().ok()?;
    let port = lines.nth(2).unwrap_or("unknown").trim().to_owned();
    let is_another_program =
        fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name != "postgres\n");
    (kill(Pid::from_raw(pid), None).is_ok() && !is_another_program).then_some((pid, port))
}
