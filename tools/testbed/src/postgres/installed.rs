//! Finds the Postgres that is installed on this machine and the user it can run as.
//!
//! It must never start a server; it only asks programs for their version and their folders.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::unistd::{User, geteuid};

use super::PostgresError;
use crate::process::{RunAs, program_on_path};

/// The oldest major version with all that the migrations use.
const OLDEST: u32 = 15;

/// The folder of `postgres` and `initdb` on this system.
///
/// ```
/// match wakeq_testbed::installed_postgres() {
///     Ok(programs) => println!("{}", programs.display()),
///     Err(missing) => println!("{missing}"),
/// }
/// ```
pub fn installed_postgres() -> Result<PathBuf, PostgresError> {
    Ok(Binaries::find()?.folder)
}

/// The programs of one installed version.
#[derive(Debug, Clone)]
pub(crate) struct Binaries {
    pub(crate) folder: PathBuf,
    /// Like `15.18`.
    pub(crate) version: String,
    pub(crate) has_stat_statements: bool,
}

impl Binaries {
    /// The first version that is new enough, in this order: `PATH`, Debian's folders (highest
    /// version first), `pg_config`, Homebrew and Postgres.app.
    pub(crate) fn find() -> Result<Self, PostgresError> {
        Self::first_of(candidates())
    }

    fn first_of(folders: Vec<PathBuf>) -> Result<Self, PostgresError> {
        let mut too_old = None;
        for binaries in folders.into_iter().filter_map(Self::of) {
            if binaries.major().parse().is_ok_and(|major: u32| major >= OLDEST) {
                return Ok(binaries);
            }
            let Self { folder, version, .. } = binaries;
            too_old.get_or_insert(PostgresError::TooOld { version, folder, needed: OLDEST });
        }
        Err(too_old.unwrap_or(PostgresError::NotInstalled))
    }

    /// Those of a folder, if they run.
    pub(crate) fn of(folder: PathBuf) -> Option<Self> {
        if !["initdb", "postgres"].iter().all(|program| folder.join(program).is_file()) {
            return None;
        }
        let version = version(&folder)?;
        let has_stat_statements = has_library(&folder, "pg_stat_statements");
        Some(Self { folder, version, has_stat_statements })
    }

    pub(crate) fn program(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// `15` of `15.18`.
    pub(crate) fn major(&self) -> &str {
        major(&self.version)
    }
}

/// `15` of `15.18`, and of `15beta1`.
fn major(version: &str) -> &str {
    version.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default()
}

/// The user that Postgres drops to if we run as root: `postgres`, else `nobody`.
pub(crate) fn unprivileged() -> Result<Option<RunAs>, PostgresError> {
    if !geteuid().is_root() {
        return Ok(None);
    }
    let known = ["postgres", "nobody"].iter().find_map(|name| User::from_name(name).ok().flatten());
    let user = known.ok_or(PostgresError::NoUser)?;
    Ok(Some(RunAs { user: user.uid.as_raw(), group: user.gid.as_raw() }))
}

fn candidates() -> Vec<PathBuf> {
    let mut folders = Vec::new();
    let on_path = program_on_path("initdb").and_then(|initdb| initdb.canonicalize().ok());
    folders.extend(on_path.and_then(|initdb| initdb.parent().map(Path::to_path_buf)));
    folders.extend(versions_in("/usr/lib/postgresql", "", "bin"));
    folders.extend(pg_config_value(Path::new("pg_config"), "--bindir"));
    for prefix in ["/opt/homebrew/opt", "/usr/local/opt"] {
        folders.extend(versions_in(prefix, "postgresql@", "bin"));
        folders.push(Path::new(prefix).join("postgresql/bin"));
    }
    folders.extend(versions_in("/Applications/Postgres.app/Contents/Versions", "", "bin"));
    folders.extend(versions_in("/usr", "pgsql-", "bin"));
    folders.push("/usr/local/pgsql/bin".into());
    folders.extend(env::home_dir().map(|home| home.join(".local/pgsql/bin")));
    folders
}

/// The folders `PARENT/PREFIX<version>/inside`, the highest version first.
fn versions_in(parent: &str, prefix: &str, inside: &str) -> Vec<PathBuf> {
    let names = fs::read_dir(parent).into_iter().flatten().flatten();
    let mut versions: Vec<(u32, PathBuf)> = names
        .filter_map(|entry| {
            let number = entry.file_name().to_str()?.strip_prefix(prefix)?.parse().ok()?;
            Some((number, entry.path().join(inside)))
        })
        .collect();
    versions.sort_by_key(|(number, _)| std::cmp::Reverse(*number));
    versions.into_iter().map(|(_, folder)| folder).collect()
}

/// `15.18` of `postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)`.
fn version(folder: &Path) -> Option<String> {
    let output = Command::new(folder.join("postgres")).arg("--version").output().ok()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    said.split_whitespace().find(|word| word.starts_with(|c: char| c.is_ascii_digit())).map(str::to_owned)
}

fn has_library(folder: &Path, library: &str) -> bool {
    let beside = ["../lib", "../lib/postgresql"].map(|libraries| folder.join(libraries));
    let named = pg_config_value(&folder.join("pg_config"), "--pkglibdir");
    beside.into_iter().chain(named).any(|libraries| {
        ["so", "dylib"].iter().any(|ending| libraries.join(library).with_extension(ending).is_file())
    })
}

fn pg_config_value(pg_config: &Path, option: &str) -> Option<PathBuf> {
    let output = Command::new(pg_config).arg(option).output().ok()?;
    let folder = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    (output.status.success() && !folder.is_empty()).then(|| folder.into())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// A folder whose `postgres` and `initdb` run this shell script.
    fn programs(parent: &Path, name: &str, postgres: &str) -> PathBuf {
        let folder = parent.join(name);
        fs::create_dir_all(&folder).unwrap();
        for program in ["initdb", "postgres"] {
            let path = folder.join(program);
            fs::write(&path, format!("#!/bin/sh\n{postgres}\n")).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        folder
    }

    // Shows: DEV-01, DEV-02
    #[test]
    fn skips_installations_that_are_too_old_or_broken() {
        let parent = env::temp_dir().join(format!("wakeq-installed-{}", std::process::id()));
        let old = programs(&parent, "old", "echo 'postgres (PostgreSQL) 14.9 (Debian 14.9-1)'");
        let broken = programs(&parent, "broken", "exit 1");
        let new = programs(&parent, "new", "echo 'postgres (PostgreSQL) 15.1'");
        let newer = programs(&parent, "newer", "echo 'postgres (PostgreSQL) 18beta1'");
        let found = |folders: &[&PathBuf]| Binaries::first_of(folders.iter().copied().cloned().collect());

        let taken = found(&[&parent, &broken, &old, &new, &newer]).unwrap();
        assert_eq!((taken.folder.as_path(), taken.version.as_str(), taken.major()), (&*new, "15.1", "15"));
        assert_eq!(found(&[&newer, &new]).unwrap().major(), "18");
        let words = found(&[&broken, &old]).unwrap_err().to_string();
        assert!(
            words.starts_with(&format!("14.9 in {} is too old (15 is needed)", old.display())),
            "{words}"
        );
        let missing = found(&[&broken]).unwrap_err();
        assert!(matches!(missing, PostgresError::NotInstalled), "{missing}");
        assert!(missing.to_string().contains("apt-get install postgresql"), "{missing}");
        fs::remove_dir_all(parent).unwrap();
    }
}
