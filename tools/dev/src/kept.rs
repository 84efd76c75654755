//! The folder `.dev`: what is kept from one `cargo dev` to the next, and which process owns it
//! meanwhile.
//!
//! It must never remove anything that another process uses.

use std::fs::{self, File, TryLockError};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tokio::time::sleep;
use wakeq_testbed::remove_data_folder;

use crate::service::only_ours;

/// Locked for as long as this process runs; holds its process id and the URL of its database.
const LOCK: &str = "lock";
/// Locked (shared) by every process that may have a server in this folder, including the folder's
/// owner.
const SERVERS: &str = "servers";
/// A process that was just killed may still be exiting, and a child may be between its fork and its
/// exec.
const PREDECESSOR_GONE_WITHIN: Duration = Duration::from_secs(3);
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(10);
const POSTGRES: &str = "postgres";
/// Beside it, of the Postgres that is downloaded.
const DOWNLOADED: &str = "downloaded";
const KEY: &str = "key";
const SECRET_KEY: &str = "secret-key";

/// The folder `.dev`, and which process owns it.
pub(super) struct DevFolder {
    folder: PathBuf,
    ownership: Ownership,
}

enum Ownership {
    Owned(File),
    OwnedBy(OtherProcess),
}

impl Drop for DevFolder {
    /// Closing the file is not enough: a child between its fork and its exec has a copy of it,
    /// which keeps the lock.
    fn drop(&mut self) {
        if let Ownership::Owned(file) = &self.ownership {
            let _closed_only = file.unlock();
        }
    }
}

/// Another `cargo dev` that owns the folder.
pub(super) struct OtherProcess {
    pub(super) pid: String,
    /// Empty until it is announced.
    pub(super) database_url: String,
}

impl DevFolder {
    /// Opens `.dev` beside the workspace's manifest, or in the current folder without one.
    pub(super) fn open() -> Result<Self> {
        let package = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
        let workspace = package.as_deref().and_then(|package| package.ancestors().nth(2)).map(PathBuf::from);
        let here = workspace.map_or_else(std::env::current_dir, Ok).context("the current folder")?;
        Self::at(here.join(".dev"))
    }

    fn at(folder: PathBuf) -> Result<Self> {
        fs::create_dir_all(&folder).with_context(|| format!("make {}", folder.display()))?;
        let path = folder.join(LOCK);
        let mut options = File::options();
        let opened = options.read(true).write(true).create(true).truncate(false).mode(0o600).open(&path);
        let mut file = opened.with_context(|| format!("open {}", path.display()))?;
        let ownership = match file.try_lock() {
            Ok(()) => {
                // The URL of the database contains its password.
                only_ours(&file).with_context(|| format!("restrict {} to its owner", path.display()))?;
                write_owner(&file, "").with_context(|| format!("write {}", path.display()))?;
                Ownership::Owned(file)
            }
            Err(TryLockError::WouldBlock) => {
                let mut words = String::new();
                file.read_to_string(&mut words).with_context(|| format!("read {}", path.display()))?;
                let mut lines = words.lines().map(str::to_owned);
                let (pid, url) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
                Ownership::OwnedBy(OtherProcess { pid, database_url: url })
            }
            Err(TryLockError::Error(error)) => {
                return Err(error).with_context(|| format!("lock {}", path.display()));
            }
        };
        Ok(Self { folder, ownership })
    }

    /// The other process that owns the folder, if there is one.
    pub(super) fn other(&self) -> Option<&OtherProcess> {
        match &self.ownership {
            Ownership::Owned(_) => None,
            Ownership::OwnedBy(other) => Some(other),
        }
    }

    /// Removes everything that is kept; returns what was removed. Waits up to three seconds for a
    /// process that was just killed, and fails if another one uses the folder.
    pub(super) async fn clear(&self) -> Result<Vec<PathBuf>> {
        if let Some(other) = self.other() {
            bail!(
                "--fresh would remove data that another cargo dev (process {}) uses: stop that one first",
                other.pid
            );
        }
        let alone = self.servers()?;
        let deadline = Instant::now() + PREDECESSOR_GONE_WITHIN;
        loop {
            match alone.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) if Instant::now() < deadline => sleep(BETWEEN_ATTEMPTS).await,
                Err(TryLockError::WouldBlock) => {
                    bail!("--fresh would remove data that another cargo dev uses: stop that one first")
                }
                Err(TryLockError::Error(error)) => return Err(error).context("lock the servers of .dev"),
            }
        }
        let mut removed = remove_data_folder(&self.postgres()).await?;
        removed.extend(remove_data_folder(&self.folder.join(DOWNLOADED)).await?);
        let entries =
            fs::read_dir(&self.folder).with_context(|| format!("read {}", self.folder.display()))?;
        for entry in entries {
            let path = entry?.path();
            if path.file_name().is_some_and(|name| name == LOCK || name == SERVERS) {
                continue;
            }
            let gone = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
            gone.with_context(|| format!("remove {}", path.display()))?;
            removed.push(path);
        }
        Ok(removed)
    }

    /// Prevents [`clear`](Self::clear) for as long as the returned value lives; to be held before a
    /// server is started in the folder.
    pub(super) fn lock_servers(&self) -> Result<File> {
        let file = self.servers()?;
        match file.try_lock_shared() {
            Ok(()) => Ok(file),
            Err(TryLockError::WouldBlock) => {
                bail!("a cargo dev --fresh is clearing .dev right now: try again")
            }
            Err(TryLockError::Error(error)) => Err(error).context("lock the servers of .dev"),
        }
    }

    fn servers(&self) -> Result<File> {
        let path = self.folder.join(SERVERS);
        let opened = File::options().read(true).write(true).create(true).truncate(false).open(&path);
        opened.with_context(|| format!("open {}", path.display()))
    }

    /// Tells later processes which database this one uses.
    pub(super) fn announce(&self, database_url: &str) -> Result<()> {
        match &self.ownership {
            Ownership::Owned(file) => write_owner(file, database_url).context("write the lock of .dev"),
            Ownership::OwnedBy(_) => Ok(()),
        }
    }

    /// The folder of Postgres's data.
    pub(super) fn postgres(&self) -> PathBuf {
        self.folder.join(POSTGRES)
    }

    /// The file with the key that encrypts signing secrets.
    pub(super) fn secret_key(&self) -> PathBuf {
        self.folder.join(SECRET_KEY)
    }

    /// The file with the key to the API.
    pub(super) fn key(&self) -> PathBuf {
        self.folder.join(KEY)
    }
}

fn write_owner(mut file: &File, database_url: &str) -> std::io::Result<()> {
    use std::io::{Seek, SeekFrom};

    file.seek(SeekFrom::Start(0))?;
    file.set_len(0)?;
    write!(file, "{}\n{database_url}\n", std::process::id())
}

#[cfg(test)]
mod tests {
    use super::*;

    // Shows: DEV-02
    #[tokio::test]
    async fn clears_the_folder_only_if_no_process_uses_it() {
        let folder = std::env::temp_dir().join(format!("wakeq-dev-kept-{}", std::process::id()));
        let first = DevFolder::at(folder.clone()).unwrap();
        first.announce("postgres://here/one").unwrap();
        fs::write(first.key(), "secret").unwrap();

        let second = DevFolder::at(folder.clone()).unwrap();
        let other = second.other().unwrap();
        assert_eq!(
            (other.pid.clone(), other.database_url.as_str()),
            (std::process::id().to_string(), "postgres://here/one")
        );
        assert!(second.clear().await.unwrap_err().to_string().contains("stop that one first"));
        assert!(first.key().exists());

        let held = second.lock_servers().unwrap();
        let Ownership::Owned(file) = &first.ownership else { panic!("it was the first") };
        let _of_a_child = file.try_clone().unwrap(); // as a fork has it until it executes its program
        drop((first, second));
        let third = DevFolder::at(folder.clone()).unwrap();
        assert!(third.other().is_none());
        assert!(third.clear().await.is_err(), "the second one has a server here");
        drop(held);
        assert_eq!(third.clear().await.unwrap(), [folder.join(KEY)]);
        assert!(third.clear().await.unwrap().is_empty());
        fs::remove_dir_all(folder).unwrap();
    }
}
