//! A Postgres cluster of our own: data folder, port and processes, ended with this process.
//!
//! It must never listen on anything but 127.0.0.1, nor touch a folder that it was not given and did
//! not create.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, chown};
use std::path::{Path, PathBuf};
use std::time::Duration;

use sqlx::{Connection, PgConnection};
use tokio::time::{sleep, timeout};

use super::PostgresError;
use super::download;
use super::installed::{Binaries, unprivileged};
use super::kept::{DATA, persistent_folder, refuse_a_running_one};
use super::scratch;
use crate::choice::say;
use crate::process::{ChildProcess, Ending, Guard, Launch, RunAs, free_port};

const READY_WITHIN: Duration = Duration::from_secs(60);
const ENDS_WITHIN: Duration = Duration::from_secs(20);
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(10);
/// Another process may take a free port before Postgres binds it.
const PORTS_TRIED: u32 = 5;
const LOG_FILE: &str = "postgres.log";
/// The file in the data folder with the password of a kept cluster's superuser.
const PASSWORD: &str = "wakeq.password";
const LOG_SHOWN_BYTES: usize = 2_000;

/// Where a cluster keeps its data.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Folder {
    /// Removed with its contents when the process ends, even if that is killed.
    #[default]
    Temporary,
    /// Temporary as well, and in memory if there is room: for tests, whose databases are many small
    /// files.
    Memory,
    /// Kept, and used again by the next start.
    Persistent(PathBuf),
}

/// Options of a cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClusterOptions {
    /// Where the data is kept; by default in a temporary folder.
    pub folder: Folder,
    /// The port; a free one by default.
    pub port: Option<u16>,
}

/// A running cluster with the superuser `postgres`.
///
/// The superuser has a password only if the folder is kept. A temporary cluster ends with its
/// process, and authentication would take each connection of a test longer than its actual work.
///
/// ```no_run
/// # async fn example() -> Result<(), wakeq_testbed::PostgresError> {
/// let mut cluster = wakeq_testbed::Cluster::start(wakeq_testbed::ClusterOptions::default()).await?;
/// println!("DATABASE_URL={}", cluster.url("postgres"));
/// cluster.kill_9().await?;
/// cluster.start_again().await?; // the same data, at the same address
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Cluster {
    process: ChildProcess,
    setup: ClusterSetup,
    port: u16,
}

impl Cluster {
    /// Creates the data folder if it is missing, starts the server and waits until it accepts
    /// connections. Its programs are the installed ones or, if there are none, downloaded.
    pub async fn start(options: ClusterOptions) -> Result<Self, PostgresError> {
        let binaries = match Binaries::find() {
            Err(missing @ (PostgresError::NotInstalled | PostgresError::TooOld { .. })) => {
                download::try_binaries().await.ok_or(missing)?
            }
            found => found?,
        };
        Self::start_of(binaries, options).await
    }

    /// Of the installed programs only.
    pub(super) async fn start_installed(options: ClusterOptions) -> Result<Self, PostgresError> {
        Self::start_of(Binaries::find()?, options).await
    }

    pub(super) async fn start_of(binaries: Binaries, options: ClusterOptions) -> Result<Self, PostgresError> {
        let setup = ClusterSetup::prepare(binaries, &options).await?;
        let mut attempt = 1;
        loop {
            let port = options.port.map_or_else(free_port, Ok).map_err(at(&setup.data))?;
            match setup.launch(port).await {
                Ok(process) => return Ok(Self { process, setup, port }),
                Err(PostgresError::Ended(words))
                    if options.port.is_none()
                        && attempt < PORTS_TRIED
                        && words.contains("already in use") =>
                {
                    attempt += 1;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Like [`start`](Self::start), but `None`, with a line on stderr that names what is `skipped`,
    /// if Postgres is neither installed nor can be downloaded.
    pub async fn start_or_skip(
        options: ClusterOptions,
        skipped: &str,
    ) -> Result<Option<Self>, PostgresError> {
        match Self::start(options).await {
            Ok(cluster) => Ok(Some(cluster)),
            Err(missing @ (PostgresError::NotInstalled | PostgresError::TooOld { .. })) => {
                say(&format!("SKIPPED: {skipped}. {missing}"));
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// The URL of a database on this server; `postgres` always exists.
    pub fn url(&self, database: &str) -> String {
        self.setup.url(self.port, database)
    }

    /// The port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The process id of the postmaster.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// The folder of the data. It is not always in the given one, which Postgres's user may be
    /// unable to reach if we run as root.
    pub fn data_folder(&self) -> &Path {
        &self.setup.data
    }

    /// Kills all its processes at once and waits until they have ended.
    pub async fn kill_9(&self) -> Result<(), PostgresError> {
        Ok(self.process.kill_9().await?)
    }

    /// Starts the server after [`kill_9`](Self::kill_9), with the same data at the same address.
    pub async fn start_again(&mut self) -> Result<(), PostgresError> {
        self.process.kill_9().await?;
        self.process = self.setup.launch(self.port).await?;
        Ok(())
    }

    /// Shuts it down gracefully: connections are closed and all data is on disk.
    pub async fn stop(self) -> Result<(), PostgresError> {
        Ok(self.process.interrupt(ENDS_WITHIN).await?)
    }
}

impl fmt::Display for Cluster {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Binaries { folder, version, .. } = &self.setup.binaries;
        let (programs, data) = (folder.display(), self.setup.data.display());
        write!(formatter, "Postgres: {version} from {programs}, on port {}, its data in {data}", self.port)
    }
}

/// Everything that outlives a restart of the server.
#[derive(Debug)]
struct ClusterSetup {
    binaries: Binaries,
    run_as: Option<RunAs>,
    data: PathBuf,
    log: PathBuf,
    /// Whether the data is kept, and so has a password.
    is_persistent: bool,
    /// Holds the sockets and all temporary files.
    scratch: PathBuf,
    guard: Guard,
}

impl ClusterSetup {
    async fn prepare(binaries: Binaries, options: &ClusterOptions) -> Result<Self, PostgresError> {
        let run_as = unprivileged()?;
        let scratch = scratch::path(matches!(options.folder, Folder::Memory));
        let guard = Guard::new(Some(&scratch))?; // before the folder, so that it is always removed
        make_folder(&scratch, run_as)?;
        let home = match &options.folder {
            Folder::Temporary | Folder::Memory => scratch.clone(),
            Folder::Persistent(folder) => persistent_folder(folder, run_as)?,
        };
        let (data, log) = (home.join(DATA), home.join(LOG_FILE));
        let is_persistent = matches!(options.folder, Folder::Persistent(_));
        let setup = Self { binaries, run_as, data, log, is_persistent, scratch, guard };
        refuse_a_running_one(&setup.data).await?;
        setup.initialise().await?;
        File::create(&setup.log).map_err(at(&setup.log))?;
        Ok(setup)
    }

    /// Initialises another folder first and renames it, so that an interrupted `initdb` is never
    /// taken for a cluster.
    async fn initialise(&self) -> Result<(), PostgresError> {
        if let Ok(made_by) = fs::read_to_string(self.data.join("PG_VERSION")) {
            let (made_by, installed) = (made_by.trim().to_owned(), self.binaries.major().to_owned());
            let folder = self.data.clone();
            let same = made_by == installed;
            return if same {
                Ok(())
            } else {
                Err(PostgresError::OtherVersion { folder, made_by, installed })
            };
        }
        let unfinished = self.data.with_extension("unfinished");
        if unfinished.exists() {
            fs::remove_dir_all(&unfinished).map_err(at(&unfinished))?;
        }
        let options = ["--no-sync", "--username=postgres", "--encoding=UTF8", "--locale=C"];
        let mut launch = self.program("initdb").arguments(options).argument("-D").argument(&unfinished);
        let password = self.scratch.join(PASSWORD);
        launch = if self.is_persistent {
            let mut file = File::options();
            let file =
                file.write(true).create_new(true).mode(0o600).open(&password).map_err(at(&password))?;
            new_password(&file).map_err(at(&password))?;
            give(&password, self.run_as)?;
            launch.argument("--auth=scram-sha-256").argument("--pwfile").argument(&password)
        } else {
            launch.argument("--auth=trust")
        };
        let initdb = self.guard.start(launch)?;
        if !initdb.ended().await.success() {
            return Err(PostgresError::Initialise(initdb.last_lines()));
        }
        if self.is_persistent {
            // In the data folder, which only its owner can read, and moved into place with it.
            let kept = unfinished.join(PASSWORD);
            fs::copy(&password, &kept).map_err(at(&kept))?;
            give(&kept, self.run_as)?;
            fs::remove_file(&password).map_err(at(&password))?;
        }
        fs::rename(&unfinished, &self.data).map_err(at(&self.data))
    }

    async fn launch(&self, port: u16) -> Result<ChildProcess, PostgresError> {
        let log = File::options().append(true).create(true).open(&self.log).map_err(at(&self.log))?;
        let launch =
            self.program("postgres").arguments(self.arguments(port)).errors_to(log).ending(Ending::Quit);
        let process = self.guard.start(launch)?;
        let url = self.url(port, "postgres");
        let answered = async {
            while process.is_running() {
                if let Ok(connection) = PgConnection::connect(&url).await {
                    return connection.close().await.is_ok();
                }
                sleep(BETWEEN_ATTEMPTS).await;
            }
            false
        };
        match timeout(READY_WITHIN, answered).await {
            Ok(true) if process.is_running() => Ok(process),
            Ok(_) => Err(PostgresError::Ended(self.last_words())),
            Err(_) => Err(PostgresError::Silent(self.last_words())),
        }
    }

    /// The URL of a database, with the cluster's password if it has one.
    fn url(&self, port: u16, database: &str) -> String {
        let password = fs::read_to_string(self.data.join(PASSWORD)).unwrap_or_default();
        let password = match password.trim() {
            "" => String::new(),
            password => format!(":{password}"),
        };
        format!("postgres://postgres{password}@127.0.0.1:{port}/{database}")
    }

    fn program(&self, name: &str) -> Launch {
        Launch::new(self.binaries.program(name)).run_as(self.run_as).current_folder(&self.scratch)
    }

    fn arguments(&self, port: u16) -> Vec<String> {
        let mut settings = vec![
            format!("port={port}"),
            "listen_addresses=127.0.0.1".to_owned(),
            format!("unix_socket_directories={}", self.scratch.display()),
            "max_connections=200".to_owned(),
            "logging_collector=off".to_owned(),
            "log_destination=stderr".to_owned(),
            "lc_messages=C".to_owned(),
        ];
        if self.binaries.has_stat_statements {
            settings.push("shared_preload_libraries=pg_stat_statements".to_owned());
            settings.push("pg_stat_statements.track_utility=on".to_owned());
        }
        let mut arguments = vec!["-D".to_owned(), self.data.display().to_string()];
        arguments.extend(settings.into_iter().flat_map(|setting| ["-c".to_owned(), setting]));
        arguments
    }

    fn last_words(&self) -> String {
        let log = fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&log[log.len().saturating_sub(LOG_SHOWN_BYTES)..]).into_owned()
    }
}

/// Writes 192 random bits as hexadecimal digits.
fn new_password(mut file: &File) -> io::Result<()> {
    let mut bytes = [0; 24];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    writeln!(file, "{digits}")
}

pub(super) fn make_folder(folder: &Path, owner: Option<RunAs>) -> Result<(), PostgresError> {
    fs::DirBuilder::new().mode(0o700).create(folder).map_err(at(folder))?;
    give(folder, owner)
}

pub(super) fn give(folder: &Path, owner: Option<RunAs>) -> Result<(), PostgresError> {
    let Some(RunAs { user, group }) = owner else { return Ok(()) };
    chown(folder, Some(user), Some(group)).map_err(at(folder))
}

pub(super) fn at(path: &Path) -> impl FnOnce(io::Error) -> PostgresError {
    let path = path.to_path_buf();
    move |source| PostgresError::File { path, source }
}
