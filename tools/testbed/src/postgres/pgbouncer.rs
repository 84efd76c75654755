//! Starts a pgbouncer in transaction mode before a cluster.
//!
//! It must never listen on anything but 127.0.0.1.

use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;

use super::PostgresError;
use super::cluster::{Cluster, give, make_folder};
use super::installed::unprivileged;
use crate::choice::{env_value, say};
use crate::process::{ChildProcess, Guard, Launch, ProcessError, free_port, program_on_path};

const PROGRAM: &str = "pgbouncer";
/// Folders that are not on every user's `PATH`.
const USUAL_FOLDERS: [&str; 2] = ["/usr/local/sbin", "/usr/sbin"];
const REQUIRED_VARIABLE: &str = "REQUIRE_PGBOUNCER";
/// The first version that keeps prepared statements in transaction mode.
const OLDEST: (u32, u32) = (1, 21);
const READY_WITHIN: Duration = Duration::from_secs(30);
const STARTED: &str = "process up";
const CONFIG: &str = "pgbouncer.ini";
const USERS: &str = "users.txt";

/// Why pgbouncer could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PgBouncerError {
    /// It is not installed, or too old.
    #[error("pgbouncer 1.21 or newer is not installed: from Debian 13 on, `apt-get install pgbouncer`")]
    NotInstalled,
    /// Its process could not be started or ended.
    #[error("pgbouncer")]
    Process(#[from] ProcessError),
    /// No port is free.
    #[error("no free port on 127.0.0.1 for pgbouncer")]
    Port(#[source] io::Error),
    /// Its folder could not be made.
    #[error("the folder of pgbouncer")]
    Folder(#[from] PostgresError),
    /// It ended, or was not ready in time; its last lines of output.
    #[error("pgbouncer could not start; its last output:\n{0}")]
    Failed(String),
}

/// What it lends.
#[derive(Debug, Clone, Copy)]
pub struct PgBouncerOptions {
    /// Server connections for each user and database.
    pub pool_size: u32,
    /// Prepared statements that each server connection keeps; with 0, clients can't have any.
    pub max_prepared_statements: u32,
}

/// A pgbouncer in transaction mode, as a child process, before a [`Cluster`]; the roles need no
/// password. It ends with this value and with this process.
///
/// ```no_run
/// # async fn example(cluster: &wakeq_testbed::Cluster) -> Result<(), wakeq_testbed::PgBouncerError> {
/// use wakeq_testbed::{PgBouncer, PgBouncerOptions};
///
/// let options = PgBouncerOptions { pool_size: 3, max_prepared_statements: 200 };
/// let pooler = PgBouncer::start(cluster, &["app"], options).await?;
/// println!("{}", pooler.url("app", "postgres")); // postgres://app@127.0.0.1:21234/postgres
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct PgBouncer {
    port: u16,
    _process: ChildProcess,
    _guard: Guard,
}

impl PgBouncer {
    /// Starts it on a free port of 127.0.0.1, and waits until it is ready.
    pub async fn start(
        cluster: &Cluster,
        roles: &[&str],
        options: PgBouncerOptions,
    ) -> Result<Self, PgBouncerError> {
        let program = find().ok_or(PgBouncerError::NotInstalled)?;
        let random = RandomState::new().hash_one(std::process::id());
        let folder = std::env::temp_dir().join(format!("wakeq-pgbouncer-{random:016x}"));
        let guard = Guard::new(Some(&folder))?;
        // It refuses to run as root, as Postgres does.
        let run_as = unprivileged()?;
        make_folder(&folder, run_as)?;
        let port = free_port().map_err(PgBouncerError::Port)?;
        let users: String = roles.iter().map(|role| format!("\"{role}\" \"\"\n")).collect();
        let files = [(CONFIG, config(&folder, port, cluster.port(), options)), (USERS, users)];
        for (name, text) in files {
            let file = folder.join(name);
            fs::write(&file, text).map_err(super::cluster::at(&file))?;
            give(&file, run_as)?;
        }
        let (sender, started) = oneshot::channel();
        let mut sender = Some(sender);
        let launch = Launch::new(program).run_as(run_as).argument(folder.join(CONFIG)).on_line(move |line| {
            if line.contains(STARTED)
                && let Some(sender) = sender.take()
            {
                let _ = sender.send(());
            }
        });
        let process = guard.start(launch)?;
        // The channel is closed when the process ends.
        match timeout(READY_WITHIN, started).await {
            Ok(Ok(())) => Ok(Self { port, _process: process, _guard: guard }),
            Ok(Err(_)) | Err(_) => Err(PgBouncerError::Failed(process.last_lines())),
        }
    }

    /// As [`start`](Self::start). `None`, with a line on stderr that names what is `skipped`, if it
    /// is not installed and `REQUIRE_PGBOUNCER` is not `1`.
    pub async fn start_if_installed(
        cluster: &Cluster,
        roles: &[&str],
        options: PgBouncerOptions,
        skipped: &str,
    ) -> Result<Option<Self>, PgBouncerError> {
        match Self::start(cluster, roles, options).await {
            Err(missing @ PgBouncerError::NotInstalled)
                if env_value(REQUIRED_VARIABLE).is_none_or(|value| value != "1") =>
            {
                say(&format!("SKIPPED: {skipped}. {missing}"));
                Ok(None)
            }
            started => started.map(Some),
        }
    }

    /// The URL of a database for one of the roles.
    pub fn url(&self, role: &str, database: &str) -> String {
        format!("postgres://{role}@127.0.0.1:{}/{database}", self.port)
    }
}

fn config(folder: &Path, port: u16, server: u16, options: PgBouncerOptions) -> String {
    let PgBouncerOptions { pool_size, max_prepared_statements } = options;
    let users = folder.join(USERS);
    format!(
        "[databases]\n* = host=127.0.0.1 port={server}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n\
         unix_socket_dir =\nauth_type = trust\nauth_file = {}\npool_mode = transaction\n\
         default_pool_size = {pool_size}\nmax_prepared_statements = {max_prepared_statements}\n",
        users.display()
    )
}

/// The first one that is new enough.
fn find() -> Option<PathBuf> {
    let usual = USUAL_FOLDERS.map(|folder| Path::new(folder).join(PROGRAM));
    program_on_path(PROGRAM).into_iter().chain(usual).find(|program| {
        let output = Command::new(program).arg("--version").output();
        output.is_ok_and(|output| is_new_enough(&String::from_utf8_lossy(&output.stdout)))
    })
}

/// Of the output of `pgbouncer --version`.
fn is_new_enough(output: &str) -> bool {
    let version = output.lines().next().and_then(|line| line.strip_prefix("PgBouncer "));
    let mut numbers = version.unwrap_or_default().split('.').map_while(|number| number.parse().ok());
    matches!((numbers.next(), numbers.next()), (Some(major), Some(minor)) if (major, minor) >= OLDEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_their_numbers() {
        assert!(is_new_enough("PgBouncer 1.24.1\nlibevent 2.1.12-stable\n"));
        assert!(is_new_enough("PgBouncer 1.21.0"));
        assert!(!is_new_enough("PgBouncer 1.9.0"));
        assert!(!is_new_enough("PgBouncer 1.18.0"));
        assert!(!is_new_enough(""));
    }
}
