//! The folder that keeps a cluster from one start to the next, and the substitute for a folder of
//! root's own.
//!
//! It must never remove a folder in which a server runs.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::kill;
use nix::unistd::Pid;
use tokio::time::sleep;

use super::PostgresError;
use super::cluster::{at, give, make_folder};
use crate::process::RunAs;

/// The data folder within a cluster's folder.
pub(super) const DATA: &str = "data";
/// A server whose parent was killed a moment ago is still shutting down.
const PREDECESSOR_GONE_WITHIN: Duration = Duration::from_secs(3);
const BETWEEN_LOOKS: Duration = Duration::from_millis(10);
/// How much of a path makes the name of its substitute readable.
const NAME_SHOWN_BYTES: usize = 100;

/// The given folder, or its substitute in `/var/tmp` if we run as root and Postgres's user cannot
/// reach it.
pub(super) fn persistent_folder(folder: &Path, owner: Option<RunAs>) -> Result<PathBuf, PostgresError> {
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
    match fs::symlink_metadata(&substitute) {
        // Any user may create a folder of this name in `/var/tmp`.
        Ok(found) if !found.is_dir() || found.uid() != user => {
            Err(PostgresError::NotOurs { folder: substitute })
        }
        Ok(_) => Ok(substitute),
        Err(_) => make_folder(&substitute, owner).map(|()| substitute),
    }
}

/// The substitute for a folder that Postgres's user cannot reach. The hash at the end of its name
/// distinguishes paths that otherwise yield the same name.
fn substitute(folder: &Path) -> PathBuf {
    let path = folder.as_os_str().as_encoded_bytes();
    // FNV-1a, which is stable from one build to the next.
    let hash = path.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let shown = String::from_utf8_lossy(&path[path.len().saturating_sub(NAME_SHOWN_BYTES)..]);
    let name = shown.trim_start_matches('/').replace('/', "-");
    Path::new("/var/tmp").join(format!("wakeq-{name}-{hash:016x}"))
}

/// Removes the folder of a kept cluster with its contents; returns the removed folders. Waits up to
/// three seconds for a server that was just killed, and fails while one runs.
///
/// ```no_run
/// # async fn example() -> Result<(), wakeq_testbed::PostgresError> {
/// for folder in wakeq_testbed::remove_data_folder(".dev/postgres".as_ref()).await? {
///     println!("removed {}", folder.display());
/// }
/// # Ok(()) }
/// ```
pub async fn remove_data_folder(folder: &Path) -> Result<Vec<PathBuf>, PostgresError> {
    let Ok(folder) = folder.canonicalize() else { return Ok(Vec::new()) };
    let folders: Vec<_> =
        [substitute(&folder), folder].into_iter().filter(|folder| folder.is_dir()).collect();
    for folder in &folders {
        refuse_a_running_one(&folder.join(DATA)).await?;
    }
    for folder in &folders {
        fs::remove_dir_all(folder).map_err(at(folder))?;
    }
    Ok(folders)
}

/// Waits for a server that is shutting down, and fails if one keeps running.
pub(super) async fn refuse_a_running_one(data: &Path) -> Result<(), PostgresError> {
    let deadline = Instant::now() + PREDECESSOR_GONE_WITHIN;
    while let Some((pid, port)) = running_in(data) {
        if Instant::now() > deadline {
            return Err(PostgresError::AlreadyRunning { folder: data.to_owned(), pid, port });
        }
        sleep(BETWEEN_LOOKS).await;
    }
    Ok(())
}

/// The process id and port of the server that runs in this data folder.
pub(super) fn running_in(data: &Path) -> Option<(i32, String)> {
    let lines = fs::read_to_string(data.join("postmaster.pid")).ok()?;
    let mut lines = lines.lines();
    let pid = lines.next()?.trim().parse().ok()?;
    let port = lines.nth(2).unwrap_or("unknown").trim().to_owned();
    let is_another_program =
        fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name != "postgres\n");
    (kill(Pid::from_raw(pid), None).is_ok() && !is_another_program).then_some((pid, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn similar_paths_get_different_substitutes() {
        let [one, other] = ["/root/a/b-c", "/root/a-b/c"].map(|path| substitute(Path::new(path)));
        assert!(one.starts_with("/var/tmp") && other.starts_with("/var/tmp"));
        assert_ne!(one, other);
        assert_eq!(one, substitute(Path::new("/root/a/b-c")), "the next start finds it");
        let long = substitute(Path::new(&format!("/{}", "folder/".repeat(100))));
        assert!(long.file_name().is_some_and(|name| name.len() < 255), "{}", long.display());
    }
}
