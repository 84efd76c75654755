//! The folder in which a cluster is kept from one start to the next, and where root's own stands in for it.
//!
//! It must never remove what a server runs on.

use std::fs::{self, File, TryLockError};
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

/// The folder of the data in a cluster's.
pub(super) const DATA: &str = "data";
/// A server whose process was killed a moment ago is still on its way out.
pub(super) const PREDECESSOR_GONE_WITHIN: Duration = Duration::from_secs(3);
const BETWEEN_LOOKS: Duration = Duration::from_millis(10);
/// What the engine of the embedded Postgres holds in the folder of each database that it has open.
const ENGINE_LOCK: &str = ".pglite-oxide.lock";
/// As much of a path as makes its substitute's name readable.
const NAME_SHOWN_BYTES: usize = 100;

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
    match fs::symlink_metadata(&substitute) {
        // Everybody may make a folder of this name in /var/tmp.
        Ok(found) if !found.is_dir() || found.uid() != user => {
            Err(PostgresError::NotOurs { folder: substitute })
        }
        Ok(_) => Ok(substitute),
        Err(_) => make_folder(&substitute, owner).map(|()| substitute),
    }
}

/// Where a folder is, that Postgres's user can't reach. The end of the name tells paths apart that look alike in it.
fn substitute(folder: &Path) -> PathBuf {
    let path = folder.as_os_str().as_encoded_bytes();
    // FNV-1a, which stays the same from one build to the next.
    let hash = path.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let shown = String::from_utf8_lossy(&path[path.len().saturating_sub(NAME_SHOWN_BYTES)..]);
    let name = shown.trim_start_matches('/').replace('/', "-");
    Path::new("/var/tmp").join(format!("wakeq-{name}-{hash:016x}"))
}

/// Removes a kept cluster, or the folder of an embedded one, with all that is in it; what was removed. It waits for a server
/// that was killed a moment ago, and refuses while one runs on it.
///
/// ```no_run
/// # async fn example() -> Result<(), wakeq_services::PostgresError> {
/// for folder in wakeq_services::remove_kept(".dev/postgres".as_ref()).await? {
///     println!("removed {}", folder.display());
/// }
/// # Ok(()) }
/// ```
pub async fn remove_kept(folder: &Path) -> Result<Vec<PathBuf>, PostgresError> {
    let Ok(folder) = folder.canonicalize() else { return Ok(Vec::new()) };
    let places: Vec<_> = [substitute(&folder), folder].into_iter().filter(|place| place.is_dir()).collect();
    for place in &places {
        refuse_a_running_one(&place.join(DATA)).await?;
        refuse_an_engine(place).await?;
    }
    for place in &places {
        fs::remove_dir_all(place).map_err(at(place))?;
    }
    Ok(places)
}

/// Waits for a server on its way out, and refuses another one.
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

/// The same for the engine of an embedded one.
async fn refuse_an_engine(folder: &Path) -> Result<(), PostgresError> {
    let deadline = Instant::now() + PREDECESSOR_GONE_WITHIN;
    while has_engine(folder)? {
        if Instant::now() > deadline {
            return Err(PostgresError::InUse { folder: folder.to_owned() });
        }
        sleep(BETWEEN_LOOKS).await;
    }
    Ok(())
}

/// Whether an engine has one of the folder's databases open.
fn has_engine(folder: &Path) -> Result<bool, PostgresError> {
    for database in fs::read_dir(folder).map_err(at(folder))? {
        let path = database.map_err(at(folder))?.path().join(ENGINE_LOCK);
        if !path.is_file() {
            continue;
        }
        match File::open(&path).map_err(at(&path))?.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(true),
            Err(TryLockError::Error(error)) => return Err(at(&path)(error)),
        }
    }
    Ok(false)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_look_alike_have_substitutes_of_their_own() {
        let [one, other] = ["/root/a/b-c", "/root/a-b/c"].map(|path| substitute(Path::new(path)));
        assert!(one.starts_with("/var/tmp") && other.starts_with("/var/tmp"));
        assert_ne!(one, other);
        assert_eq!(one, substitute(Path::new("/root/a/b-c")), "the next start finds it");
        let long = substitute(Path::new(&format!("/{}", "folder/".repeat(100))));
        assert!(long.file_name().is_some_and(|name| name.len() < 255), "{}", long.display());
    }

    #[tokio::test]
    async fn what_an_engine_has_open_is_not_removed() {
        let folder = std::env::temp_dir().join(format!("wakeq-engine-{}", std::process::id()));
        fs::create_dir_all(folder.join("postgres")).unwrap();
        let engine = File::create(folder.join("postgres").join(ENGINE_LOCK)).unwrap();
        engine.try_lock().unwrap();
        let refused = remove_kept(&folder).await.unwrap_err();
        assert!(matches!(refused, PostgresError::InUse { .. }), "{refused}");
        drop(engine);
        assert_eq!(remove_kept(&folder).await.unwrap().len(), 1);
        assert!(!folder.exists());
    }
}
