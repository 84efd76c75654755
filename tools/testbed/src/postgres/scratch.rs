//! The place of a temporary cluster's folder.

use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};

/// The path of a socket in it has to stay below 104 bytes.
const LONGEST_BYTES: usize = 80;
/// The free memory below which no cluster is kept in memory.
#[cfg(target_os = "linux")]
const MEMORY_BYTES: u64 = 4 * 1024 * 1024 * 1024;

/// The path of a new folder; in memory if that is wanted and there is room. The database of a test
/// is a thousand small files, and creating them on a disk costs the file system a quarter of a
/// second of processor time, more than most tests take.
pub(super) fn path(in_memory: bool) -> PathBuf {
    let random = RandomState::new().hash_one(std::process::id());
    let name = format!("wakeq-postgres-{random:016x}");
    // An explicit `TMPDIR` takes precedence.
    if in_memory
        && std::env::var_os("TMPDIR").is_none()
        && let Some(memory) = memory()
    {
        return memory.join(name);
    }
    let usual = std::env::temp_dir().join(&name);
    if usual.as_os_str().len() <= LONGEST_BYTES { usual } else { Path::new("/tmp").join(name) }
}

/// A file system in memory with room for clusters.
#[cfg(target_os = "linux")]
fn memory() -> Option<&'static Path> {
    let memory = Path::new("/dev/shm");
    let room = nix::sys::statvfs::statvfs(memory).ok()?;
    let writable = nix::unistd::access(memory, nix::unistd::AccessFlags::W_OK).is_ok();
    (writable && room.blocks_available().saturating_mul(room.fragment_size()) >= MEMORY_BYTES)
        .then_some(memory)
}

#[cfg(not(target_os = "linux"))]
fn memory() -> Option<&'static Path> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_disposable_data_is_kept_in_memory() {
        let (kept, lost) = (path(false), path(true));
        assert!(kept.starts_with(std::env::temp_dir()) || kept.starts_with("/tmp"), "{kept:?}");
        let expected = memory().filter(|_| std::env::var_os("TMPDIR").is_none());
        assert_eq!(lost.starts_with("/dev/shm"), expected.is_some(), "{lost:?}");
        assert!(kept.as_os_str().len() <= LONGEST_BYTES && lost.as_os_str().len() <= LONGEST_BYTES);
    }
}
